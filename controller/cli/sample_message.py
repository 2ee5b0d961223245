"""Asks a FlagProvider for a test message as a person does, and waits for the result."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from controller.api.flagprovider import FlagProviderStatus
from controller.api.kinds import FLAG_PROVIDER
from controller.api.meta import TEST_ALERT, Resource
from controller.api.status import FALSE, READY
from controller.cli.connection import open_connection
from controller.events.alert_messages import test_key
from controller.events.deliverer import DELIVERED

if TYPE_CHECKING:
    from controller.cli.clusters import ClusterScope


_POLL_SECONDS: Final = 0.3
"""Seconds from one look to the next."""


@dataclass(frozen=True, slots=True)
class MessageOutcome:
    """The result of a test."""

    delivered: bool
    message: str
    over: bool = True
    """False: the result may still change."""


async def send_test(
    scope: ClusterScope,
    name: str,
    timeout: float,  # noqa: ASYNC109 - the command's own, which ends in an answer
) -> MessageOutcome:
    """Until the message was delivered or cannot be, or the time is over. Raises Setback, ConfigException,
    Exit.
    """
    outcome, asked = MessageOutcome(False, "the cluster has not answered yet", over=False), uuid4().hex
    try:
        async with asyncio.timeout(timeout), open_connection(scope) as connection:
            await connection.get(FLAG_PROVIDER, name)
            await connection.merge(FLAG_PROVIDER, name, {"metadata": {"annotations": {TEST_ALERT: asked}}})
            while not outcome.over:
                await asyncio.sleep(_POLL_SECONDS)
                provider = await connection.find(FLAG_PROVIDER, connection.namespace, name)
                outcome = outcome_of(provider, asked)
    except TimeoutError:
        pass
    return outcome


def outcome_of(found: Resource | None, asked: str) -> MessageOutcome:
    """What a FlagProvider says of the test `asked`."""
    if found is None:
        return MessageOutcome(False, "the FlagProvider was deleted")
    if found.suspended:
        return MessageOutcome(False, "the FlagProvider is suspended")
    status = FlagProviderStatus.of(found)
    ready, delivered = status.condition(READY), status.condition(DELIVERED)
    if status.last_handled_test != asked:
        return MessageOutcome(False, "no controller has seen the request", over=False)
    if ready.status == FALSE:
        return MessageOutcome(False, f"the FlagProvider is not ready: {ready.message}")
    waits = test_key(found.uid, asked) in {message.key for message in status.pending or ()}
    if delivered.status == FALSE:
        return MessageOutcome(False, f"the last try failed: {delivered.message}", over=not waits)
    return MessageOutcome(
        not waits, "the message waits to be delivered" if waits else "delivered", over=not waits
    )
