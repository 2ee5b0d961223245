"""Verbs that run configure the process' log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def log() -> Iterator[None]:
    """The process' log is as it was."""
    root, reconciles = logging.getLogger(), logging.getLogger("controller.runtime.loop")
    handlers, level, theirs = root.handlers[:], root.level, reconciles.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    reconciles.setLevel(theirs)
