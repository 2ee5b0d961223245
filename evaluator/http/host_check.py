"""Refuses requests of web pages on ports that are not for them.

The same-origin policy keeps the answers of another host from a page, unless the page has its own name
resolved to this machine (DNS rebinding). Then `host` is a name of the page's domain. Callers of a management
port name it by an address, or by a name that no public DNS has.
"""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from evaluator.http.messages import Request, Response, header

if TYPE_CHECKING:
    from evaluator.http.routes import Answer, HttpHandler, Routes

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
