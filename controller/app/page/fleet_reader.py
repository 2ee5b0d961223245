"""Asks all proxies which evaluators they know, at most once in a few seconds."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Final

import orjson

from controller.page.delivery.proxy_members import read_fleets
from controller.runtime.network.http_client import HttpClient, RequestError, Route, read_all
from controller.runtime.reconciling.setbacks import Setback

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from controller.page.delivery.proxy_members import FleetMember

log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 2.0
"""Seconds for which an answer is used without asking again."""
_PATIENCE: Final = 3.0
"""Seconds for one proxy's answer; without it, the numbers of its FlagReceipts are shown alone."""
_MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_PROXIES: Final = 64


class FleetReader:
    """Belongs to one event loop."""

    def __init__(self, address: str, clock: Callable[[], float]) -> None:
        """`address`: host:port of the management ports of all proxies, of which each address of the host is
        asked; empty: none. `clock`: monotonic seconds.
        """
        self._address = address
        self._clock = clock
        # The address is a setting of this process: it may lead into the cluster.
        self._client = HttpClient(None)
        self._known: Mapping[str, Sequence[FleetMember]] = {}
        self._fresh_until = 0.0
        self._asked_at = clock()
        self._fault = ""
        self._asking: asyncio.Lock = asyncio.Lock()

    async def members(self) -> Mapping[str, Sequence[FleetMember]]:
        """Evaluators by the object that they follow. A proxy that does not answer is left out."""
        if not self._address:
            return {}
        async with self._asking:
            if self._clock() >= self._fresh_until:
                self._asked_at = self._clock()
                self._known = await self._ask_all()
                self._fresh_until = self._clock() + FRESH_SECONDS
        return self._known

    def wait_for_answer_after(self, moment: float) -> float | None:
        """Seconds after which `members` asks again, where it was asked last before this moment of the clock;
        None: the answer is newer, or no proxy is asked.
        """
        if not self._address or self._asked_at >= moment:
            return None
        return max(0.0, self._fresh_until - self._clock())

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask_all(self) -> Mapping[str, Sequence[FleetMember]]:
        host, _, port = self._address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            resolved = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except OSError as error:
            self._report(f"{host} cannot be resolved: {error.strerror}")
            return {}
        hosts = sorted({entry[4][0] for entry in resolved})[:_MOST_PROXIES]
        answers = await asyncio.gather(*(self._ask(str(host), int(port)) for host in hosts))
        if all(answer is not None for answer in answers):
            self._report("")
        return await asyncio.to_thread(read_fleets, answers)

    async def _ask(self, host: str, port: int) -> object:
        """One proxy's answer; None where there is none."""
        shown = f"[{host}]" if ":" in host else host
        try:
            url = f"http://{shown}:{port}/fleet"
            async with self._client.request("GET", url, route=Route(seconds=_PATIENCE)) as answer:
                if answer.status == 200:
                    content = await read_all(answer, _MOST_BYTES)
                    return await asyncio.to_thread(orjson.loads, content)
                self._report(f"{url} answers {answer.status}")
        except (RequestError, Setback) as error:
            self._report(error.message)
        except ValueError:
            self._report(f"{shown}:{port} sends no JSON")
        return None

    def _report(self, fault: str) -> None:
        """Log a fault once, until it is another one."""
        if fault and fault != self._fault:
            log.warning("a proxy cannot be asked for its evaluators: %s", fault)
        self._fault = fault
