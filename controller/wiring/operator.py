"""Cluster mode within `kopf run`: kopf's process, our controller."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

from controller.handlers.app import attach
from controller.runtime.loop import Objects
from controller.wiring.cluster import WATCHED, Controller, working

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from controller.handlers.app import Watched
    from controller.settings import ControllerSettings


def join_kopf(settings: ControllerSettings, say: Callable[[str], None]) -> None:
    """Have kopf's default registry open a controller as kopf starts, and close it as it ends."""
    objects = Objects()
    running: list[Controller] = []

    @contextlib.asynccontextmanager
    async def life() -> AsyncIterator[None]:
        async with working(settings, objects, say, lambda: _stop(running)) as controller:
            running.append(controller)
            yield
            running.clear()

    def relisted(watched: Watched) -> None:
        for controller in running:
            controller.relisted(watched)

    attach(objects, WATCHED, relisted, life())


def _stop(running: list[Controller]) -> None:
    """kopf must not go on watching for a controller that works no more."""
    if running:
        signal.raise_signal(signal.SIGTERM)
