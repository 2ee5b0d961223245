"""Reason phrases of HTTP status codes, and responses without other content."""

from __future__ import annotations

from typing import Final

from evaluator.http.messages import Headers, Response

BODILESS: Final = frozenset({204, 304})
"""Statuses whose responses have neither a body nor a content-length."""
JSON: Final[Headers] = (("content-type", "application/json"),)
_TEXT: Final[Headers] = (("content-type", "text/plain; charset=utf-8"),)
_REASONS: Final = {
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    412: "Precondition Failed",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    499: "Client Closed Request",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


def reason_phrase(status: int) -> str:
    """Return the reason phrase of `status` (RFC 9110), or `Unknown`."""
    return _REASONS.get(status, "Unknown")


def refusal(status: int, headers: Headers = ()) -> Response:
    """Return a plain-text response that refuses a request with `status`."""
    return Response(status, reason_phrase(status).encode() + b"\n", _TEXT + headers)
