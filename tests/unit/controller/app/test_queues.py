"""The queues of kinds: how many objects are worked on at a time."""

from __future__ import annotations

import asyncio

import pytest

from controller.api.featureflagconfiguration import KIND as CONFIGURATION
from controller.api.flagsource import KIND as FLAG_SOURCE
from controller.api.meta import ObjectKey
from controller.app.reconcilers import queue_of


@pytest.mark.parametrize("kind", [FLAG_SOURCE, CONFIGURATION])
async def test_objects_of_fifty_namespaces_whose_servers_hang_leave_a_place_for_the_next(kind: str) -> None:
    queue = queue_of(kind, workers=8)
    for number in range(51):
        queue.put(ObjectKey(kind, f"namespace-{number}", "flags"))
    async with asyncio.timeout(5.0):
        # None is released: each waits for its server.
        taken = {(await queue.take()).namespace for _ in range(51)}
    assert len(taken) == 51
