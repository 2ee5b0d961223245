"""kopf's watch streams, with nothing of kopf's state on anybody's object."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import kopf

from controller.api.meta import Resource

if TYPE_CHECKING:
    import asyncio
    import contextlib
    from collections.abc import Sequence

    from controller.runtime.loop import Objects

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Watched:
    """A kind whose objects are watched. One whose definition is not installed is watched once it is."""

    group: str
    """Empty for the core group."""
    version: str
    kind: str
    plural: str
    content: bool = True
    """False: only that something changed is kept, never what is in it."""

    @property
    def api_version(self) -> str:
        """As manifests write it."""
        return f"{self.group}/{self.version}" if self.group else self.version


def seen(objects: Objects, watched: Watched, body: dict[str, Any], *, deleted: bool) -> None:
    """Take one event in. A malformed object is logged and hurts nobody else."""
    try:
        resource = _resource(watched, body)
    except (KeyError, TypeError, AttributeError):
        log.exception("a malformed %s was sent", watched.kind)
        return
    known = objects.get(resource.key)
    if not deleted:
        objects.learn(resource)
    elif known is not None and known.uid == resource.uid:
        objects.forget(resource.key)


def _resource(watched: Watched, body: dict[str, Any]) -> Resource:
    kept = {"apiVersion": watched.api_version, "kind": watched.kind, "metadata": body["metadata"]}
    if watched.content:
        kept |= {name: body[name] for name in ("spec", "status") if name in body}
        return Resource.of(kept)
    # A Secret has no generation: its version takes the place, so that every change is one.
    meta = body["metadata"]
    plain = {name: meta.get(name) for name in ("name", "namespace", "uid", "resourceVersion")}
    return Resource.of({**kept, "metadata": plain})


Relisted = Callable[[Watched], None]
"""Told of each object that a watch lists as it begins: of what went before it began, a watch tells nothing."""


def registry(
    objects: Objects, kinds: Sequence[Watched], relisted: Relisted
) -> kopf.OperatorRegistry:
    """Handlers for `kinds` on a registry of their own."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    def login(**known: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**known) or kopf.login_with_kubeconfig(**known)

    _register(handlers, objects, kinds, relisted)
    return handlers


def attach(
    objects: Objects,
    kinds: Sequence[Watched],
    relisted: Relisted,
    life: contextlib.AbstractAsyncContextManager[None],
) -> None:
    """Handlers on kopf's default registry, which `kopf run` takes; `life` is entered as it starts and left as it ends."""
    handlers = kopf.get_default_registry()

    @kopf.on.startup(registry=handlers)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings)
        await life.__aenter__()

    @kopf.on.cleanup(registry=handlers)
    async def end(**_: Any) -> None:
        await life.__aexit__(None, None, None)

    _register(handlers, objects, kinds, relisted)


def _register(
    handlers: kopf.OperatorRegistry,
    objects: Objects,
    kinds: Sequence[Watched],
    relisted: Relisted,
) -> None:
    for watched in kinds:
        _register_kind(handlers, objects, watched, relisted)


def _register_kind(
    handlers: kopf.OperatorRegistry, objects: Objects, watched: Watched, relisted: Relisted
) -> None:
    @kopf.on.event(
        watched.group or "", watched.version, watched.plural, registry=handlers, id=watched.plural
    )
    async def take(event: Any, **_: Any) -> None:
        seen(objects, watched, dict(event["object"]), deleted=event["type"] == "DELETED")
        if event["type"] is None:
            relisted(watched)


def configure(settings: kopf.OperatorSettings) -> None:
    """kopf as a source of events alone."""
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.watching.reconnect_backoff = 0.2
    settings.networking.error_backoffs = (0.1, 0.2, 0.5, 1, 1, 1, 2, 2, 2)
    settings.queueing.error_delays = (0.2, 0.5, 1, 2)
    # A worker waits as long for another event of the same object before it goes: it costs memory and no time.
    settings.queueing.idle_timeout = 0.1
    settings.process.ultimate_exiting_timeout = 10


async def watch(
    handlers: kopf.OperatorRegistry, *, namespaces: Sequence[str], stop: asyncio.Event
) -> None:
    """Watch until `stop` is set; reconnects by itself. Everywhere where no namespaces are named."""
    settings = kopf.OperatorSettings()
    configure(settings)
    await kopf.operator(
        registry=handlers,
        settings=settings,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=tuple(namespaces),
        stop_flag=stop,
    )
