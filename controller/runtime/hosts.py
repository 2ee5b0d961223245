"""Checks hosts that users name: the name, and each of its addresses."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from controller.api.addresses import AddressRefused, effective, require_public
from controller.runtime.setbacks import Failed, Stalled
from evaluator.host.threads import FairThreads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

DENIED: Final = (
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "::/128",
    "::1/128",
    "fd00:ec2::254/128",
    "fe80::/10",
    "ff00::/8",
)
"""Addresses of this machine, and link-local ones, at which clouds serve a machine's credentials."""
CLUSTER: Final = (
    "*.svc",
    "*.svc.*",
    "*.cluster.local",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "fc00::/7",
)
"""Services of a cluster by their names, and private networks, of which Services and pods have addresses."""
REASON: Final = "HostDenied"
_API_SERVER: Final = ("kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.*")


AT_ONCE: Final = 32
"""Names that are looked up at a time; beyond them, one for each namespace that has none."""
_THREADS: Final = FairThreads(AT_ONCE, resource="names")
"""The event loop's own are few: a name server of one namespace that never answers would hold up every other
name, and whatever else is done in threads. The resolver's own timeout ends a look-up.
"""


async def look_up(
    host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC, flags: int = 0
) -> list[tuple[Any, Any, int, str, tuple[Any, ...]]]:
    """Call socket.getaddrinfo for TCP. Raises OSError."""
    asked = partial(socket.getaddrinfo, host, port, family=family, type=socket.SOCK_STREAM, flags=flags)
    return list(await asyncio.get_running_loop().run_in_executor(_THREADS, asked))


async def resolve(host: str, port: int) -> tuple[str, ...]:
    """The addresses of a name. Raises OSError."""
    addresses = await look_up(host, port)
    return tuple(dict.fromkeys(str(address[0]) for *_, address in addresses))


@dataclass(frozen=True, slots=True)
class Hosts:
    """A list entry is a name, a glob over names (`*.example.com`), an address or a network (`10.0.0.0/8`)."""

    allowed: tuple[str, ...] = ()
    """Empty: all that are not denied."""
    denied: tuple[str, ...] = DENIED
    """Wins over `allowed`."""
    resolve: Callable[[str, int], Awaitable[tuple[str, ...]]] = resolve
    kind: str = "source"
    """Kind of server in the names of the options: --source-hosts and --denied-source-hosts."""
    api_server: tuple[str, ...] = ()
    """Names and addresses of the API server, which no source may use, whatever the lists say."""
    in_cluster: bool = True
    """Whether Services of the cluster, and private networks, may be asked; wins over `allowed`."""
    plain_http: bool = True
    """Whether http:// is allowed."""
    local: bool | None = None
    """Whether private addresses may be reached (see `require_public`); None: `denied` alone decides."""

    def require_scheme(self, scheme: str) -> None:
        """Raise Stalled (URLInvalid) for http if it is not allowed."""
        if scheme == "http" and not self.plain_http:
            message = f"http:// is denied by --deny-http-{self.kind}s; write https://"
            raise Stalled("URLInvalid", message)

    def require_name(self, host: str) -> None:
        """Judge a host by its name alone: a proxy resolves it. Raises Stalled (HostDenied)."""
        name = _normal(host)
        self.require_not_denied(name)
        literal = _literal(name)
        if literal:
            self._require_no_network(f"host {name} is", name)
        if literal and _within(name, _networks(self.api_server)):
            raise _api_server_refusal(name)
        if self.allowed and not _matches_name(name, self.allowed):
            if literal and _within(name, _networks(self.allowed)):
                return
            raise self._name_refusal(name)

    async def require_literal(self, host: str, port: int) -> None:
        """Check a host that is an IP address. Raises Stalled (HostDenied)."""
        if _literal(_normal(host)):
            await self.addresses(host, port)

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """The addresses of a host that may be reached. Connect to these only, since no others were checked.
        Raises Stalled (HostDenied) for any other, Failed where the name has no address.
        """
        name = _normal(host)
        self.require_not_denied(name)
        try:
            addresses = await self.resolve(name, port)
        except OSError as error:
            raise Failed("NameResolutionFailed", f"host {name}: {error.strerror or error}") from error
        await self.require_addresses(name, port, addresses)
        return addresses

    async def require_addresses(self, host: str, port: int, addresses: tuple[str, ...]) -> None:
        """Check a host's name and addresses. Raises Stalled (HostDenied)."""
        name = _normal(host)
        self.require_not_denied(name)
        for address in addresses:
            self._require_no_network(f"host {name} has the address {address},", address)
        networks = _networks(await self._api_server(port))
        if any(_within(address, networks) for address in addresses):
            raise _api_server_refusal(name)
        if self.allowed and not _matches_name(name, self.allowed):
            networks = _networks(self.allowed)
            if not all(_within(address, networks) for address in addresses):
                raise self._name_refusal(name)

    def require_not_denied(self, host: str) -> None:
        """Check a name before it is looked up. Raises Stalled (HostDenied)."""
        name = _normal(host)
        for entries, option in self._denials():
            if _matches_name(name, entries):
                raise Stalled(REASON, f"host {name} is denied by {option}")
        if self.api_server and _matches_name(name, (*_API_SERVER, *self.api_server)):
            raise _api_server_refusal(name)

    async def _api_server(self, port: int) -> tuple[str, ...]:
        """Return the current addresses of the API server."""
        addresses: list[str] = []
        for host in self.api_server:
            # A name without address cannot be connected to.
            with contextlib.suppress(OSError):
                addresses += (host,) if _literal(host) else await self.resolve(host, port)
        return tuple(address.partition("%")[0] for address in addresses)

    def _require_no_network(self, subject: str, address: str) -> None:
        for entries, option in self._denials():
            if _within(address, _networks(entries)):
                raise Stalled(REASON, f"{subject} denied by {option}")
        if self.local is not None:
            try:
                require_public(address.partition("%")[0], allow_local=self.local)
            except AddressRefused as error:
                raise Stalled(REASON, f"{subject} denied: {error}") from None

    def _denials(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """Lists, and the options that say so."""
        cluster = () if self.in_cluster else CLUSTER
        return (self.denied, f"--denied-{self.kind}-hosts"), (cluster, "--deny-cluster-hosts")

    def _name_refusal(self, name: str) -> Stalled:
        return Stalled(REASON, f"host {name} is not one of --{self.kind}-hosts")


def _api_server_refusal(name: str) -> Stalled:
    return Stalled(REASON, f"host {name} is the API server's")


def require_entries(entries: tuple[str, ...]) -> tuple[str, ...]:
    """Return the entries. Raises ValueError for one that is neither a name nor a network."""
    for entry in entries:
        if "/" in entry:
            ipaddress.ip_network(entry)
    return entries


def _normal(host: str) -> str:
    return host.strip("[]").lower().rstrip(".")


def _literal(name: str) -> bool:
    """Whether a host is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _matches_name(name: str, entries: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, entry.lower()) for entry in entries if "/" not in entry)


def _networks(entries: tuple[str, ...]) -> list[Network]:
    networks: list[Network] = []
    for entry in entries:
        try:
            networks.append(ipaddress.ip_network(entry))
        except ValueError:
            # A name.
            continue
    return networks


def _within(address: str, networks: list[Network]) -> bool:
    ip = effective(ipaddress.ip_address(address.partition("%")[0]))
    return any(ip in network for network in networks if network.version == ip.version)
