"""Waiting for what a cluster shows."""

from __future__ import annotations

import asyncio

import pytest

from controller.cli.cluster.cluster_view import ClusterView


@pytest.mark.parametrize("steps", range(6))
async def test_a_wait_ends_when_it_is_cancelled_while_something_changes(steps: int) -> None:
    view = ClusterView()

    async def follow() -> None:
        while True:
            await view.wait(60.0)

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.01)
    view.changed.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    following.cancel()
    done, _ = await asyncio.wait({following}, timeout=1.0)
    following.cancel()
    assert done
