"""What verbs watch in a cluster: objects, states of flag sets, and the effect of what they wrote."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api import featureflagconfiguration, flagrollout, flagset
from controller.api.kinds import FEATURE_FLAG_CONFIGURATION, FLAG_ROLLOUT, FLAG_SET
from controller.api.meta import ObjectKey, Resource
from controller.cli.connection import ClusterConnection, open_connection
from controller.cli.printing import did_you_mean
from controller.delivery.overrides import set_name
from controller.delivery.reach import Reached, ReachTarget, reach
from controller.delivery.rollout_state import has_promoted
from controller.delivery.set_reading import STATE_KINDS, by_member, read_sets, set_named
from controller.delivery.set_state import Reach, SetState
from controller.kube.reflector import Reflector, WatchScope, reflectors_of
from controller.runtime.cache import Cache
from controller.runtime.clock import now
from controller.runtime.informer import Informer, Transform, transforms_of
from controller.runtime.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping

    from controller.api.kind import ResourceType
    from controller.cli.clusters import ClusterScope


_POLL_SECONDS: Final = 0.5
"""Seconds from one look at whether the cluster can be read to the next."""
_SHORT_POLL_SECONDS: Final = 0.2
LIST_TIMEOUT: Final = 10.0
"""Seconds for a cluster's first answer."""
RETRIES: Final = 2.0
"""Seconds in which a cluster that refuses is asked again."""


class ClusterView:
    """What the watches sent of some kinds in one namespace, or in all."""

    def __init__(
        self,
        types: Collection[ResourceType],
        namespace: str = "",
        transforms: Mapping[str, Transform] | None = None,
    ) -> None:
        """`transforms`: see Informer; None: objects are kept whole."""
        self.types = types
        self.changed = asyncio.Event()
        """Set by each change."""
        self.fault: Callable[[], str] = lambda: ""
        """Returns why the objects cannot be seen now, or nothing."""
        self.objects = Cache()
        self.informer = Informer(self.objects, transforms or transforms_of(types))
        self.objects.react(lambda _: self.changed.set())
        self.informer.react_to_list(self.changed.set)
        self._namespace = namespace

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
            if clock() - began > (RETRIES if self.fault() else LIST_TIMEOUT):
                raise Failed("ApiServerFailed", self.fault() or "no answer in time")
            await self.wait(_SHORT_POLL_SECONDS)

    def knows(self, *kinds: str) -> bool:
        """Return whether all of these kinds were listed."""
        return self.informer.has_listed(kinds, (self._namespace,))

    def states(self) -> dict[ObjectKey, SetState]:
        """Return the states of all flag sets, by object and by FlagSet."""
        unknown = [kind for kind in STATE_KINDS if not self.knows(kind)]
        listed = [type_.kind for type_ in self.types if self.knows(type_.kind)]
        resources = [resource for kind in listed for resource in self.objects.of_kind(kind)]
        return by_member(read_sets(resources, now(), unknown=unknown))

    def of_kind(self, kind: str) -> list[Resource]:
        """Return all objects of a kind, by namespace and name."""
        return sorted(self.objects.of_kind(kind), key=lambda resource: resource.key)


@contextlib.asynccontextmanager
async def open_view(
    scope: ClusterScope, types: Collection[ResourceType], transforms: Mapping[str, Transform] | None = None
) -> AsyncIterator[tuple[ClusterView, ClusterConnection]]:
    """A view that is kept up to date, and the connection over which it is. Raises ConfigException, Exit."""
    async with open_connection(scope) as connection:
        view = ClusterView(types, connection.namespace, transforms)
        async with update_view(connection, view):
            yield view, connection


@contextlib.asynccontextmanager
async def update_view(
    connection: ClusterConnection, view: ClusterView, labels: str = ""
) -> AsyncIterator[None]:
    """Keep `view` up to date over a connection; `labels` is a selector."""
    scopes = [WatchScope(type_, connection.namespace, labels=labels) for type_ in view.types]
    reflectors = reflectors_of(connection.cluster.api, view.informer, scopes)
    tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
    # The command prints the fault once; a logger without configuration would print it again for each kind.
    watcher = logging.getLogger(Reflector.__module__)
    level = watcher.level
    watcher.setLevel(logging.ERROR)
    try:
        view.fault = lambda: next((reflector.fault for reflector in reflectors if reflector.fault), "")
        yield
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
    async with open_view(scope, kinds) as (view, connection):
        namespace = connection.namespace
        last = state_of(view, namespace, subject)
        said = last.reached
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not (last.reached.done or last.reached.blocked):
                    await view.wait(_POLL_SECONDS)
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
    kind, name, wanted = subject.kind, subject.name, subject.wanted
    rollout = None
    if kind == flagrollout.KIND:
        rollout = view.objects.get(ObjectKey(kind, namespace, name))
        kind, name = ("", "") if rollout is None else ("", set_name(rollout))
    state = set_named(view.states().values(), kind, name)
    if state is None:
        return Waited(_missing(view, namespace, subject))
    reached = reach(state, wanted)
    if reached.level < Reach.DELIVERED and has_promoted(rollout, wanted.revision):
        # A later commit has replaced it since.
        reached = Reached(reached.level, f"{wanted.revision} was promoted: everybody got it", done=True)
    return Waited(reached, state)


def _missing(view: ClusterView, namespace: str, subject: WaitSubject) -> Reached:
    """The object may be created later, so a wrong name is no error yet: similar ones are suggested."""
    names = [resource.name for resource in view.of_kind(subject.kind)]
    if subject.name in names:
        message = f"the flag set of {subject.kind} {subject.name} does not exist yet"
        return Reached(Reach.UNKNOWN, message)
    hint = did_you_mean(subject.name, names)
    return Reached(Reach.UNKNOWN, f"{subject.kind} {subject.name} is not in namespace {namespace} yet{hint}")
