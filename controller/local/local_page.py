"""The page of `flagstaff up`: the flags of this process, and the history of its repository."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from dataclasses import asdict, dataclass, replace
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import orjson

from controller.api import featureflagconfiguration, flagrollout
from controller.api.meta import ObjectKey
from controller.delivery.promotion import promotion_of
from controller.delivery.reach import Reached, ReachTarget, reach, waits_of_others
from controller.delivery.set_reading import read_sets
from controller.delivery.set_state import Reach, SetState, Where
from controller.events.commit_pages import commit_in
from controller.local.flag_commits import MOST_COMMITS, CommitChanges, FlagCommits
from controller.local.local_objects import FLAG_SET, NAME
from controller.page.page_source import (
    UNDELIVERED,
    FlagChange,
    FlagHistory,
    FleetMember,
    LayerPlace,
    ShownEvent,
    ShownSet,
    VariantRates,
    read_fleets,
)
from controller.runtime.cache import Cache
from controller.runtime.clock import now
from evaluator.http.messages import JSON, Request, Response, Streamed
from evaluator.http.routes import Routes
from evaluator.resolving.resolve import CompiledFlagSet, compile_flag_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from controller.api.meta import Resource
    from controller.delivery.actions import Wait
    from controller.delivery.promotion import Promotion
    from controller.local.local_options import LocalOptions
    from controller.runtime.cache import Change
    from evaluator.flags.model import FlagSet
    from evaluator.http.offload import Offload
    from evaluator.resolving.resolution import Resolution


SECONDS: Final = 10
"""Length of an interval."""
KEPT: Final = 60
"""Intervals that are kept."""


@dataclass(frozen=True, slots=True)
class _Interval:
    end: int
    counts: Mapping[tuple[str, str], int]


class EvaluationRates:
    """The evaluations of the last KEPT intervals. `of` may be called in a thread, the rest on the loop."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._intervals: tuple[_Interval, ...] = ()

    def count(self, _query: object, key: str, resolution: Resolution) -> None:
        """Count one evaluation: an `Observer`. Errors are left out: their keys are unlimited."""
        if resolution.error_code is None:
            self._counts[key, resolution.variant or ""] += 1

    def end_interval(self, now: int) -> None:
        """Begin the next interval. now: Unix seconds."""
        self._intervals = (*self._intervals, _Interval(now, self._counts))[-KEPT:]
        self._counts = Counter()

    def of(self, keys: Sequence[str]) -> dict[str, VariantRates]:
        """The rates of those flags that were evaluated."""
        intervals, asked = self._intervals, set(keys)
        seen = {pair for interval in intervals for pair in interval.counts if pair[0] in asked}
        times = tuple(interval.end for interval in intervals)
        rates: dict[str, dict[str, tuple[float, ...]]] = {}
        for key, variant in sorted(seen):
            counts = (interval.counts.get((key, variant), 0) for interval in intervals)
            rates.setdefault(key, {})[variant] = tuple(count * 60 / SECONDS for count in counts)
        return {key: VariantRates(times, by_variant) for key, by_variant in rates.items()}


log = logging.getLogger(__name__)

READ_SECONDS: Final = 30.0
"""Seconds for the history of one revision; what is not read by then is left out."""
SHOW_SECONDS: Final = 0.5
"""Seconds between two moments at which what was read so far is shown."""


