"""CORS for scripts of browsers (https://fetch.spec.whatwg.org/#http-cors-protocol), set up as in flagd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evaluator.http.messages import Headers, Request, Response, header

if TYPE_CHECKING:
    from collections.abc import Sequence

METHODS: Final = frozenset({"HEAD", "GET", "POST", "PUT", "PATCH", "DELETE"})
EXPOSED: Final = (
    "accept",
    "accept-encoding",
    "accept-post",
    "connect-accept-encoding",
    "connect-content-encoding",
    "content-encoding",
    "etag",
    "grpc-accept-encoding",
    "grpc-encoding",
    "grpc-message",
    "grpc-status",
    "grpc-status-details-bin",
    "retry-after",
)
"""Response headers that scripts may read beside those that every script may."""
PREFLIGHT_SECONDS: Final = 7200
"""Seconds for which a browser may cache the answer to a preflight; none caches it for longer."""

_VARIES: Final = ("vary", "origin")
_PREFLIGHT_VARIES: Final = ("vary", "origin, access-control-request-method, access-control-request-headers")
_EXPOSES: Final = ("access-control-expose-headers", ", ".join(EXPOSED))
# These values go back in response headers, whose encoded form is cached: long ones would fill the cache.
_ORIGIN_CHARACTERS: Final = 512
_REQUESTED_CHARACTERS: Final = 2048


class Cors:
    """The origins whose scripts may read a port's answers. Without any, or with `*`, all may.

    Case does not matter. One `*` in an origin matches any characters: `https://*.example.com`, or
    `*.example.com` for any scheme. Raises ValueError for an origin with more than one `*`.
    """

    def __init__(self, origins: Sequence[str] = ()) -> None:
        lowered = [origin.strip().lower() for origin in origins]
        for origin in lowered:
            if not origin or origin.count("*") > 1:
                raise ValueError(
                    f"allowed origin {origin!r}: give a whole origin such as "
                    "https://example.com, with at most one *"
                )
        self._everyone = not lowered or "*" in lowered
        self._exact = frozenset(origin for origin in lowered if "*" not in origin)
        self._wildcards = [
            (start, end) for start, star, end in (origin.partition("*") for origin in lowered) if star
        ]
        self._public = (_VARIES, ("access-control-allow-origin", "*"), _EXPOSES)

    def allows(self, origin: str) -> bool:
        """Return whether scripts of `origin` may read answers."""
        if self._everyone:
            return True
        origin = origin.lower()
        return len(origin) <= _ORIGIN_CHARACTERS and (
            origin in self._exact
            or any(
                len(origin) >= len(start) + len(end) and origin.startswith(start) and origin.endswith(end)
                for start, end in self._wildcards
            )
        )

    def preflight(self, request: Request) -> Response | None:
        """Answer a browser's preflight; return None for any other OPTIONS request."""
        method = header(request.headers, "access-control-request-method")
        if method is None:
            return None
        origin = header(request.headers, "origin")
        wanted = header(request.headers, "access-control-request-headers") or ""
        if (
            origin is None
            or not self.allows(origin)
            or method.upper() not in METHODS
            or len(wanted) > _REQUESTED_CHARACTERS
        ):
            return Response(204, b"", (_PREFLIGHT_VARIES,))
        headers = (
            _PREFLIGHT_VARIES,
            ("access-control-allow-origin", "*" if self._everyone else origin),
            ("access-control-allow-methods", method.upper()),
            ("access-control-max-age", str(PREFLIGHT_SECONDS)),
        )
        # All headers are allowed; they are named because `*` would leave out `authorization`.
        named = (("access-control-allow-headers", wanted),) if wanted else ()
        return Response(204, b"", headers + named)

    def headers(self, request: Headers) -> Headers:
        """Return the CORS headers for the answer to a request with these headers."""
        origin = header(request, "origin")
        if origin is None or not self.allows(origin):
            return (_VARIES,)
        if self._everyone:
            return self._public
        return (_VARIES, ("access-control-allow-origin", origin), _EXPOSES)
