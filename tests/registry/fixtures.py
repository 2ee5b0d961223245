"""One registry for all tests of a process: each test has a repository of its own."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from tests.clients.up import banner
from tests.registry.artifacts import Pusher
from tests.registry.front import Front, before
from tests.registry.program import containers, debian, program, run_registry
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REGISTRIES: Final = ("distribution", "debian", "containers")
"""What `registry` can be; the last one lists referrers."""
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
def registry(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a registry that anybody may read and write: the distribution project's, unless a test asks
    for others.
    """
    folder, kind = tmp_path_factory.mktemp("registry"), getattr(request, "param", REGISTRIES[0])
    if kind == "containers":
        started = containers(folder)
    else:
        started = run_registry(folder, debian if kind == "debian" else program)
    with started as port:
        yield port


@pytest.fixture
def shelf(registry: int) -> Iterator[Shelf]:
    with before(registry) as front:
        yield Shelf(front, Pusher(f"http://127.0.0.1:{registry}"), f"team/flags-{next(_numbers)}")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A Git repository, with a login in the address of its remote, that is pushed to a registry."""
    made = Repository(tmp_path / "repository")
    made.git("remote", "add", "origin", "https://ada:secret@git.example.com/shop/flags.git")
    made.commit("first", flags__json=banner("plain"))
    return made