class LocalHistory:
    """The commits that changed flags, and where flags are defined. `read` is called in a thread at a time;
    others see what it has read so far.
    """

    def __init__(self, folder: Path | None, options: LocalOptions) -> None:
        """folder: the repository; None: it is elsewhere."""
        self.address = ""
        """The URL of the repository's origin; empty: it has none."""
        self.last_changes: Mapping[str, FlagChange] = MappingProxyType({})
        """The newest change of each flag."""
        self.overlays: tuple[ShownSet, ...] = ()
        """The flags of other environments, named after their folders."""
        self._commits = None if folder is None else FlagCommits(folder, options)
        self._changes: tuple[CommitChanges, ...] = ()
        self._read_from = ""
        self._places: Mapping[str, tuple[LayerPlace, ...]] = MappingProxyType({})
        self._gap = "The history is being read." if folder else "The repository is not on this machine."

    def of(self, key: str) -> FlagHistory:
        """The history of a flag."""
        changes = tuple(commit.of(key) for commit in self._changes if key in commit.lines)
        return FlagHistory(changes, self._places.get(key, ()), self._gap)

    def read(self, commit: str, notify: Callable[[], None]) -> None:
        """Read the history up to a commit, or HEAD; `notify` is called when there is more to show."""
        commits = self._commits
        if commits is None:
            return
        try:
            self.address = commits.origin()
            self._places = MappingProxyType(commits.places(commit))
            self.overlays = tuple(
                ShownSet(folder, flag_set, compile_flag_set(flag_set), title=folder)
                for folder, flag_set in commits.overlays(commit).items()
            )
            self._read_changes(commits, commit, notify)
        except Exception:
            # libgit2 raises several; the page is served without a history then.
            log.exception("the history of flags cannot be read")
            self._gap = "The repository cannot be read."
        notify()

    def _read_changes(self, commits: FlagCommits, commit: str, notify: Callable[[], None]) -> None:
        known, newest = self._changes, ""
        read: list[CommitChanges] = []
        began = shown = monotonic()
        met = False

        def is_known(name: str) -> bool:
            nonlocal met, newest
            newest = newest or name
            met = name == self._read_from
            return met

        self._gap = ""
        with contextlib.closing(commits.read(commit, is_known)) as newer:
            for changes in newer:
                read.append(changes)
                if monotonic() - began > READ_SECONDS or len(read) >= MOST_COMMITS:
                    self._gap = "Earlier commits are not shown."
                    break
                if monotonic() - shown > SHOW_SECONDS:
                    shown = monotonic()
                    self._show((*read, *known))
                    notify()
        self._show((*read, *known) if met else tuple(read))
        self._read_from = newest

    def _show(self, changes: tuple[CommitChanges, ...]) -> None:
        last: dict[str, FlagChange] = {}
        for commit in reversed(changes):
            last |= {key: commit.of(key) for key in commit.lines}
        self._changes, self.last_changes = changes, MappingProxyType(last)


