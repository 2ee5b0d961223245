"""The ports of a controller: each has an address of its own, and the metrics name each."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from controller.app.controller_process import bound_socket, listen
from controller.app.settings import ControllerSettings
from controller.runtime import process
from evaluator.http.offload import Offload
from evaluator.server.families import PortMetrics, text

if TYPE_CHECKING:
    from evaluator.http.routes import Routes


def routes(name: str) -> Routes:
    def status() -> dict[str, Any]:
        return {"ready": True, "name": name}

    return process.routes(status, lambda: b"", Offload())


async def ask(host: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_each_port_has_its_own_address_and_is_counted() -> None:
    settings = ControllerSettings(
        host="127.0.0.1", management_host="127.0.0.2", receiver_host="127.0.0.3",
        management_port=0, receiver_port=0,
    )  # fmt: skip
    metrics = PortMetrics()
    async with contextlib.AsyncExitStack() as stack:
        bound = stack.enter_context(bound_socket(settings.host, 0))
        three = routes("managed"), routes("artifacts"), routes("webhooks")
        managed, artifacts, receiver = await listen(stack, settings, metrics, bound, three)
        for host, port, name in (
            ("127.0.0.2", managed, b"managed"),
            ("127.0.0.1", artifacts, b"artifacts"),
            ("127.0.0.3", receiver, b"webhooks"),
        ):
            assert name in await ask(host, port)
        found = text(metrics.families()).decode()
    for port_name in ("management", "artifacts", "receiver"):
        assert f'flagstaff_held_bytes{{port="{port_name}"}}' in found
        assert f'flagstaff_refused_connections_total{{port="{port_name}"}} 0.0' in found
