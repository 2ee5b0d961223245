"""The table from protocol and path to a handler that knows nothing of frames.

Unary handlers are plain functions, called in place on the loop: they must return within microseconds, or
defer their answer. What lasts longer is a stream, which is notified when it may write and never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from evaluator.http.deferred import Deferred
from evaluator.http.messages import Call, MessageStream, Request, Response, Streamed

UnaryHandler: TypeAlias = Callable[[Call, bytes], bytes | Deferred[bytes]]
"""(call, message) -> message. Raises RpcError; any other error is logged and answered INTERNAL."""

StreamHandler: TypeAlias = Callable[[Call, bytes, MessageStream], None]
"""Starts a server stream: keeps the MessageStream, sets its callbacks, returns. Raises RpcError to refuse."""

Answer: TypeAlias = Response | Streamed | Deferred[Response]
"""What a plain request may come to."""

HttpHandler: TypeAlias = Callable[[Request], Answer]


@dataclass(frozen=True, slots=True)
class Routes:
    """What one port answers. All protocols share it: gRPC, gRPC-Web and Connect are known by content-type.

    An RPC path serves no plain request: it shadows a route of `http` with the same path.
    """

    unary: Mapping[str, UnaryHandler] = field(default_factory=dict)
    """By RPC path, `/package.Service/Method`."""
    streams: Mapping[str, StreamHandler] = field(default_factory=dict)
    json_unary: Mapping[str, UnaryHandler] = field(default_factory=dict)
    """The same calls with messages in protobuf's JSON mapping, for Connect; a missing path has no JSON."""
    json_streams: Mapping[str, StreamHandler] = field(default_factory=dict)
    idempotent: frozenset[str] = frozenset()
    """RPC paths without side effects: Connect may GET them."""
    http: Mapping[tuple[str, str], HttpHandler] = field(default_factory=dict)
    """By (method, exact path), or (method, prefix ending in `/*`): the longest match wins. An unknown path is
    404, a known path with another method 405 with `allow`.
    """


def merged(*several: Routes) -> Routes:
    """All of them on one port. Raises ValueError for a path that two of them answer."""
    taken: set[object] = set()
    for routes in several:
        own = {*routes.unary, *routes.streams, *routes.http}
        if twice := taken & own:
            raise ValueError(f"answered by two: {', '.join(sorted(map(str, twice)))}")
        taken |= own
    return Routes(
        unary={path: run for routes in several for path, run in routes.unary.items()},
        streams={path: run for routes in several for path, run in routes.streams.items()},
        json_unary={path: run for routes in several for path, run in routes.json_unary.items()},
        json_streams={path: run for routes in several for path, run in routes.json_streams.items()},
        idempotent=frozenset().union(*(routes.idempotent for routes in several)),
        http={key: run for routes in several for key, run in routes.http.items()},
    )
