"""The table that maps paths to handlers, which know no protocol's framing, and the check of hosts.

The event loop calls unary handlers as plain functions: they must return within microseconds, or return a
Deferred. Handlers of streams return at once, too, and are called back when they may send.

Requests of web pages are refused on ports that are not for them.

The same-origin policy keeps the answers of another host from a page, unless the page has its own name
resolved to this machine (DNS rebinding). Then `host` is a name of the page's domain. Callers of a management
port name it by an address, or by a name that no public DNS has.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from evaluator.http.deferred import Deferred
from evaluator.http.messages import Call, MessageStream, Request, Response, Streamed, header

UnaryHandler: TypeAlias = Callable[[Call, bytes], bytes | Deferred[bytes]]
"""Takes a call and its message, returns the answer's. Raises RpcError; other errors become INTERNAL."""

StreamHandler: TypeAlias = Callable[[Call, bytes, MessageStream], None]
"""Starts a server stream: sets the MessageStream's callbacks, returns. Raises RpcError to refuse."""

Answer: TypeAlias = Response | Streamed | Deferred[Response]
"""What a handler of a plain HTTP request may return."""

HttpHandler: TypeAlias = Callable[[Request], Answer]


@dataclass(frozen=True, slots=True)
class Routes:
    """The paths and handlers of one port. All protocols share it: the content-type tells gRPC, gRPC-Web and
    Connect apart.

    An RPC path shadows a route of `http` with the same path.
    """

    unary: Mapping[str, UnaryHandler] = field(default_factory=dict)
    """The handler of each RPC path, `/package.Service/Method`."""
    streams: Mapping[str, StreamHandler] = field(default_factory=dict)
    json_unary: Mapping[str, UnaryHandler] = field(default_factory=dict)
    """The same calls with messages in protobuf's JSON mapping, for Connect; a call may lack it."""
    json_streams: Mapping[str, StreamHandler] = field(default_factory=dict)
    idempotent: frozenset[str] = frozenset()
    """RPC paths without side effects: Connect clients may call them by GET."""
    http: Mapping[tuple[str, str], HttpHandler] = field(default_factory=dict)
    """The handler of each method and path. A path that ends in `/*` is a prefix; an exact path comes before
    prefixes, a longer prefix before a shorter one. An unknown path gets 404, another method 405 with `allow`.
    """


NO_ROUTES: Final = Routes()


def merge(*several: Routes) -> Routes:
    """Return the routes of all arguments together. Raises ValueError for a path that two of them have."""
    taken: set[object] = set()
    for routes in several:
        own = {*routes.unary, *routes.streams, *routes.http}
        if twice := taken & own:
            raise ValueError(f"two handlers have one path: {', '.join(sorted(map(str, twice)))}")
        taken |= own
    return Routes(
        unary={path: run for routes in several for path, run in routes.unary.items()},
        streams={path: run for routes in several for path, run in routes.streams.items()},
        json_unary={path: run for routes in several for path, run in routes.json_unary.items()},
        json_streams={path: run for routes in several for path, run in routes.json_streams.items()},
        idempotent=frozenset().union(*(routes.idempotent for routes in several)),
        http={key: run for routes in several for key, run in routes.http.items()},
    )


_PRIVATE: Final = (".localhost", ".local", ".internal", ".home.arpa", ".svc")
"""Suffixes that no public DNS serves (RFC 6761, 6762, 8375, ICANN's `internal`), and Kubernetes' short names.
A cluster's own domain is `cluster.local` unless it was changed.
"""
_OWN_PAGES: Final = frozenset({"same-origin", "none"})
_REFUSAL: Final = (
    b"this port is not for web pages: call it by an IP address, localhost, or a name within the cluster\n"
)


def without_pages(routes: Routes) -> Routes:
    """Return the routes with each plain HTTP handler refusing requests of web pages with 403."""
    return replace(routes, http={key: _without_pages(handler) for key, handler in routes.http.items()})


def _without_pages(handler: HttpHandler) -> HttpHandler:
    def check_host(request: Request) -> Answer:
        if is_of_page(request):
            return Response(403, _REFUSAL, (("content-type", "text/plain; charset=utf-8"),))
        return handler(request)

    return check_host


def is_of_page(request: Request) -> bool:
    """Return whether a page of another site may have sent the request: browsers say so, or `host` is a public
    name.
    """
    site = header(request.headers, "sec-fetch-site")
    if site is not None and site not in _OWN_PAGES:
        return True
    host = header(request.headers, "host")
    return host is not None and _is_public(host)


def _is_public(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    name = name.strip("[]").rstrip(".").lower()
    if "." not in name or name.endswith(_PRIVATE):
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return True
    return False
