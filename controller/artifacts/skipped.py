"""What a source lists and does not deliver, such as symlinks and files that are too large: carried in the
archive itself, so that its readers know that files are missing, after a restart too.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAME: Final = ".flagstaff-skipped.json"
"""A file of this name is no part of a source's own content."""
TOO_LARGE: Final = "too large"
"""How the reason of a file begins that exceeds the limit for one file."""


def too_large(name: str, size: int, most: int) -> str:
    """The entry of a file of `size` bytes, where one may have `most`."""
    return f"{name}: {TOO_LARGE}, {size} bytes of {most} that one file may have"


def write_skipped(folder: Path, skipped: Sequence[str]) -> None:
    """Note `skipped`, each `name: reason`, in a folder that is to be an archive. Raises OSError."""
    path = folder / NAME
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if skipped:
        path.write_text(json.dumps(sorted(skipped)), encoding="utf-8")


def take_skipped(files: dict[str, bytes]) -> tuple[str, ...]:
    """Remove the note from an archive's files and return what it lists; nothing where there is none."""
    content = files.pop(NAME, b"[]")
    try:
        listed = json.loads(content)
    except (ValueError, RecursionError):
        return ()
    return tuple(each for each in listed if isinstance(each, str)) if isinstance(listed, list) else ()
