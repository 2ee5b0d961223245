"""The controllers that benchmarks.flux compares: each alone on a fresh control plane, with what it costs."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.loads import family, family_cpu_seconds
from tests.clients.attacks import peak_megabytes
from tests.cluster.assets import PLANE, find
from tests.cluster.controllers import controller
from tests.cluster.plane import Plane, run_plane
from tests.cluster.plugin import install
from tests.cluster.source_controller import install as install_flux
from tests.cluster.source_controller import source_controller
from tests.cluster.spines import Spine
from tests.git_http import GitServer, git_server
from tests.go import build
from tests.repositories import Repository
from tests.worlds.flags import flags
from tests.worlds.objects import flag_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.replica import Replica

OURS, FLUX = "flagstaff", "source-controller"
REPOSITORIES = 10
_NAMESPACE = "shop"


@dataclass(frozen=True)
class Subject:
    """A controller that runs alone on a plane, and what it costs."""

    name: str
    space: Spine
    process: Replica

    @property
    def kind(self) -> str:
        return "flagsource" if self.name == OURS else "gitrepository"

    @property
    def server(self) -> GitServer:
        return self.space.server

    def source(self, name: str, repository: int, interval: str) -> dict[str, Any]:
        """A source that follows branch main of a repository."""
        ours = flag_source(f"{self.server.url}/{repository}/.git", name=name, interval=interval)
        if self.name == OURS:
            return ours
        spec = {"interval": interval, **ours["spec"]["git"]}
        return {**ours, "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "spec": spec}

    def spending(self) -> Spent:
        """Since both began."""
        return Spent(family_cpu_seconds(self.process.pid), self.space.api.writes(), len(self.server.paths))

    def memory(self) -> float:
        """The most that it and the children that it has now were resident, in MB."""
        found = 0.0
        for each in family(self.process.pid):
            with contextlib.suppress(OSError, AssertionError):
                found += peak_megabytes(each)
        return found


@dataclass(frozen=True)
class Spent:
    """Seconds of CPU, writes of all clients by resource, and requests to the Git server."""

    cpu: float
    writes: Counter[str]
    requests: int

    def since(self, before: Spent, applied: int = 0) -> dict[str, Any]:
        """What was spent since then; `applied`: writes of our own meanwhile."""
        made = Counter(self.writes)
        made.subtract(before.writes)
        leases = made.pop("leases", 0)
        return {
            "CPU s": self.cpu - before.cpu,
            "API writes": made.total() - applied,
            "Events of them": made["events"],
            "Leases beside them": leases,
            "Git requests": self.requests - before.requests,
        }


@contextlib.contextmanager
def ours(*arguments: str) -> Iterator[Subject]:
    """Our controller on a fresh plane, with further arguments."""
    with plane() as (cluster, folder):
        install(cluster)
        cluster.kubectl("create", "namespace", _NAMESPACE)
        with (
            space_in(cluster, folder) as space,
            controller(cluster, folder / "controller", *arguments) as process,
        ):
            process.wait_leads()
            yield Subject(OURS, space, process)


@contextlib.contextmanager
def flux(binary: Path) -> Iterator[Subject]:
    """Flux's on a fresh plane."""
    with plane() as (cluster, folder):
        install_flux(cluster)
        cluster.kubectl("create", "namespace", _NAMESPACE)
        with (
            space_in(cluster, folder) as space,
            source_controller(cluster, folder / "controller", binary) as process,
        ):
            yield Subject(FLUX, space, process)


@contextlib.contextmanager
def plane() -> Iterator[tuple[Plane, Path]]:
    """A fresh plane, and the folder that is gone with it."""
    with (
        tempfile.TemporaryDirectory() as name,
        run_plane(find() or build(PLANE), Path(name) / "plane") as cluster,
    ):
        yield cluster, Path(name)


@contextlib.contextmanager
def space_in(cluster: Plane, folder: Path) -> Iterator[Spine]:
    """A namespace with REPOSITORIES repositories of one file; its own is the first."""
    repositories = [Repository(folder / "git" / str(number)) for number in range(REPOSITORIES)]
    for each in repositories:
        each.commit("first", flags__json=flags(banner="on"))
    with git_server(folder / "git") as server:
        server.observes_processes = False
        yield Spine(cluster, _NAMESPACE, repositories[0], server)
