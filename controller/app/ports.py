"""The ports of a controller that serve artifacts, webhooks and metrics."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from controller.artifacts import artifact_server
from controller.events.receiver.webhook_server import LIMITS
from evaluator.http.server.limits import MANAGEMENT
from evaluator.http.server.listener import Listener

if TYPE_CHECKING:
    import contextlib

    from controller.app.settings.process_settings import ControllerSettings
    from evaluator.http.routes import Routes
    from evaluator.server.monitoring.port_metrics import PortMetrics

_DRAIN: Final = 2.0


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a bound socket, whose port is part of artifacts' URLs before it listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def artifact_address(settings: ControllerSettings, port: int) -> str:
    """Return host and port at which others reach the artifact server."""
    service = f"flagstaff-artifacts.{settings.namespace}.svc.cluster.local.:{port}"
    return settings.artifact_address or service


async def listen(
    stack: contextlib.AsyncExitStack,
    settings: ControllerSettings,
    metrics: PortMetrics,
    bound: socket.socket,
    routes: tuple[Routes, Routes, Routes],
) -> tuple[int, int, int]:
    """Open the ports of management, artifacts and the receiver, which have these routes; artifacts are served
    on `bound`. Raises OSError where a port is taken.
    """
    managed, artifacts, webhooks = routes
    manager = Listener(managed, MANAGEMENT, name="management")
    management_port = await manager.start(settings.management_host or settings.host, settings.management_port)
    stack.push_async_callback(manager.drain, _DRAIN)
    server = Listener(artifacts, artifact_server.LIMITS, name="artifacts")
    await server.start_on(bound)
    stack.push_async_callback(server.drain, _DRAIN)
    receiving = Listener(webhooks, LIMITS, name="receiver")
    receiver_port = await receiving.start(settings.receiver_host or settings.host, settings.receiver_port)
    stack.push_async_callback(receiving.drain, _DRAIN)
    for listener in (manager, server, receiving):
        metrics.port(listener.name, listener)
    return management_port, bound.getsockname()[1], receiver_port
