"""Waits for the effect of what a verb has written, and reports the state that was reached."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api.kinds import status_of
from controller.api.objects.conditions import FALSE, READY, RECONCILING, TRUE
from controller.api.objects.meta import REQUESTED_AT, precise_timestamp
from controller.cli.shared.ending import OK, PROBLEM
from controller.cli.shared.printing import printable, short
from controller.runtime.clock import now

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any

    from controller.api.kinds import ResourceType
    from controller.api.objects.meta import Resource
    from controller.cli.cluster.connection import Connection

TIMEOUT: Final = 30
"""Seconds, by default."""
_POLL: Final = 0.2


@dataclass(frozen=True, slots=True)
class Effect:
    """What became of a request."""

    message: str
    """The state that was reached, or what is waited for."""
    done: bool = True
    failed: bool = False
    """Whether it cannot take effect before a person changes something."""


def add_effect_arguments(parser: argparse.ArgumentParser) -> None:
    """--no-wait, beside the --timeout of `add_cluster_arguments`."""
    parser.add_argument(
        "--no-wait", dest="wait", action="store_false", help="do not wait until it has taken effect"
    )


async def request(
    connection: Connection, type_: ResourceType, name: str, patch: Mapping[str, Any] | None = None
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
    """The effect once it is done or has failed, or what is waited for after so many seconds."""
    last = Effect("the cluster has not answered yet", done=False)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                last = await look()
                if last.done or last.failed:
                    break
                await asyncio.sleep(_POLL)
    return last


def report(subject: str, effect: Effect, seconds: float) -> int:
    """Print an effect, and return the exit code."""
    late = "" if effect.done or effect.failed else f"not in effect within {seconds:g} s: "
    text = f"{subject}: {late}{short(effect.message)}"
    ok = effect.done and not effect.failed
    print(printable(text).replace("\n", " "), file=sys.stdout if ok else sys.stderr, flush=True)
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
    return Effect(message, done=settled, failed=settled and ready.status == FALSE)
