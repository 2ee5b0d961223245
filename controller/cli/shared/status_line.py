"""Shows on a terminal what lasts longer than a second."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE: Final = 1.0
"""Seconds before anything is shown."""


@contextlib.contextmanager
def progress(doing: str, patience: float = PATIENCE) -> Iterator[None]:
    """Show `doing` with a moving sign on standard error, if that is a terminal and the block lasts longer
    than `patience`, in seconds. Shows nothing for an empty text.
    """
    if not doing or not sys.stderr.isatty():
        yield
        return
    with contextlib.ExitStack() as shown:
        ended = threading.Event()
        waiting = threading.Thread(target=_show_later, args=(doing, ended, patience), daemon=True)
        waiting.start()
        shown.callback(waiting.join)
        shown.callback(ended.set)
        yield


def _show_later(doing: str, ended: threading.Event, patience: float) -> None:
    if ended.wait(patience):
        return
    # Imported here: most work ends before anything is shown.
    from rich.console import Console

    with Console(stderr=True).status(f"{doing} …"):
        ended.wait()
