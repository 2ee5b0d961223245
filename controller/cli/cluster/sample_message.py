"""Asks a FlagProvider for a test message as a person does, and waits for the result."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from controller.api.flagprovider import FlagProviderStatus
from controller.api.kinds import FLAG_PROVIDER
from controller.api.objects.conditions import FALSE, READY
from controller.api.objects.meta import TEST_ALERT, Resource
from controller.cli.cluster.connection import open_connection
from controller.events.alerts.alert_messages import test_key
from controller.events.services.deliverer import DELIVERED

if TYPE_CHECKING:
    from controller.cli.shared.clusters import ClusterScope

_LOOK: Final = 0.3
"""Seconds from one look to the next."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a test."""

    delivered: bool
    message: str
    over: bool = True
    """False: the result may still change."""


async def send_test(
    scope: ClusterScope,
    name: str,
    timeout: float,  # noqa: ASYNC109 - the command's own, which ends in an answer
) -> Outcome:
    """Until the message was delivered or cannot be, or the time is over. Raises Setback, ConfigException,
    Exit.
    """
    outcome, asked = Outcome(False, "the cluster has not answered yet", over=False), uuid4().hex
    try:
        async with asyncio.timeout(timeout), open_connection(scope) as connection:
            await connection.get(FLAG_PROVIDER, name)
            await connection.merge(FLAG_PROVIDER, name, {"metadata": {"annotations": {TEST_ALERT: asked}}})
            while not outcome.over:
                await asyncio.sleep(_LOOK)
                provider = await connection.find(FLAG_PROVIDER, connection.namespace, name)
                outcome = outcome_of(provider, asked)
    except TimeoutError:
        pass
    return outcome


def outcome_of(found: Resource | None, asked: str) -> Outcome:
    """What a FlagProvider says of the test `asked`."""
    if found is None:
        return Outcome(False, "the FlagProvider was deleted")
    if found.suspended:
        return Outcome(False, "the FlagProvider is suspended")
    status = FlagProviderStatus.of(found)
    ready, delivered = status.condition(READY), status.condition(DELIVERED)
    if status.last_handled_test != asked:
        return Outcome(False, "no controller has seen the request", over=False)
    if ready.status == FALSE:
        return Outcome(False, f"the FlagProvider is not ready: {ready.message}")
    waits = test_key(found.uid, asked) in {message.key for message in status.pending or ()}
    if delivered.status == FALSE:
        return Outcome(False, f"the last try failed: {delivered.message}", over=not waits)
    return Outcome(not waits, "the message waits to be delivered" if waits else "delivered", over=not waits)
