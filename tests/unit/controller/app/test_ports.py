"""The ports of a controller: each has an address of its own, and the metrics name each."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import generate_latest

from controller.app.controller_process import bound_socket, listen
from controller.app.process_frame import open_frame
from controller.app.settings import ControllerSettings
from controller.runtime import process
from evaluator.http.offload import Offload

if TYPE_CHECKING:
    from evaluator.http.routes import Routes


def status(name: str) -> dict[str, Any]:
    return {"ready": True, "name": name}


def routes(name: str) -> Routes:
    return process.routes(partial(status, name), lambda: b"", Offload())


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
    async with open_frame(settings) as frame:
        bound = frame.stack.enter_context(bound_socket(settings.host, 0))
        two = routes("artifacts"), routes("webhooks")
        ports = await listen(frame, settings, bound, partial(status, "managed"), two)
        for host, port, name in (
            ("127.0.0.2", ports["management"], b"managed"),
            ("127.0.0.1", ports["artifacts"], b"artifacts"),
            ("127.0.0.3", ports["receiver"], b"webhooks"),
        ):
            assert name in await ask(host, port)
        found = generate_latest(frame.registry).decode()
    for port_name in ("management", "artifacts", "receiver"):
        assert f'flagstaff_held_bytes{{port="{port_name}"}}' in found
        assert f'flagstaff_refused_connections_total{{port="{port_name}"}} 0.0' in found
