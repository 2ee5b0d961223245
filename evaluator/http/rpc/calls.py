"""Answers RPCs of gRPC-Web and Connect, which are plain requests over either HTTP version: the path names the
handler, the content-type the protocol.

gRPC itself needs HTTP/2's trailers, and `h2.responses` answers it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from evaluator.http.messages import Code, Headers, Request, Response, RpcError, header, refusal
from evaluator.http.rpc import connect, grpc_web
from evaluator.http.rpc.endpoints import Stream, Unary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.http.routes import Answer, Routes

_WEB = {
    "application/grpc-web": grpc_web.BINARY,
    "application/grpc-web+proto": grpc_web.BINARY,
    "application/grpc-web-text": grpc_web.TEXT,
    "application/grpc-web-text+proto": grpc_web.TEXT,
}


Endpoint: TypeAlias = Unary | Stream


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC in all protocols but gRPC."""

    posts: Mapping[str, Endpoint]
    """What answers a POST of each content-type."""
    gets: connect.GetUnary | None

    def answer(self, request: Request) -> Answer:
        """Answer a request for the RPC's path."""
        if request.method == "POST":
            endpoint = self._endpoint_of(request.headers)
            if endpoint is not None:
                return endpoint.answer(request)
            return refusal(415, (("accept-post", ", ".join(self.posts)),))
        if self.gets is None:
            return refusal(405, (("allow", "POST"),))
        if request.method in {"GET", "HEAD"}:
            return self.gets.answer(request)
        return refusal(405, (("allow", "GET, HEAD, POST"),))

    def too_large(self, headers: Headers) -> Response:
        """Return the response to a request whose body is over the limit, by its headers."""
        endpoint = self._endpoint_of(headers)
        if endpoint is None:
            return refusal(413)
        return endpoint.format.refusal(RpcError(Code.RESOURCE_EXHAUSTED, "request too large"))

    def _endpoint_of(self, headers: Headers) -> Endpoint | None:
        content_type = header(headers, "content-type") or ""
        return self.posts.get(content_type) or self.posts.get(canonical(content_type))


def methods(routes: Routes, limit: int) -> dict[str, Method]:
    """Return the RPCs of `routes` by path; a message may have `limit` bytes."""
    parameters = {}
    for path in {*routes.unary, *routes.streams, *routes.json_unary, *routes.json_streams}:
        posts = _posts(routes, path, limit)
        parameters[path] = Method(posts, _gets(posts, limit) if path in routes.idempotent else None)
    return parameters


def _content_type(name: str) -> Headers:
    return (("content-type", name),)


def canonical(content_type: str) -> str:
    """Return a content-type in lower case and without `charset=utf-8`, the encoding of all text here."""
    name, _, parameters = content_type.lower().partition(";")
    if parameters.replace(" ", "").replace('"', "") in {"", "charset=utf-8"}:
        return name.strip()
    return content_type


def _posts(routes: Routes, path: str, limit: int) -> dict[str, Endpoint]:
    posts: dict[str, Endpoint] = {}
    for codec, unaries, streams in (
        ("json", routes.json_unary, routes.json_streams),
        ("proto", routes.unary, routes.streams),
    ):
        unary, stream = f"application/{codec}", f"application/connect+{codec}"
        if path in unaries:
            posts[unary] = Unary(unaries[path], connect.ConnectUnaryFormat(_content_type(unary), limit))
        if path in streams:
            posts[stream] = Stream(streams[path], connect.ConnectStreamFormat(_content_type(stream), limit))
    for name, framing in _WEB.items():
        web = grpc_web.WebFormat(_content_type(name), framing, limit)
        if path in routes.unary:
            posts[name] = Unary(routes.unary[path], web)
        elif path in routes.streams:
            posts[name] = Stream(routes.streams[path], web)
    return posts


def _gets(posts: Mapping[str, Endpoint], limit: int) -> connect.GetUnary:
    codecs = {codec: posts.get(f"application/{codec}") for codec in ("json", "proto")}
    return connect.GetUnary(
        {name: codec for name, codec in codecs.items() if isinstance(codec, Unary)}, limit
    )
