"""Watches a few objects of a cluster with the user's kubeconfig, for as long as a verb needs them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from controller.api import flagset
from controller.api.kinds import FEATURE_FLAG_CONFIGURATION, FLAG_ROLLOUT, FLAG_SET, ResourceType
from controller.api.objects.meta import ObjectKey, Resource
from controller.api.openfeature import featureflagconfiguration
from controller.api.rollouts import flagrollout
from controller.cli.cluster.connection import Connection, open_connection
from controller.cli.shared.printing import did_you_mean
from controller.delivery.progress.overrides import set_name
from controller.delivery.progress.rollout_waiting import rollout_wait_state
from controller.delivery.waiting import WaitState, WaitTarget, wait_state
from controller.kube.reflector import Reflector
from controller.kube.reflector import WatchScope as Watched
from controller.runtime.objects.cache import Cache
from controller.runtime.reconciling.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from controller.cli.shared.clusters import ClusterScope

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

    def of_kind(self, kind: str) -> list[Resource]:
        """Return all objects of a kind, by namespace and name."""
        return sorted(self.objects.of_kind(kind), key=lambda resource: resource.key)


_View = TypeVar("_View", bound=ClusterView)


@contextlib.asynccontextmanager
async def open_view(
    scope: ClusterScope, types: tuple[ResourceType, ...], view: _View
) -> AsyncIterator[tuple[_View, Connection]]:
    """`view`, kept up to date, and the connection over which it is. Raises ConfigException, Exit."""
    async with open_connection(scope) as connection, update_view(connection, types, view):
        yield view, connection


@contextlib.asynccontextmanager
async def update_view(
    connection: Connection, types: tuple[ResourceType, ...], view: _View
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
    wanted: WaitTarget


async def wait_served(
    scope: ClusterScope,
    subject: WaitSubject,
    timeout: float,  # noqa: ASYNC109 - the command's own, which ends in an answer
    say: Callable[[WaitState], None],
) -> WaitState:
    """Until it is served, or cannot be without a person, or `timeout` seconds are over; `say` is called
    whenever something else is to be said. Raises Failed where the cluster cannot be read at the end.
    """
    kinds: tuple[ResourceType, ...] = (FEATURE_FLAG_CONFIGURATION, FLAG_SET)
    if subject.kind == flagrollout.KIND:
        kinds = (*kinds, FLAG_ROLLOUT)
    async with open_view(scope, kinds, ClusterView()) as (view, connection):
        namespace = connection.namespace
        last = state_of(view, namespace, subject)
        said = last
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not (last.done or last.over):
                    await view.wait(_LOOK)
                    last = state_of(view, namespace, subject)
                    following = last
                    if fault := view.fault():
                        following = WaitState(False, f"the cluster cannot be read: {fault}; trying again")
                    if following != said:
                        say(following)
                        said = following
        if view.fault() and not last.done:
            raise Failed("ApiServerFailed", view.fault())
        return last


def state_of(view: ClusterView, namespace: str, subject: WaitSubject) -> WaitState:
    """Return how far the revision of `subject` has come, by what `view` has."""
    if not view.knows(featureflagconfiguration.KIND, flagset.KIND):
        return WaitState(False, "the cluster has not answered yet")

    def find_object(kind: str, name: str) -> Resource | None:
        return view.objects.get(ObjectKey(kind, namespace, name))

    rollout, flag_set, name = None, None, subject.name
    if subject.kind == flagrollout.KIND:
        rollout = find_object(flagrollout.KIND, subject.name) if view.knows(flagrollout.KIND) else None
        if rollout is None:
            return _missing_state(view, namespace, subject)
        name = set_name(rollout)
    if subject.kind != featureflagconfiguration.KIND:
        flag_set = find_object(flagset.KIND, name)
        if flag_set is None and rollout is None:
            return _missing_state(view, namespace, subject)
        name = name if flag_set is None else flagset.target_name(flag_set)
    written = find_object(featureflagconfiguration.KIND, name)
    if flag_set is None and written is None and rollout is None:
        return _missing_state(view, namespace, subject)
    if flag_set is None and written is not None:
        flag_set = find_object(flagset.KIND, str(written.labels.get(flagset.LABEL)))
    if rollout is not None:
        return rollout_wait_state(rollout, written, flag_set, subject.wanted)
    return wait_state(written, flag_set, subject.wanted)


def _missing_state(view: ClusterView, namespace: str, subject: WaitSubject) -> WaitState:
    """The object may be created later, so a wrong name is no error yet: similar ones are suggested."""
    names = [resource.name for resource in view.of_kind(subject.kind)]
    hint = did_you_mean(subject.name, names)
    return WaitState(False, f"{subject.kind} {subject.name} is not in namespace {namespace} yet{hint}")
