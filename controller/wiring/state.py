"""The state folder of `flagstaff up`: it belongs to one process at a time, and to one source for good."""

from __future__ import annotations

import contextlib
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.artifacts.durable import as_failed
from controller.runtime.setbacks import Stalled
from evaluator import durable

if TYPE_CHECKING:
    from collections.abc import Iterator

_FILE: Final = "source.json"
_MOST_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Identity:
    """What a state folder holds the flags of. No secret is in it."""

    source: str
    """The repository: an absolute path or a URL, without name, password or query."""
    reference: str | None
    paths: tuple[str, ...]

    def __str__(self) -> str:
        options = [f"--ref {self.reference}"] if self.reference else []
        options += [f"--path {path}" for path in self.paths if path != "."]
        return f"{self.source} ({' '.join(options)})" if options else self.source


@contextlib.contextmanager
def state_folder(folder: Path | None, identity: Identity) -> Iterator[Path]:
    """The folder, locked and marked with `identity`; a temporary one, removed afterwards, for None.

    Raises Stalled (StateInUse, StateOfAnotherSource) where it cannot be used, Failed where the disk refuses.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="flagstaff-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)
        return
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(durable.lock_folder(folder))
            _claim(folder, identity)
        except durable.FolderInUseError as error:
            raise Stalled("StateInUse", str(error)) from error
        except OSError as error:
            raise as_failed(error, f"--state-dir {folder} cannot be used") from error
        yield folder


def _claim(folder: Path, identity: Identity) -> None:
    held = durable.load(folder / _FILE, _MOST_BYTES, _decode)
    if held is None:
        content = json.dumps(asdict(identity), indent=2, ensure_ascii=False) + "\n"
        durable.save(folder / _FILE, content.encode())
    elif held != identity:
        raise Stalled(
            "StateOfAnotherSource",
            f"--state-dir {folder} holds the flags of {held}, not of {identity}; "
            f"give another folder, or delete this one to start without its last good flags",
        )


def _decode(content: bytes) -> Identity:
    """Raises ValueError for what is not an identity."""
    found = json.loads(content)
    try:
        return Identity(found["source"], found["reference"], tuple(found["paths"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"not the description of a source: {error!r}") from error
