"""What a request's headers say of it on HTTP/2: a gRPC call, and for which handler, or a plain request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from evaluator.http.dispatch import split_target
from evaluator.http.framing import grpc_timeout, trailers_only
from evaluator.http.routes import (
    Call,
    Code,
    Headers,
    Response,
    Routes,
    RpcError,
    StreamHandler,
    UnaryHandler,
    header,
)
from evaluator.http.statuses import refusal

_CONTENT_TYPES = frozenset({"application/grpc", "application/grpc+proto"})


@dataclass(frozen=True, slots=True)
class Unary:
    """A request for a unary handler."""

    call: Call
    handler: UnaryHandler
    encoding: str | None
    """The request's `grpc-encoding`."""
    seconds: float | None
    """How long the caller waits for the answer, by `grpc-timeout`."""


@dataclass(frozen=True, slots=True)
class Streaming:
    """A request for a stream handler."""

    call: Call
    handler: StreamHandler
    encoding: str | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Plain:
    """A plain request, but for its body. Connect and gRPC-Web are plain requests too."""

    method: str
    path: str
    """Percent-decoded."""
    query: str
    headers: Headers
    """Without pseudo-headers; `:authority` is `host`."""


Meaning: TypeAlias = Unary | Streaming | Plain | Response | bytes


def is_grpc(headers: Headers) -> bool:
    """Whether the content-type says gRPC, of whatever kind but gRPC-Web."""
    content_type = header(headers, "content-type") or ""
    return content_type.startswith("application/grpc") and not content_type.startswith(
        "application/grpc-web"
    )


def choose(routes: Routes, headers: Headers, peer: str) -> Meaning:
    """What a request with `headers` is for. A Response or a header block (trailers only) refuses it as it stands."""
    if not is_grpc(headers):
        return _plain(headers)
    content_type = header(headers, "content-type") or ""
    if content_type.partition(";")[0].rstrip() not in _CONTENT_TYPES:
        return refusal(415)
    if header(headers, ":method") != "POST":
        return refusal(405, (("allow", "POST"),))
    return _call(routes, headers, peer)


def _call(routes: Routes, headers: Headers, peer: str) -> Unary | Streaming | bytes:
    path = header(headers, ":path") or ""
    unary, stream = routes.unary.get(path), routes.streams.get(path)
    try:
        seconds = grpc_timeout(headers)
    except RpcError as error:
        return trailers_only(error.code, error.message)
    call, encoding = Call(path, headers, peer), header(headers, "grpc-encoding")
    if unary is not None:
        return Unary(call, unary, encoding, seconds)
    if stream is not None:
        return Streaming(call, stream, encoding, seconds)
    return trailers_only(Code.UNIMPLEMENTED, f"unknown method {path}")


def _plain(headers: Headers) -> Plain:
    method, authority = header(headers, ":method") or "", header(headers, ":authority")
    path, query = split_target(header(headers, ":path") or "")
    rest = tuple(field for field in headers if not field[0].startswith(":"))
    if authority is not None and header(rest, "host") is None:
        rest = (("host", authority), *rest)
    return Plain(method, path, query, rest)
