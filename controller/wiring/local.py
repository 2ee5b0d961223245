"""Local mode: the stages wired by hand, without Kubernetes.

Local mode is source → artifact → flag set → evaluator in one process. Each stage still hands the next an artefact on disk, so
that what a restart finds is what a stage left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from controller.artifacts.archive import pack, unpack
from controller.artifacts.durable import as_failed
from controller.artifacts.storage import Storage
from controller.flagsets.compose import Composition, FailurePolicy, Provenance, compose
from controller.flagsets.lastgood import LastGood, Saved
from controller.runtime.setbacks import Setback
from controller.sources.git import open_source
from evaluator.flags.model import DIGEST_KEY, Bucketing
from evaluator.wiring import (
    Exchange,
    Heap,
    InvalidSettingError,
    Ports,
    Settings,
    Store,
    from_env,
    serve,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from controller.sources.source import Commit, Revision, Source
    from evaluator.flags import FlagSet

__all__ = [
    "FailurePolicy",
    "InvalidSettingError",
    "Local",
    "LocalEvent",
    "LocalOptions",
    "Pipeline",
    "Ports",
    "Restored",
    "RevisionBuilt",
    "SourceDown",
    "SourceUp",
    "build_once",
    "evaluator_settings",
    "now",
    "open_local",
    "open_pipeline",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """What `flagstaff up` is told."""

    source: str
    reference: str | None = None
    paths: tuple[str, ...] = (".",)
    interval: float = 10.0
    """Seconds between looks at a remote."""
    lenient: bool = False
    """Warnings do not hold a flag back."""
    policy: FailurePolicy = FailurePolicy.PER_FLAG
    bucketing: Bucketing = Bucketing.V2
    show_bucketing: bool = False
    """Name the generation of `fractional` in every answer's metadata."""
    state_dir: Path | None = None
    """Where mirror, artifacts and last good outlive the process; None: a temporary folder."""


@dataclass(frozen=True, slots=True)
class RevisionBuilt:
    """A new revision went through every stage; `composition.accepted` says whether it is served."""

    commit: Commit
    composition: Composition


