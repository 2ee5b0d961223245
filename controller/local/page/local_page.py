"""The page of `flagstaff up`: the flags of this process, and the history of its repository."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from controller.api.flagset_status import FlagSetStatus
from controller.api.objects.conditions import READY
from controller.api.openfeature import featureflagconfiguration
from controller.delivery.state.set_reading import read_sets
from controller.delivery.state.set_state import Where
from controller.delivery.state.waits import waits_of_others
from controller.events.alerts.commit_pages import commit_in
from controller.local.page.evaluation_rates import SECONDS, EvaluationRates
from controller.local.page.local_history import LocalHistory
from controller.local.stages.local_objects import FLAG_SET, NAME, NAMESPACE
from controller.page.delivery.proxy_members import FleetMember
from controller.page.page_source import UNDELIVERED, ShownSet
from controller.runtime.clock import now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from controller.api.objects.meta import Resource
    from controller.delivery.state.set_state import SetState
    from controller.delivery.state.wait_model import Wait
    from controller.local.local_options import LocalOptions
    from controller.page.delivery.shown_events import ShownEvent
    from controller.page.page_source import FlagHistory, VariantRates
    from evaluator.flags.model import FlagSet
    from evaluator.resolving.resolve import CompiledFlagSet


class LocalPage:
    """What the page shows; everybody who reaches the port may see it. Implements PageSource."""

    def __init__(self, options: LocalOptions, folder: Path | None) -> None:
        """folder: the repository, where it is on this machine."""
        self.evaluations = EvaluationRates()
        self.notify: Callable[[], None] = lambda: None
        """Called on the loop after each change."""
        self.stages: Iterable[Resource] = ()
        """The objects of the stages."""
        self._history = LocalHistory(folder, options)
        self._began, self._changes = int(now().timestamp()), 0
        self._defined: FlagSet | None = None
        self._served: CompiledFlagSet | None = None
        self._served_since: datetime | None = None
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
        self._served, self._served_since = served, now()
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
        """The objects of the stages. Without rollouts, the one that delivers the flags gets the status that a
        controller would give it.
        """
        flag_set = next((resource for resource in self.stages if resource.key == FLAG_SET), None)
        served = None if self._served is None else self._served.flag_set
        status = {} if served is None or flag_set is None else _configuration_status(flag_set, served)
        delivering = featureflagconfiguration.KIND
        return [
            replace(resource, status={**status, "observedGeneration": resource.generation})
            if resource.key.kind == delivering and not resource.status
            else resource
            for resource in (*self.stages, *self._overrides)
        ]

    def events(self) -> Sequence[ShownEvent]:
        """Without a cluster there are none."""
        return ()

    def members(self) -> Mapping[str, Sequence[FleetMember]]:
        """This process, which evaluates."""
        if self._served is None:
            return {}
        served = self._served.flag_set.revision or ""
        return {f"{NAMESPACE}/{NAME}": (FleetMember("this process", served, since=self._served_since),)}

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


def _configuration_status(flag_set: Resource, served: FlagSet) -> dict[str, Any]:
    """The status of what a FlagSet has written, which this process serves."""
    status = FlagSetStatus.of(flag_set)
    ready = {"type": READY, "status": "True", "reason": "Served", "message": "This process serves it."}
    return {
        "revision": served.revision,
        "digest": status.digest,
        "served": "1/1",
        "total": 1,
        "conditions": [ready],
    }
