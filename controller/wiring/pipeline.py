"""Source → artifact → flag set without Kubernetes, a pass at a time.

Each stage still hands the next an artefact on disk, so that what a restart finds is what a stage left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from controller.api.provenance import AUTHOR, COMMITTED_AT
from controller.artifacts.archive import pack, unpack
from controller.artifacts.durable import as_failed
from controller.artifacts.storage import Storage
from controller.flagsets.compose import Composition, FailurePolicy, Provenance, compose
from controller.flagsets.lastgood import LastGood, Saved
from controller.flagsets.provenance import ProvenanceDetail
from controller.flagsets.prune_guard import BulkRemoval, bulk_removal, held
from controller.runtime.clock import now
from controller.runtime.setbacks import Setback
from controller.sources.git.provider import open_source
from controller.wiring.advice import with_advice
from controller.wiring.state import Identity, state_folder
from evaluator.flags.model import Bucketing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from controller.sources.git.blame import Blame
    from controller.sources.git.provider import GitProvider
    from controller.sources.provider import Fetched, Revision
    from evaluator.flags import FlagSet
    from evaluator.flags.problems import Problem

_BLAMED: Final = 5
"""Problems of one revision whose lines are looked up; each takes a run of git."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """What a verb that builds a flag set was given on the command line."""

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
    provenance: ProvenanceDetail = ProvenanceDetail.FULL
    """What every answer's metadata tells of its commit."""
    prune_guard: bool = False
    """Refuse a revision that removes flags in bulk, instead of warning about it."""
    state_dir: Path | None = None
    """Where mirror, artifacts and last good outlive the process; None: a temporary folder."""


@dataclass(frozen=True, slots=True)
class RevisionBuilt:
    """A new revision went through every stage; `composition.accepted` says whether it is served."""

    commit: Fetched
    composition: Composition
    serving: bool
    """Whether there is a flag set to serve now: this revision's or, where it was refused, an earlier one's."""
    removal: BulkRemoval | None = None
    """What it removes, where that is most of the flags."""
    blames: Mapping[Problem, Blame] = field(default_factory=lambda: MappingProxyType({}))
    """Who last changed the line of a problem, for the first of them, as far as that is known."""


@dataclass
class Pipeline:
    """The stages of one source and one flag set."""

    source: GitProvider
    storage: Storage
    last_good: LastGood
    options: LocalOptions
    flag_set: FlagSet | None = None
    tried: Revision | None = field(default=None, init=False)
    """The revision that the source was at when last asked, whatever became of it."""
    _built: Revision | None = field(default=None, init=False)
    _kept: bool = field(default=True, init=False)
    """False while the disk lacks the last good flag set."""

    @property
    def shown(self) -> str:
        """The source as people may see it: without a name, password or token."""
        return self.source.location.shown

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
            str(commit.revision), commit.metadata.get(AUTHOR, ""), commit.metadata.get(COMMITTED_AT, "")
        )
        composition = await asyncio.to_thread(
            compose,
            tree,
            self.options.paths,
            provenance=provenance.limited(self.options.provenance),
            previous=self.flag_set,
            policy=self.options.policy,
            lenient=self.options.lenient,
            skipped=commit.skipped,
        )
        composition = await self._advised(composition, revision)
        removal = bulk_removal(self.flag_set, composition.flag_set)
        if removal is not None and self.flag_set is not None and self.options.prune_guard:
            composition = held(composition, removal, self.flag_set)
        self._built = revision
        if composition.accepted:
            self.flag_set = composition.flag_set
            self._kept = False
        await self._keep()
        return RevisionBuilt(commit, composition, self.flag_set is not None, removal)

    async def blamed(self, built: RevisionBuilt) -> RevisionBuilt:
        """The same with who last changed the lines of its first problems."""
        placed = [problem for problem in built.composition.problems if problem.line][:_BLAMED]
        found = {
            problem: await self.source.blame(built.commit.revision, problem.file, problem.line)
            for problem in placed
        }
        known = {problem: blame for problem, blame in found.items() if blame is not None}
        return replace(built, blames=MappingProxyType(known))

    async def read(self) -> tuple[Fetched, Mapping[str, bytes]]:
        """The source's revision and its files, as far as the paths could match them. Raises Setback."""
        return await _fetched(self.source, await self.source.resolve())

    async def _artifact(self, revision: Revision) -> tuple[Fetched, dict[str, bytes]]:
        """Stages 1 and 2; what stage 3 reads has been through the archive, as it will be in a cluster."""
        commit, archive = await _packed(self.source, revision)
        artifact = await asyncio.to_thread(
            self.storage.put, archive, revision=str(commit.revision), metadata=commit.metadata
        )
        stored = await asyncio.to_thread(self.storage.open, artifact)
        return commit, await asyncio.to_thread(unpack, stored)

    async def _advised(self, composition: Composition, revision: Revision) -> Composition:
        """Where a path matched nothing: with advice from the whole tree, of which only matches were read."""
        if not any(problem.code == "path-not-found" for problem in composition.problems):
            return composition
        try:
            _, tree = await _fetched(replace(self.source, paths=()), revision)
        except Setback:
            return composition
        return with_advice(composition, tree)

    async def _keep(self) -> None:
        """Save the last good flag set unless it is; a disk that refuses is asked again at the next pass."""
        if self._kept or self.flag_set is None:
            return
        try:
            await asyncio.to_thread(self.last_good.save, self.flag_set, now())
        except Setback as setback:
            log.warning("the last good flag set was not saved: %s", setback.message)
        else:
            self._kept = True


async def _packed(source: GitProvider, revision: Revision) -> tuple[Fetched, bytes]:
    try:
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="flagstaff-tree-"))
    except OSError as error:
        raise as_failed(error, f"creating a folder for the files of {revision}") from error
    try:
        commit = await source.fetch(revision, folder)
        return commit, await asyncio.to_thread(pack, folder)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _fetched(source: GitProvider, revision: Revision) -> tuple[Fetched, dict[str, bytes]]:
    commit, archive = await _packed(source, revision)
    return commit, await asyncio.to_thread(unpack, archive)


@contextlib.asynccontextmanager
async def open_pipeline(options: LocalOptions) -> AsyncIterator[Pipeline]:
    """The stages over a state folder, which is removed afterwards where none was named. Raises Setback."""
    source = open_source(
        options.source,
        reference=options.reference,
        mirror_root=Path(),
        interval=options.interval,
        paths=options.paths,
    )
    # A URL's query may hold a token, which must not be written to disk.
    identity = Identity(source.location.url.partition("?")[0], options.reference, options.paths)
    held = contextlib.ExitStack()
    root = await asyncio.to_thread(held.enter_context, state_folder(options.state_dir, identity))
    try:
        yield Pipeline(
            source=replace(source, mirror_root=root.absolute() / "mirrors"),
            storage=Storage(root / "artifacts"),
            last_good=LastGood(root / "flagset.json"),
            options=options,
        )
    finally:
        await asyncio.to_thread(held.close)


async def build_once(options: LocalOptions) -> RevisionBuilt:
    """One pass without serving. Raises Setback where the source cannot be read."""
    async with open_pipeline(options) as pipeline:
        pipeline.restore()
        built = await pipeline.advance()
        if built is None:
            raise RuntimeError("a first pass always builds")
        return built
