"""What verbs watch in a cluster: objects, states of flag sets, and the effect of what they wrote."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from controller.api import featureflagconfiguration, flagrollout, flagset
from controller.api.kinds import FEATURE_FLAG_CONFIGURATION, FLAG_ROLLOUT, FLAG_SET
from controller.api.meta import ObjectKey, Resource
from controller.cli.connection import ClusterConnection, open_connection
from controller.cli.printing import did_you_mean
from controller.delivery.overrides import set_name
from controller.delivery.reach import Reached, ReachTarget, reach
from controller.delivery.set_reading import STATE_KINDS, by_member, read_sets, set_named
from controller.delivery.set_state import Reach, SetState
from controller.kube.reflector import Reflector
from controller.kube.reflector import WatchScope as Watched
from controller.runtime.cache import Cache
from controller.runtime.clock import now
from controller.runtime.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from controller.api.kind import ResourceType
    from controller.cli.clusters import ClusterScope


_LOOK: Final = 0.5
"""Seconds from one look at whether the cluster can be read to the next."""
_SHORT_LOOK: Final = 0.2
PATIENCE: Final = 10.0
"""Seconds for a cluster's first answer."""
RETRIES: Final = 2.0
"""Seconds in which a cluster that refuses is asked again."""


@dataclass
class ClusterView:
    """What the watches sent; `changed` is set by each change. Implements the Reflector's `Sink`."""

    objects: Cache = field(default_factory=Cache)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    fault: Callable[[], str] = lambda: ""
    """Why the objects cannot be seen now, or empty."""
    _listed: set[str] = field(default_factory=set)

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        """Add or replace an object."""
        self.objects.put(Resource.of({**body, "kind": kind}))
        self.changed.set()

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Remove an object."""
        self.objects.forget(ObjectKey(kind, namespace, name))
        self.changed.set()

    def end_listing(self, kind: str, namespace: str) -> None:
        """Note that all objects of a kind were sent."""
        del namespace
        self._listed.add(kind)
        self.changed.set()

    async def wait(self, seconds: float) -> None:
        """Wait for a change, for some seconds at most."""
        # `asyncio.wait_for` of Python 3.11 loses a Ctrl-C that arrives together with a change.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.changed.wait()
        self.changed.clear()

    async def wait_for(self, kind: str) -> None:
        """Until all of a kind were listed. Raises Failed where that takes too long."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while not self.knows(kind):
            if clock() - began > (RETRIES if self.fault() else PATIENCE):
                raise Failed("ApiServerFailed", self.fault() or "no answer in time")
            await self.wait(_SHORT_LOOK)

    def knows(self, *kinds: str) -> bool:
        """Return whether all of these kinds were listed."""
        return self._listed >= set(kinds)

    def states(self) -> dict[ObjectKey, SetState]:
        """Return the states of all flag sets, by object and by FlagSet."""
        unknown = [kind for kind in STATE_KINDS if not self.knows(kind)]
        resources = [resource for kind in self._listed for resource in self.objects.of_kind(kind)]
        return by_member(read_sets(resources, now(), unknown=unknown))

    def of_kind(self, kind: str) -> list[Resource]:
        """Return all objects of a kind, by namespace and name."""
        return sorted(self.objects.of_kind(kind), key=lambda resource: resource.key)


_View = TypeVar("_View", bound=ClusterView)


@contextlib.asynccontextmanager
async def open_view(
    scope: ClusterScope, types: tuple[ResourceType, ...], view: _View
) -> AsyncIterator[tuple[_View, ClusterConnection]]:
    """`view`, kept up to date, and the connection over which it is. Raises ConfigException, Exit."""
    async with open_connection(scope) as connection, update_view(connection, types, view):
        yield view, connection


@contextlib.asynccontextmanager
async def update_view(
    connection: ClusterConnection, types: tuple[ResourceType, ...], view: _View
) -> AsyncIterator[_View]:
    """`view`, kept up to date over a connection."""
    reflectors = [
        Reflector(connection.cluster.api, Watched(type_, connection.namespace), view) for type_ in types
    ]
    tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
    # The command prints the fault once; a logger without configuration would print it again for each kind.
    watcher = logging.getLogger(Reflector.__module__)
    level = watcher.level
    watcher.setLevel(logging.ERROR)
    try:
        view.fault = lambda: next((reflector.fault for reflector in reflectors if reflector.fault), "")
        yield view
    finally:
        watcher.setLevel(level)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class WaitSubject:
    """The object and the state to wait for."""

    kind: str
    """FeatureFlagConfiguration, FlagSet or FlagRollout."""
    name: str
    wanted: ReachTarget


@dataclass(frozen=True, slots=True)
class Waited:
    """How far the subject has come."""

    reached: Reached
    state: SetState | None = None
    """The state of its flag set; None: it is not there, or not known."""


async def wait_served(
    scope: ClusterScope,
    subject: WaitSubject,
    timeout: float,  # noqa: ASYNC109 - the command's own, which ends in an answer
    say: Callable[[Reached], None],
) -> Waited:
    """Until it is served, or cannot be without a person, or `timeout` seconds are over; `say` is called
    whenever something else is to be said. Raises Failed where the cluster cannot be read at the end.
    """
    kinds: tuple[ResourceType, ...] = (FEATURE_FLAG_CONFIGURATION, FLAG_SET)
    if subject.wanted.everybody:
        kinds = (*kinds, FLAG_ROLLOUT)
    async with open_view(scope, kinds, ClusterView()) as (view, connection):
        namespace = connection.namespace
        last = state_of(view, namespace, subject)
        said = last.reached
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not (last.reached.done or last.reached.blocked):
                    await view.wait(_LOOK)
                    last = state_of(view, namespace, subject)
                    following = last.reached
                    if fault := view.fault():
                        message = f"the cluster cannot be read: {fault}; trying again"
                        following = Reached(Reach.UNKNOWN, message)
                    if following != said:
                        say(following)
                        said = following
        if view.fault() and not last.reached.done:
            raise Failed("ApiServerFailed", view.fault())
        return last


def state_of(view: ClusterView, namespace: str, subject: WaitSubject) -> Waited:
    """Return how far the revision of `subject` has come, by what `view` has."""
    kinds = {featureflagconfiguration.KIND, flagset.KIND, subject.kind}
    if not view.knows(*kinds):
        return Waited(Reached(Reach.UNKNOWN, "the cluster has not answered yet"))
    kind, name = subject.kind, subject.name
    if kind == flagrollout.KIND:
        rollout = view.objects.get(ObjectKey(kind, namespace, name))
        kind, name = ("", "") if rollout is None else ("", set_name(rollout))
    state = set_named(view.states().values(), kind, name)
    if state is None:
        return Waited(_missing(view, namespace, subject))
    return Waited(reach(state, subject.wanted), state)


def _missing(view: ClusterView, namespace: str, subject: WaitSubject) -> Reached:
    """The object may be created later, so a wrong name is no error yet: similar ones are suggested."""
    names = [resource.name for resource in view.of_kind(subject.kind)]
    if subject.name in names:
        message = f"the flag set of {subject.kind} {subject.name} does not exist yet"
        return Reached(Reach.UNKNOWN, message)
    hint = did_you_mean(subject.name, names)
    return Reached(Reach.UNKNOWN, f"{subject.kind} {subject.name} is not in namespace {namespace} yet{hint}")
