"""The states of flag sets of a cluster, and the effect of what a verb has written, for which it waits."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api import kinds
from controller.api.kinds import status_of
from controller.api.meta import REQUESTED_AT, ObjectKey, Resource
from controller.api.status import FALSE, READY, RECONCILING, TRUE
from controller.cli.printing import OK, PROBLEM, printable, short
from controller.delivery.actions import Effect
from controller.delivery.set_reading import STATE_KINDS, by_member, read_sets
from controller.runtime.clock import now
from controller.runtime.setbacks import Failed, Setback
from evaluator.host.times import precise_timestamp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from controller.api.kind import ResourceType
    from controller.cli.connection import ClusterConnection
    from controller.delivery.set_state import SetState


STATE_TYPES = tuple(type_ for type_ in kinds.WATCHED if type_.kind in STATE_KINDS)
"""The kinds of which a state is read."""


@dataclass(frozen=True, slots=True)
class ReadSets:
    """Objects, and the flag sets that they make."""

    resources: Sequence[Resource]
    states: dict[ObjectKey, SetState]
    """By object and by FlagSet."""
    denied: Sequence[str] = ()
    """For each of the kinds that could not be read, why not."""


async def read_states(connection: ClusterConnection, *types: ResourceType, in_part: bool = False) -> ReadSets:
    """The objects of these kinds, and the states of all flag sets. Kinds that only the states are read from
    may be denied to the user, and with `in_part` some of the others. Raises Setback.
    """
    resources: list[Resource] = []
    known: list[Resource] = []
    denied: dict[str, str] = {}
    for type_ in (*types, *(state for state in STATE_TYPES if state not in types)):
        try:
            objects = await connection.resources(type_)
        except Failed as failure:
            if failure.reason != "AccessDenied" or (type_ in types and not in_part):
                raise
            denied[type_.kind] = failure.message
            continue
        known += objects
        resources += objects if type_ in types else ()
    messages = [denied[type_.kind] for type_ in types if type_.kind in denied]
    if len(messages) == len(types) > 0:
        raise Failed("AccessDenied", messages[0])
    return ReadSets(resources, by_member(read_sets(known, now(), unknown=[*denied])), messages)


TIMEOUT: Final = 30
"""Seconds, by default."""
_POLL: Final = 0.2


def add_effect_arguments(parser: argparse.ArgumentParser) -> None:
    """--wait and --no-wait, beside the --timeout of `add_cluster_arguments`."""
    parser.add_argument(
        "--wait", action=argparse.BooleanOptionalAction, default=True,
        help="wait until it has taken effect (the default), or do not",
    )  # fmt: skip


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
