"""The ports of one evaluator: opened all or none, closed together."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from evaluator.http.sockets import MODE, TlsFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evaluator.http.listener import Listener


_OPTIONS: Final = {
    "grpc": "--port",
    "ofrep": "--ofrep-port",
    "management": "--management-port",
    "sync": "--sync-port",
}
"""Which option sets a listener's port."""


class PortError(OSError):
    """A port cannot be listened on; the text says which, why, and what to do."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A listener and where it listens: on a Unix socket if it is given one, else on a port."""

    listener: Listener
    host: str
    port: int
    """0 takes a free one."""
    socket_path: str = ""
    tls: TlsFiles | None = None
    socket_mode: int = MODE

    async def start(self) -> int:
        """The bound port; 0 for a Unix socket. Raises OSError, for a port PortError."""
        if self.socket_path:
            await self.listener.start_unix(self.socket_path, tls=self.tls, mode=self.socket_mode)
            return 0
        try:
            return await self.listener.start(self.host, self.port, tls=self.tls)
        except OSError as error:
            raise PortError(self._explain(error)) from error

    def _explain(self, error: OSError) -> str:
        option = _OPTIONS.get(self.listener.name, "another option")
        choose = f"choose another with {option}, or 0 for any free one"
        if error.errno == errno.EADDRINUSE:
            return f"port {self.port} is already in use; {choose}"
        if error.errno == errno.EACCES:
            return f"port {self.port} needs more rights than this process has; {choose}"
        return f"cannot listen on {self.host}, port {self.port}: {error.strerror or error}"


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports that are listened on; 0 where a Unix socket takes one's place."""

    grpc: int
    ofrep: int
    management: int
    sync: int


@dataclass(frozen=True, slots=True)
class Serving:
    """An evaluator that serves until it is stopped."""

    ports: Ports
    listeners: Sequence[Listener]
    closers: Sequence[Callable[[], None]]
    drain_seconds: float
    last: Callable[[], None]
    """Called in a thread once no port is open, for what may take its time."""

    async def stop(self) -> None:
        """Notify event streams, finish what is in flight, close the ports."""
        for close in self.closers:
            close()
        await asyncio.gather(*(listener.drain(self.drain_seconds) for listener in self.listeners))
        await asyncio.to_thread(self.last)


async def start_listeners(
    addresses: Sequence[ListenAddress],
    closers: Sequence[Callable[[], None]],
    drain_seconds: float,
    last: Callable[[], None] = lambda: None,
) -> Serving:
    """Listen at all of them: evaluation, OFREP, management, sync, as Ports has them. closers, last: called at
    the end.

    Raises OSError if one cannot be had, and leaves none open then.
    """
    bound: list[int] = []
    try:
        for address in addresses:
            port = await address.start()
            bound.append(port)
    except OSError:
        for close in closers:
            close()
        await asyncio.gather(*(address.listener.drain(0) for address in addresses[: len(bound)]))
        await asyncio.to_thread(last)
        raise
    return Serving(Ports(*bound), [address.listener for address in addresses], closers, drain_seconds, last)
