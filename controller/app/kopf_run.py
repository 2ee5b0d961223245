"""Cluster mode within `kopf run`: kopf's process, our controller."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING

from controller.api.kinds import WATCHED
from controller.app.controller_process import working
from controller.app.reconcilers import STAGES
from controller.kube.kopf_watches import attach
from controller.runtime.objects.cache import Cache
from controller.runtime.objects.watch_health import WatchHealth
from controller.runtime.reconciling.watches import indexes_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from controller.api.kinds import ResourceType
    from controller.app.controller_replica import Controller
    from controller.app.settings import ControllerSettings


def join_kopf(settings: ControllerSettings, say: Callable[[str], None]) -> None:
    """Have kopf's default registry open a controller as kopf starts, and close it as it ends."""
    objects, health = Cache(indexes_of(STAGES)), WatchHealth(time.monotonic)
    running: list[Controller] = []

    @contextlib.asynccontextmanager
    async def life() -> AsyncIterator[None]:
        async with working(settings, objects, health, say, lambda: _stop(running)) as controller:
            running.append(controller)
            yield
            running.clear()

    def relisted(type_: ResourceType) -> None:
        for controller in running:
            controller.relisted(type_)

    attach(objects, WATCHED, relisted, health, life())


def _stop(running: list[Controller]) -> None:
    """Stop kopf when the controller has stopped."""
    if running:
        signal.raise_signal(signal.SIGTERM)
