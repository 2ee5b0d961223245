"""Limits of single namespaces, followed in a ConfigMap."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import CONFIG_MAP
from controller.api.objects.meta import Resource, about
from controller.kube.reflector import Reflector, WatchScope
from controller.runtime.clock import now
from controller.runtime.events import EventSink, Occurrence, event_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubernetes.aio.client.api_client import ApiClient

    from controller.runtime.tenancy.limits import Limits

log = logging.getLogger(__name__)

_TYPE: Final = replace(CONFIG_MAP, content=True)
_FIRST_SECONDS: Final = 5.0
"""How long the start waits for the ConfigMap: the options alone would refuse others for a moment."""


class Overrides:
    """The ConfigMap with limits of single namespaces, as a `reflector.Sink`."""

    def __init__(self, limits: Limits, events: EventSink) -> None:
        self.read = asyncio.Event()
        """Set once it is known what there is, or that there is none."""
        self._limits = limits
        self._events = events
        self._problems: tuple[str, ...] = ()

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        """It is as `body` says."""
        del kind
        data = body.get("data")
        problems = self._limits.replace(data if isinstance(data, dict) else {})
        if problems != self._problems:
            self._problems = problems
            found = Resource.of(
                {"apiVersion": _TYPE.api_version, "kind": _TYPE.kind, "metadata": body["metadata"]}
            )
            for each in problems:
                message = f"{each}; until it is corrected the last good limits hold, or those of the options"
                log.warning("the quotas of namespace %s", message, extra=about(found.key))
                invalid = Occurrence("InvalidQuota", message, warning=True)
                self._events.accept(event_of(found, invalid, now()))

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Apply the options to all namespaces, as the ConfigMap was deleted."""
        del kind, namespace, name
        self._problems = ()
        self._limits.replace({})

    def listed(self, kind: str, namespace: str) -> None:
        """It is known now."""
        del kind, namespace
        self.read.set()


@contextlib.asynccontextmanager
async def overridden(
    limits: Limits, api: ApiClient, namespace: str, name: str, events: EventSink
) -> AsyncIterator[None]:
    """Follow the ConfigMap, if it has a name, for as long as the block lasts."""
    if not name:
        yield
        return
    overrides = Overrides(limits, events)
    reflector = Reflector(api, WatchScope(_TYPE, namespace, name), overrides)
    following = asyncio.create_task(reflector.run())
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_SECONDS):
                await overrides.read.wait()
        yield
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
