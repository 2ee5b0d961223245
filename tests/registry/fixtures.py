"""One registry for all tests of a process: each test has a repository of its own."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.registry.artifacts import Pusher
from tests.registry.front import Front, before
from tests.registry.program import running

if TYPE_CHECKING:
    from collections.abc import Iterator

_numbers = itertools.count()


@dataclass(frozen=True)
class Shelf:
    """An own repository, by way of a front."""

    front: Front
    pusher: Pusher
    repository: str

    @property
    def url(self) -> str:
        return f"oci://{self.front.host}/{self.repository}"


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a registry that anybody may read and write."""
    with running(tmp_path_factory.mktemp("registry")) as port:
        yield port


@pytest.fixture
def shelf(registry: int) -> Iterator[Shelf]:
    with before(registry) as front:
        yield Shelf(front, Pusher(f"http://127.0.0.1:{registry}"), f"team/flags-{next(_numbers)}")
