"""Determines which files of other FlagSources a FlagSource includes: of which artifact, and where they go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api.artifact_status import ArtifactStatus
from controller.api.flagsource import (
    INCLUDE_LIMIT,
    KIND,
    FlagSourceSpec,
    FlagSourceStatus,
    Include,
    IncludedArtifact,
)
from controller.api.meta import ObjectKey, Resource
from controller.api.parsing import of_files
from controller.api.status import FALSE, READY, Condition
from controller.artifacts.archive import DEFAULT_LIMITS, ArchiveLimits, ArchiveRefused, take_skipped, unpack
from controller.runtime.setbacks import Failed, Setback, Stalled, Waiting
from controller.runtime.watches import cycle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pathspec import GitIgnoreSpec

    from controller.artifacts.storage import Storages
    from controller.runtime.cache import Cache

INCLUDES_READY: Final = "IncludesReady"
"""A condition that is there only while it is False."""
_GONE: Final = 15.0
"""Seconds: a source that lost its storage stores the same artifact again, which its status does not show."""


@dataclass(frozen=True, slots=True)
class Included:
    """An entry of `spec.include`, and the current artifact of its source."""

    include: Include
    source: Resource
    artifact: IncludedArtifact


ReadElsewhere = Callable[[Included], Awaitable[bytes | None]]
"""Returns the archive of an included source of another shard; None: it is of this one. Raises Setback."""
ReadArtifact = Callable[[str, ArtifactStatus], Awaitable[bytes]]
"""(namespace, artifact) -> its archive, from whoever serves it. Raises Setback."""


async def read_artifact(included: Included, read: ReadArtifact) -> bytes:
    """The archive of an included source of another shard. Raises Waiting."""
    artifact = FlagSourceStatus.of(included.source).artifact
    assert artifact is not None  # noqa: S101 - see find_included
    try:
        return await read(included.source.namespace, artifact)
    except Setback as setback:
        message = f"FlagSource {included.source.name}: {setback.message}"
        raise Waiting("IncludeUnavailable", message, delay=_GONE) from setback


def included_names(source: Resource) -> Iterator[str]:
    """The names in `spec.include`, as far as it can be read."""
    include = source.spec.get("include")
    for entry in include[:INCLUDE_LIMIT] if isinstance(include, list) else ():
        reference = entry.get("repository") if isinstance(entry, dict) else None
        if isinstance(reference, dict):
            yield str(reference.get("name"))


def find_included(resource: Resource, spec: FlagSourceSpec, objects: Cache) -> tuple[Included, ...]:
    """The sources that `spec` includes. Raises Stalled, or Waiting until each has an artifact."""
    if names := cycle(resource, objects, included_names) if spec.include else []:
        raise Stalled("IncludeCycle", f"these FlagSources include each other: {' → '.join(names)}")
    included = []
    for entry in spec.include:
        title = f"FlagSource {entry.repository.name}"
        source = objects.get(ObjectKey(KIND, resource.namespace, entry.repository.name))
        if source is None:
            message = f"{title} does not exist; create it, or correct spec.include"
            raise Waiting("IncludeUnavailable", message)
        status = FlagSourceStatus.of(source)
        if status.artifact is None:
            raise Waiting("IncludeUnavailable", f"{title} has no artifact yet{status.why}")
        if spec.verify is not None and not status.observed_verification:
            # To readers of this source's artifact all of it is signed.
            message = (
                f"{title} is not verified, and this source is; set its spec.verify, or do not include it"
            )
            raise Stalled("IncludeUnverified", message)
        artifact = IncludedArtifact.model_validate(status.artifact.model_dump())
        included.append(Included(entry, source, artifact))
    return tuple(included)


def include_health(includes: Iterable[Included]) -> tuple[Condition, ...]:
    """Return `IncludesReady` as False if an included source fails or is suspended."""
    for included in includes:
        status = FlagSourceStatus.of(included.source)
        title = f"FlagSource {included.source.name}"
        if included.source.suspended:
            message = f"{title} is suspended; its last artifact is included"
            return (Condition(INCLUDES_READY, FALSE, "SourceSuspended", message),)
        if status.condition(READY).status == FALSE:
            message = f"{title} is not ready; its last artifact is included{status.why}"
            return (Condition(INCLUDES_READY, FALSE, "SourceFailed", message),)
    return ()


async def copy_included(
    folder: Path,
    includes: Iterable[Included],
    stores: Storages,
    protected: Iterable[Iterable[str]] = (),
    limits: ArchiveLimits = DEFAULT_LIMITS,
    elsewhere: ReadElsewhere | None = None,
) -> tuple[str, ...]:
    """Write the files of `includes` below `folder`, which holds the source's own. Returns what those sources
    left out, as `Fetched.skipped` has it. `protected`: the paths of each of `spec.verify.rules`.
    `elsewhere`: reads the artifacts of sources of other shards.

    Raises Stalled for a file that is there already or that a rule names, and for a folder that is not there;
    Waiting where an artifact is not in storage; ArchiveRefused beyond the `limits` of all included files;
    Failed, OSError.
    """
    copying = _Copying(folder, tuple(map(of_files, protected)), limits)
    for included in includes:
        archive = None if elsewhere is None else await elsewhere(included)
        if archive is None:
            archive = await asyncio.to_thread(_archive, included, stores)
        await asyncio.to_thread(copying.take, included, archive)
    return tuple(copying.skipped)


class _Copying:
    def __init__(self, folder: Path, protected: tuple[GitIgnoreSpec, ...], limits: ArchiveLimits) -> None:
        self._folder = folder
        self._protected = protected
        self._limits = limits
        self._files = self._bytes = 0
        self.skipped: list[str] = []

    def take(self, included: Included, archive: bytes) -> None:
        title = f"FlagSource {included.source.name}"
        files = unpack(archive)
        skipped = take_skipped(files)
        start = f"{included.include.source_folder}/".lstrip("/")
        under = {name.removeprefix(start): text for name, text in files.items() if name.startswith(start)}
        if start and not under:
            message = (
                f"{title} has no folder {start[:-1]} with files; correct spec.include.fromPath, or add one"
            )
            raise Stalled("IncludeUnavailable", message)
        self._files += len(under)
        self._bytes += sum(map(len, under.values()))
        limits = self._limits
        if self._files > limits.files or self._bytes > limits.bytes:
            over = f"over {limits.files} files or {limits.bytes} bytes"
            raise ArchiveRefused(f"with {title} the included files are {over}")
        target = included.include.target_folder
        for name, content in under.items():
            self._write(f"{target}/{name}".lstrip("/"), content, title)
        self.skipped += [
            f"{target}/{entry.removeprefix(start)}".lstrip("/")
            for entry in skipped
            if entry.startswith(start)
        ]

    def _write(self, name: str, content: bytes, title: str) -> None:
        path = self._folder / name
        if any(rule.match_file(name) for rule in self._protected):
            # Its signers were asked for by the rules of its own source, if by any.
            message = (
                f"{title} brings {name}, which spec.verify.rules name, and they judge no included files; "
                "give its include another toPath, or leave that path out of the rules"
            )
            raise Stalled("IncludeUnverified", message)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(content)
        except (FileExistsError, NotADirectoryError):
            message = (
                f"{name} is there already, and {title} has it, too; give its include another toPath, "
                "or remove one of them"
            )
            raise Stalled("IncludeConflict", message) from None


def _archive(included: Included, stores: Storages) -> bytes:
    storage = stores.of(included.source.key)
    known = storage.find(included.artifact.digest)
    try:
        if known is not None:
            return storage.open(known)
    except Failed as failed:
        if failed.reason not in {"ArtifactGone", "ArtifactDamaged"}:
            raise
    message = (
        f"the artifact of FlagSource {included.source.name} is not in storage; waiting until it is again"
    )
    raise Waiting("IncludeUnavailable", message, delay=_GONE)
