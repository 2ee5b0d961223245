"""What most tests of Git need; a module that needs another one has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.repositories import Repository
from tests.unit.controller.sources.beside import Beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


@pytest.fixture
async def beside(tmp_path: Path) -> AsyncIterator[Beside]:
    made = Beside(tmp_path)
    yield made
    await made.close()
