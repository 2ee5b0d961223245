"""The last good flag set on disk: what `flagstaff up` serves when it starts and its source is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.artifacts.durable import as_failed
from evaluator import durable
from evaluator.flags.saved import MAX_BYTES, Saved, decode, encode

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from evaluator.flags.model import FlagSet

__all__ = ["LastGood", "Saved"]


class LastGood:
    """One flag set in one file, the folder being made when first written to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def save(self, flag_set: FlagSet, now: datetime) -> None:
        """Replace what is on disk. Raises Failed (StorageFull, StorageFailed) with the old in place."""
        content = encode(Saved(flag_set, now))
        try:
            durable.save(self._path, content)
        except OSError as error:
            raise as_failed(error, f"saving the last good flag set in {self._path}") from error

    def load(self) -> Saved | None:
        """What was saved last; None where nothing was, or it is damaged (it is then set aside and logged).

        Raises Failed where the disk cannot be read.
        """
        try:
            return durable.load(self._path, MAX_BYTES, decode)
        except OSError as error:
            raise as_failed(error, f"reading {self._path}") from error
