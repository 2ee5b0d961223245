"""(m) A look at each provider of sources that finds nothing new, and a first fetch, beside Git.

    python -m benchmarks.sources

Each is asked as in a cluster, and is a real server on this machine: Git's smart HTTP, the distribution
project's registry, an S3 server that checks signatures. Two contents: 1 MB in ten files, and 10,000 small
files.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.results import keep, median
from controller.api.fields import read
from controller.api.flagsource import FlagSourceSpec
from controller.api.meta import ObjectKey
from controller.runtime.clock import now
from controller.sources.backend import FetchRequest
from controller.sources.bucket_factory import BucketFactory
from controller.sources.freshness import Freshness
from controller.sources.git_factory import GitFactory
from controller.sources.oci_backend import OciFactory
from tests.git_http import git_server
from tests.registry.artifacts import Pusher, flux
from tests.registry.front import before
from tests.registry.program import run_registry
from tests.repositories import Repository
from tests.s3 import LOGIN, manifest, s3

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from controller.sources.backend import BackendFactory, SourceBackend

POLLS = 30
FETCHES = 3
CONTENTS = {
    "1 MB in 10 files": {f"flags-{number}.json": f"{number:x}" * 100_000 for number in range(10)},
    # With the folders 9,999 entries. In one folder the S3 server of the tests reads all of it for each
    # object.
    "9,900 files": {
        f"{number // 100:03}/flags-{number:05}.json": f'{{"flags": {{}}, "number": {number}}}'
        for number in range(9_900)
    },
}


@dataclass(frozen=True, slots=True)
class Place:
    """One provider with its content."""

    spec: Mapping[str, Any]
    """The provider's part of a FlagSource."""
    factory: Callable[[Path], BackendFactory[Any]]
    """One that knows nothing yet, and keeps what it has to in a folder."""
    requests: Callable[[], int]
    """How many the server has answered."""


async def secret(namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
    """Of the bucket alone."""
    del namespace, account
    return {key: text.encode() for key, text in LOGIN.items()} if name == "bucket" else None


@contextlib.contextmanager
def git(folder: Path, files: Mapping[str, str]) -> Iterator[Place]:
    """A repository of one commit."""
    repository = Repository(folder / "served/repository")
    for name, text in files.items():
        repository.write(name, text)
    repository.commit()
    with git_server(folder / "served") as server:
        spec = {"url": f"{server.url}/repository/.git"}
        yield Place(spec, lambda kept: GitFactory(secret, kept), lambda: len(server.paths))


@contextlib.contextmanager
def oci(folder: Path, files: Mapping[str, str]) -> Iterator[Place]:
    """An artifact as Flux pushes it."""
    with run_registry(folder) as port, before(port) as front:
        Pusher(f"http://127.0.0.1:{port}").push("team/flags", "latest", flux(files))
        spec = {"url": f"oci://{front.host}/team/flags", "insecure": True}
        yield Place(spec, lambda _: OciFactory(secret), lambda: len(front.asked))


@contextlib.contextmanager
def bucket(folder: Path, files: Mapping[str, str]) -> Iterator[Place]:
    """A bucket of as many objects."""
    with s3(folder) as server:
        for name, text in files.items():
            server.write(name, text)
        yield Place(manifest(server), lambda _: BucketFactory(secret), lambda: len(server.asked))


async def open_source(factory: BackendFactory[Any], name: str, spec: Mapping[str, Any]) -> SourceBackend:
    """For one look, which takes no answer that another was given."""
    whole = read(FlagSourceSpec, {"interval": "1m", name: spec})
    moment = now()
    look = FetchRequest(ObjectKey("FlagSource", "shop", "flags"), 300.0, Freshness(moment, moment))
    return await factory.open(getattr(whole, name), look)


async def measure_fetch(place: Place, name: str, folder: Path) -> float:
    """Milliseconds of the first fetch in a process that knows nothing."""
    factory = place.factory(folder / "kept")
    (folder / "files").mkdir()
    try:
        provider = await open_source(factory, name, place.spec)
        revision = await provider.resolve()
        started = time.perf_counter()
        await provider.fetch(revision, folder / "files")
        return (time.perf_counter() - started) * 1000
    finally:
        await factory.close()


async def measure_polls(place: Place, name: str, folder: Path) -> tuple[list[float], float]:
    """Milliseconds of each look that finds nothing new, and the requests of one."""
    factory = place.factory(folder / "kept")
    times = []
    try:
        await (await open_source(factory, name, place.spec)).resolve()
        before_them = place.requests()
        for _ in range(POLLS):
            started = time.perf_counter()
            await (await open_source(factory, name, place.spec)).resolve()
            times.append((time.perf_counter() - started) * 1000)
        return times, (place.requests() - before_them) / POLLS
    finally:
        await factory.close()


async def measure(content: str, files: Mapping[str, str]) -> list[dict[str, Any]]:
    """A row for each provider."""
    rows: list[dict[str, Any]] = []
    for name, make in (("git", git), ("oci", oci), ("bucket", bucket)):
        with tempfile.TemporaryDirectory() as folder, make(Path(folder), files) as place:
            fetches = []
            for number in range(FETCHES):
                each = Path(folder) / f"fetch-{number}"
                each.mkdir()
                fetches.append(await measure_fetch(place, name, each))
            times, requests = await measure_polls(place, name, Path(folder) / "polls")
        row: dict[str, Any] = {
            "content": content,
            "provider": name,
            "poll ms": median(times),
            "requests a poll": requests,
        }
        row["first fetch ms"] = median(fetches)
        beside = rows[0] if rows else row
        for figure in ("poll", "first fetch"):
            row[f"{figure} beside git"] = row[f"{figure} ms"] / beside[f"{figure} ms"]
        rows.append(row)
    return rows


def main() -> None:
    """Both contents."""
    rows = []
    for content, files in CONTENTS.items():
        rows += asyncio.run(measure(content, files))
    keep("sources: a look that finds nothing new, and a first fetch", rows)


if __name__ == "__main__":
    main()
