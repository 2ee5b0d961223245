"""What most tests of sources need. Helper processes are started once; all else is the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.registry.fixtures import registry, shelf
from tests.repositories import Repository
from tests.s3 import S3, s3
from tests.sigstore.instance import Instance, instance
from tests.warm_helpers import end_of_helpers, warm_helpers
from tests.worlds.sources import Beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

__all__ = ["end_of_helpers", "registry", "shelf", "warm_helpers"]


@pytest.fixture
def sigstore() -> Iterator[Instance]:
    with instance() as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[S3]:
    with s3(tmp_path) as server:
        yield server


@pytest.fixture
def into(tmp_path: Path) -> Path:
    folder = tmp_path / "into"
    folder.mkdir()
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


@pytest.fixture
async def beside(tmp_path: Path) -> AsyncIterator[Beside]:
    made = Beside(tmp_path)
    yield made
    await made.close()