@dataclass(frozen=True, slots=True)
class SourceDown:
    """The source cannot be read; what is served stays."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SourceUp:
    """The source can be read again."""

    message: str


@dataclass(frozen=True, slots=True)
class Restored:
    """The last good flag set was read back from disk, before the source answered."""

    saved: Saved


LocalEvent: TypeAlias = RevisionBuilt | SourceDown | SourceUp | Restored


def now() -> datetime:
    """The wall clock in UTC: the one place of the controller that reads it."""
    return datetime.now(UTC)  # noqa: TID251 - wiring reads the clock for everyone else


@dataclass
class Pipeline:
    """The three stages of one source and one flag set, a pass at a time."""

    source: Source
    storage: Storage
    last_good: LastGood
    options: LocalOptions
    shown: str
    """The source as people may see it: without a name, password or token."""
    flag_set: FlagSet | None = None
    tried: Revision | None = field(default=None, init=False)
    """The revision that the source was at when last asked, whatever became of it."""
    _built: Revision | None = field(default=None, init=False)
    _kept: bool = field(default=True, init=False)
    """False while the disk lacks the last good flag set."""

    def restore(self) -> Saved | None:
        """Take up the last good flag set from disk, if there is one."""
        saved = self.last_good.load()
        if saved is not None:
            self.flag_set = saved.flag_set
        return saved

    async def advance(self) -> RevisionBuilt | None:
        """One pass; None where the source still is at the revision that was built last. Raises Setback."""
        self.tried = revision = await self.source.resolve()
        if revision == self._built:
            await self._keep()
            return None
        commit, tree = await self._artifact(revision)
        provenance = Provenance(
            str(commit.revision), commit.author, commit.committed_at.isoformat()
        )
        composition = await asyncio.to_thread(
            compose,
            tree,
            self.options.paths,
            provenance=provenance,
            previous=self.flag_set,
            policy=self.options.policy,
            lenient=self.options.lenient,
            skipped=commit.skipped,
        )
        self._built = revision
        if composition.accepted:
            self.flag_set = composition.flag_set
            self._kept = False
        await self._keep()
        return RevisionBuilt(commit, composition)

    async def _artifact(self, revision: Revision) -> tuple[Commit, dict[str, bytes]]:
        """Stages 1 and 2; what stage 3 reads has been through the archive, as it will be in a cluster."""
        try:
            folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="flagstaff-tree-"))
        except OSError as error:
            raise as_failed(error, f"a folder for the files of {revision}") from error
        try:
            commit = await self.source.fetch(revision, folder)
            archive = await asyncio.to_thread(pack, folder)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        artifact = await asyncio.to_thread(
            self.storage.put,
            archive,
            revision=str(commit.revision),
            author=commit.author,
            committed_at=commit.committed_at.isoformat(),
            subject=commit.subject,
        )
        stored = await asyncio.to_thread(self.storage.open, artifact)
        return commit, await asyncio.to_thread(unpack, stored)

    async def _keep(self) -> None:
        """Save the last good flag set unless it is; a disk that refuses is asked again at the next pass."""
        if self._kept or self.flag_set is None:
            return
        try:
            await asyncio.to_thread(self.last_good.save, self.flag_set, now())
        except Setback as setback:
            log.warning("last good was not saved: %s", setback.message)
        else:
            self._kept = True


@contextlib.asynccontextmanager
async def open_pipeline(options: LocalOptions) -> AsyncIterator[Pipeline]:
    """The stages over a state folder, which is removed afterwards where none was named."""
    temporary = options.state_dir is None
    root = options.state_dir or Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="flagstaff-"))
    try:
        source = open_source(
            options.source,
            reference=options.reference,
            mirror_root=root / "mirrors",
            interval=options.interval,
            paths=options.paths,
        )
        try:
            yield Pipeline(
                source=source,
                shown=source.location.shown,
                storage=Storage(root / "artifacts"),
                last_good=LastGood(root / "flagset.json"),
                options=options,
            )
        finally:
            # The threads that wait for git would have the whole process wait.
            source.programs.end()
    finally:
        if temporary:
            await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)


async def build_once(options: LocalOptions) -> RevisionBuilt:
    """One pass without serving. Raises Setback where the source cannot be read."""
    async with open_pipeline(options) as pipeline:
        pipeline.restore()
        built = await pipeline.advance()
        if built is None:
            raise RuntimeError("a first pass always builds")
        return built


@dataclass
class Local:
    """`flagstaff up`: a pipeline whose flag sets an evaluator in this process serves."""

    pipeline: Pipeline
    exchange: Exchange
    heap: Heap
    tell: Callable[[LocalEvent], None]
    _down: tuple[str, Revision | None] | None = field(default=None, init=False)
    """What was told of a source that is down: the reason, and the revision that it was at."""

    async def run(self) -> None:
        """Follow the source until cancelled."""
        saved = await asyncio.to_thread(self.pipeline.restore)
        if saved is not None:
            digest = saved.flag_set.metadata.get(DIGEST_KEY)
            await self.exchange.put(saved.flag_set, digest=str(digest or "") or None)
            self.exchange.store.mark_from_disk(saved.saved_at.timestamp())
            self.tell(Restored(saved))
        async for _ in self.pipeline.source.changes():
            await self._look()

    async def _look(self) -> None:
        try:
            with self.heap.growing():
                built = await self.pipeline.advance()
        except Setback as setback:
            self._source_down(setback)
            await self.exchange.restate()
            return
        if self._down is not None:
            self._down = None
            self.tell(SourceUp("the source can be read again"))
        moment = now().timestamp()
        self.exchange.store.mark_success(moment)
        if built is None:
            await self.exchange.restate()
            return
        if built.composition.accepted:
            made = built.composition
            await self.exchange.put(made.flag_set, digest=made.digest)
        await self.exchange.restate()
        self.tell(built)

    def _source_down(self, setback: Setback) -> None:
        self.exchange.store.mark_stale(setback.message, now().timestamp())
        down = (setback.reason, self.pipeline.tried)
        if down != self._down:
            self._down = down
            self.tell(SourceDown(setback.reason, setback.message))


@contextlib.asynccontextmanager
async def open_local(
    options: LocalOptions, settings: Settings, tell: Callable[[LocalEvent], None]
) -> AsyncIterator[tuple[Local, Ports]]:
    """Ports open and stages wired; run the Local to follow the source."""
    async with open_pipeline(options) as pipeline:
        store = Store(
            bucketing=options.bucketing,
            expose_bucketing=options.show_bucketing,
            sources=(pipeline.shown,),
        )
        heap = Heap()
        exchange = Exchange(store, lambda: now().timestamp(), heap)
        serving = await serve(store, settings)
        try:
            yield Local(pipeline, exchange, heap, tell), serving.ports
        finally:
            await serving.stop()


def evaluator_settings(*, host: str, **ports: int | None) -> Settings:
    """The environment's settings (FLAGD_*) under what the command line says: None is unsaid. Raises InvalidSettingError."""
    said: dict[str, Any] = {name: port for name, port in ports.items() if port is not None}
    return replace(from_env(os.environ), host=host, **said)