class LocalPage:
    """What the page shows; everybody who reaches the port may see it. Implements PageSource."""

    def __init__(self, options: LocalOptions, folder: Path | None) -> None:
        """folder: the repository, where it is on this machine."""
        self.evaluations = EvaluationRates()
        self.notify: Callable[[], None] = lambda: None
        """Called on the loop after each change."""
        self.stages = Cache()
        """The objects of the stages."""
        self.fleet: Callable[[], object] = dict
        """Returns the answer of `/fleet`."""
        self.follows = ""
        """Whom this process follows, or since when it is cut off; empty: it reads a source itself."""
        self._history = LocalHistory(folder, options)
        self._began, self._changes = int(now().timestamp()), 0
        self._defined: FlagSet | None = None
        self._served: CompiledFlagSet | None = None
        self._overrides: Sequence[Resource] = ()
        self._title = options.paths[-1].rstrip("/").rpartition("/")[2] if options.paths else ""
        self._opened, self._defined_anew = asyncio.Event(), asyncio.Event()

    def define(self, flag_set: FlagSet, overrides: Sequence[Resource]) -> None:
        """Show these flags once they are served; `overrides`: those of the command line that are in force."""
        self._defined, self._overrides = flag_set, overrides
        self._defined_anew.set()

    def open(self) -> None:
        """Read the history from now on: most runs of `flagstaff up` are without a reader of the page."""
        self._opened.set()

    def serve(self, served: CompiledFlagSet) -> None:
        """Show what is served now."""
        self._served = served
        self.change()

    def change(self) -> None:
        """Tell open pages that something has changed."""
        self._changes += 1
        self.notify()

    async def run(self) -> None:
        """Count evaluations, and read the history once the page is opened, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._count())
            tasks.create_task(self._read_history())

    def show_change(self, change: Change) -> Iterable[ObjectKey]:
        """Tell open pages that others serve the flags. Wakes nothing."""
        if change.latest.key.kind == featureflagconfiguration.KIND:
            self.change()
        return ()

    @property
    def version(self) -> str:
        """Another one after each change, and in each process."""
        return f"{self._began}-{self._changes}"

    def sets(self) -> Sequence[str]:
        """The one flag set, once it is known."""
        return () if self._defined is None else (NAME,)

    def shown_set(self, name: str) -> ShownSet | None:
        """The one flag set."""
        defined, served = self._defined, self._served
        if name != NAME or defined is None or served is None:
            return None
        state = next(iter(self.states()), UNDELIVERED)
        revision = state.revision or defined.revision or ""
        changes = self._history.last_changes
        return ShownSet(name, defined, served, revision, self._history.address, changes, state)

    def environments(self, name: str, key: str) -> Sequence[ShownSet]:
        """The set, and what it would be with the other overlays of the repository."""
        shown = self.shown_set(name)
        others = [other for other in self._history.overlays if key in other.flag_set.flags]
        return () if shown is None or not others else (replace(shown, title=self._title), *others)

    def history(self, name: str, key: str) -> FlagHistory:
        """What is known of a flag's history now."""
        del name
        return self._history.of(key)

    def rates(self, name: str, keys: Sequence[str]) -> Mapping[str, VariantRates]:
        """The evaluations of this process."""
        del name
        return self.evaluations.of(keys)

    def states(self) -> Sequence[SetState]:
        """The state of the one flag set, as a cluster's objects would tell it."""
        return [
            replace(state, address=self._history.address)
            for state in read_sets(self._objects(), now(), Where.LOCAL)
        ]

    def other_waits(self) -> Sequence[Wait]:
        """What FlagRollouts and FlagOverrides of files wait for that are about no set."""
        objects = self._objects()
        return [*waits_of_others(objects, read_sets(objects, now(), Where.LOCAL))]

    def _objects(self) -> list[Resource]:
        """The objects of the stages, and the overrides of the command line."""
        return [*self.stages, *self._overrides]

    def events(self) -> Sequence[ShownEvent]:
        """Without a cluster there are none."""
        return ()

    def members(self) -> Mapping[str, Sequence[FleetMember]]:
        """This process, which evaluates, and the evaluators that follow it."""
        return read_fleets((self.fleet(),))

    def promotion(self, rollout: str, revision: str) -> Promotion | None:
        """How far a revision is in a FlagRollout of the files."""
        namespace, _, name = rollout.partition("/")
        known = self.stages.get(ObjectKey(flagrollout.KIND, namespace, name))
        return None if known is None else promotion_of(self.stages, known, revision, now())

    def faults(self) -> Sequence[str]:
        """Nothing is missing: no cluster is asked."""
        return ()

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            self.evaluations.end_interval(int(now().timestamp()))

    async def _read_history(self) -> None:
        loop = asyncio.get_running_loop()

        def notify() -> None:
            loop.call_soon_threadsafe(self.change)

        await self._opened.wait()
        while True:
            await self._defined_anew.wait()
            self._defined_anew.clear()
            revision = "" if self._defined is None else self._defined.revision or ""
            await asyncio.to_thread(self._history.read, commit_in(revision), notify)


def reach_routes(page: LocalPage, offload: Offload) -> Routes:
    """`GET /reach`, which `flagstaff wait --to` asks: how far a revision has come, as JSON."""

    def answer(request: Request) -> Response | Streamed:
        query = dict(parse_qsl(request.query))
        about = query.get("object", "")
        if about not in {f"{one.key.kind}/{one.name}" for one in page.stages}:
            why = f"there is no {about}; the flag set of `flagstaff up` is {FLAG_SET.kind}/{FLAG_SET.name}"
            return Response(404, orjson.dumps({"error": why}), JSON)
        if page.follows and query.get("everybody") == "True":
            why = f"this `flagstaff up` does not know who gets which flags: {page.follows}; ask that one"
            return Response(404, orjson.dumps({"error": why}), JSON)
        return offload.answer(request, JSON, lambda: orjson.dumps(_reach_of(page, query)))

    return Routes(http={("GET", "/reach"): answer})


def _reach_of(page: LocalPage, query: Mapping[str, str]) -> dict[str, Any]:
    target = ReachTarget(
        query.get("revision", ""),
        float(query.get("percent", 100)),
        query.get("allow_none") == "True",
        query.get("everybody") == "True",
        query.get("rollout", ""),
    )
    unknown = Reached(Reach.UNKNOWN, "no flag set is built yet")
    states = page.states()
    reached = reach(states[0], target) if states else unknown
    if page.follows:
        reached = replace(reached, message=f"{reached.message}; {page.follows}")
    return {**asdict(reached), "level": reached.level.name}
