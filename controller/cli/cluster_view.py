"""What verbs watch in a cluster: objects, states of flag sets, and the effect of what they wrote."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from controller.api import featureflagconfiguration, flagrollout, flagset, kinds
from controller.api.kinds import FEATURE_FLAG_CONFIGURATION, FLAG_ROLLOUT, FLAG_SET, ResourceType, status_of
from controller.api.meta import REQUESTED_AT, ObjectKey, Resource, precise_timestamp
from controller.api.status import FALSE, READY, RECONCILING, TRUE
from controller.cli.connection import ClusterConnection, open_connection
from controller.cli.printing import OK, PROBLEM, did_you_mean, printable, short
from controller.delivery.actions import Effect
from controller.delivery.overrides import set_name
from controller.delivery.reach import Reached, reach
from controller.delivery.set_reading import STATE_KINDS, by_member, read_sets, set_named
from controller.delivery.set_state import Reach
from controller.kube.reflector import Reflector
from controller.kube.reflector import WatchScope as Watched
from controller.runtime.cache import Cache
from controller.runtime.clock import now
from controller.runtime.setbacks import Failed, Setback

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from controller.cli.connection import ClusterScope
    from controller.delivery.reach import ReachTarget
    from controller.delivery.set_state import SetState


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


STATE_TYPES = tuple(type_ for type_ in kinds.WATCHED if type_.kind in STATE_KINDS)
"""The kinds of which a state is read."""


@dataclass(frozen=True, slots=True)
class ReadSets:
    """Objects, and the flag sets that they make."""

    resources: Sequence[Resource]
    states: dict[ObjectKey, SetState]
    """By object and by FlagSet."""


async def read_states(connection: ClusterConnection, *types: ResourceType) -> ReadSets:
    """The objects of these kinds, and the states of all flag sets. Kinds that only the states are read from
    may be denied to the user. Raises Setback.
    """
    resources = await connection.resources(*types)
    known, unknown = [*resources], []
    for type_ in STATE_TYPES:
        if type_ in types:
            continue
        try:
            known += await connection.resources(type_)
        except Failed as failure:
            if failure.reason != "AccessDenied":
                raise
            unknown.append(type_.kind)
    return ReadSets(resources, by_member(read_sets(known, now(), unknown=unknown)))


TIMEOUT: Final = 30
"""Seconds, by default."""
_POLL: Final = 0.2


def add_effect_arguments(parser: argparse.ArgumentParser) -> None:
    """--no-wait, beside the --timeout of `add_cluster_arguments`."""
    parser.add_argument(
        "--no-wait", dest="wait", action="store_false", help="do not wait until it has taken effect"
    )


async def request(
    connection: ClusterConnection, type_: ResourceType, name: str, patch: Mapping[str, Any] | None = None
) -> str:
    """Change an object as a merge patch says, and have it reconciled; return the request's name. Raises
    Setback.
    """
    token = precise_timestamp(now())
    given = dict(patch or {})
    metadata = dict(given.get("metadata") or {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), REQUESTED_AT: token}
    await connection.merge(type_, name, {**given, "metadata": metadata})
    return token


async def follow_effect(look: Callable[[], Awaitable[Effect]], seconds: float) -> Effect:
    """The effect once it is done or blocked, or what is waited for after so many seconds; what that is is
    printed meanwhile whenever it changes.
    """
    last = await _look(look)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not (last.done or last.blocked):
                await asyncio.sleep(_POLL)
                latest = await _look(look)
                if latest != last and not (latest.done or latest.blocked):
                    print(printable(short(latest.message)), file=sys.stderr, flush=True)
                last = latest
    return last


async def _look(look: Callable[[], Awaitable[Effect]]) -> Effect:
    try:
        return await look()
    except Setback as setback:
        return Effect(f"the cluster cannot be read: {setback.message}; trying again", done=False)


def report(subject: str, effect: Effect, seconds: float) -> int:
    """Print an effect, and return the exit code."""
    late = "" if effect.done or effect.blocked else f"not in effect within {seconds:g} s: "
    lines = (f"{subject}: {late}{effect.message}", *(f"  {laggard}" for laggard in effect.waits_for))
    ok = effect.done and not effect.blocked
    text = "\n".join(printable(short(line)).replace("\n", " ") for line in lines)
    print(text, file=sys.stdout if ok else sys.stderr, flush=True)
    return OK if ok else PROBLEM


def is_handled(resource: Resource, token: str) -> bool:
    """Whether the controller has acted on a request of `request`."""
    return status_of(resource).last_handled_reconcile_at == token


def ready_effect(resource: Resource, token: str = "") -> Effect:
    """Whether the controller has judged an object as it is now, and acted on a request if one is named."""
    status = status_of(resource)
    ready = status.condition(READY)
    judged = status.observed_generation == resource.generation
    if not judged or (token and not is_handled(resource, token)):
        return Effect("its controller has not processed it yet; does it run?", done=False)
    settled = ready.status in {TRUE, FALSE} and not status.conditions_of(RECONCILING)
    message = ready.message or ready.reason
    return Effect(message, done=settled, blocked=settled and ready.status == FALSE)
