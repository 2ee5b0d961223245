"""Names whose servers never answer."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING, Any, Final

from controller.runtime.hosts import AT_ONCE, resolve

if TYPE_CHECKING:
    import pytest

FOUND: Final = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 443))


async def test_names_that_hang_hold_up_neither_others_nor_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()

    def look_up(host: str, _port: int, **_: Any) -> list[Any]:
        if host == "hangs.example.com":
            answers.wait(60)
        return [FOUND]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    hanging = [asyncio.create_task(resolve("hangs.example.com", 443)) for _ in range(AT_ONCE - 1)]
    try:
        async with asyncio.timeout(30):
            assert await resolve("answers.example.com", 443) == ("192.0.2.1",)
            assert await asyncio.to_thread(lambda: "done") == "done"
    finally:
        answers.set()
        assert await asyncio.gather(*hanging) == [("192.0.2.1",)] * (AT_ONCE - 1)
