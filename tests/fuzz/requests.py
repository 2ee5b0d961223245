"""Requests as their handlers see them: OFREP, Connect in JSON and binary, gRPC-Web; and what is framed
within.

An input of `request` is written like HTTP/1: a method and a target, header lines, an empty line, the body;
without host or lengths.
"""

from __future__ import annotations

import contextlib
import gzip
from base64 import b64encode, urlsafe_b64encode
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import orjson
from google.protobuf import json_format
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2

from evaluator.http import grpc_framing as framing
from evaluator.http import rpc
from evaluator.http.cors import Cors
from evaluator.http.deferred import Deferred, at_once
from evaluator.http.dispatch import Dispatch, split_target
from evaluator.http.limits import Limits
from evaluator.http.messages import Code, Request, Response, RpcError, Streamed, Zipped
from evaluator.http.routes import merge
from evaluator.server import evaluate_flags as ofrep
from evaluator.server import evaluation, json_rpc, protobuf
from evaluator.server.event_stream import EventStreams
from evaluator.server.sse import ChangeStreams
from tests.fuzz.target import Target, Wrong, nothing_fails, same
from tests.worlds.evaluator import ALL, FakeTimers, answer_of, call, in_place, unhurried_queue, world

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.routes import Routes
    from tests.worlds.evaluator import World

LIMITS = Limits(body_bytes=8_192)
LONGEST = 8_192
STATUSES = frozenset({200, 204, 304, 400, 401, 403, 404, 405, 408, 413, 415, 429, 499, 500, 501, 503, 504})
WORDS = (
    "POST /ofrep/v1/evaluate/flags/targeted\n", "POST /ofrep/v1/evaluate/flags\n",
    "GET /ofrep/v1/sse/flagSetId=set\n", "POST /flagd.evaluation.v2.Service/ResolveString\n",
    "POST /flagd.evaluation.v1.Service/ResolveAll\n",
    "GET /flagd.evaluation.v1.Service/ResolveBoolean?connect=v1&encoding=json&base64=1&compression=gzip"
    "&message=",
    "POST /schema.v1.Service/EventStream\n", "content-type: application/json\n",
    "content-type: application/proto\n", "content-type: application/connect+json\n",
    "content-type: application/grpc-web-text\n", "content-type: application/grpc-web+proto\n",
    "content-encoding: gzip\n", "grpc-encoding: gzip\n", "grpc-timeout: 1S\n", "connect-timeout-ms: 10\n",
    "connect-protocol-version: 1\n", "flagd-selector: flagSetId=set\n", 'if-none-match: W/"x"\n',
    "origin: https://a.example\n", "access-control-request-method: POST\n",
    '{"flagKey":"targeted","context":{"tier":"gold","targetingKey":"u"}}', '{"context":{', "boolean",
    "object", "no/default", "%00", "\\ud800",
)  # fmt: skip
CALLS: dict[str, tuple[Any, Any]] = {
    "ResolveBoolean": (evaluation_pb2.ResolveBooleanRequest, evaluation_pb2.ResolveBooleanResponse),
    "ResolveString": (evaluation_pb2.ResolveStringRequest, evaluation_pb2.ResolveStringResponse),
    "ResolveInt": (evaluation_pb2.ResolveIntRequest, evaluation_pb2.ResolveIntResponse),
    "ResolveFloat": (evaluation_pb2.ResolveFloatRequest, evaluation_pb2.ResolveFloatResponse),
    "ResolveObject": (evaluation_pb2.ResolveObjectRequest, evaluation_pb2.ResolveObjectResponse),
}


@cache
def served_world() -> World:
    """One flag of each kind, under a flag set id."""
    return world(*ALL, flagSetId="set")


@cache
def routes() -> Routes:
    """What ports 8013 and 8016 answer, on one."""
    parts = served_world()
    changes = ChangeStreams(parts.store, FakeTimers(), unhurried_queue())
    spoken = [
        evaluation.CodecEndpoints(
            answers,
            EventStreams(
                parts.store, FakeTimers(), unhurried_queue(), run=in_place, encode=codec.encode_event
            ),
        )
        for answers, codec in ((parts.evaluation, protobuf), (parts.json, json_rpc))
    ]
    return merge(evaluation.routes(*spoken), ofrep.routes(parts.ofrep, changes))


@cache
def dispatch() -> Dispatch:
    """The way to them."""
    return Dispatch(routes(), LIMITS, Cors(("https://a.example",)))


class Body:
    """A ByteStream that takes everything."""

    def __init__(self) -> None:
        self.on_writable: Callable[[], None] | None = None
        self.on_closed: Callable[[], None] | None = None
        self.closed = self.gzip = False
        self.on_ended: Callable[[Code], None] | None = None
        self.sent = b""

    @property
    def writable(self) -> bool:
        return not self.closed

    def send(self, piece: bytes | Zipped) -> bool:
        assert isinstance(piece, bytes)
        self.sent += piece
        return True

    def finish(self, last: bytes = b"") -> None:
        self.sent += last
        self.closed = True

    def close(self, code: Code = Code.OK, message: str = "") -> None:
        self.closed = True

    def break_off(self) -> None:
        self.close()


def read(content: bytes) -> Request:
    """The request that an input means."""
    head, _, body = content.partition(b"\n\n")
    first, *lines = head.decode("latin-1").split("\n")
    method, _, target = first.partition(" ")
    path, query = split_target(target)
    fields = (line.partition(":") for line in lines)
    headers = tuple((name.strip().lower(), value.strip()) for name, _, value in fields)
    return Request(method, path, query, headers, body, "127.0.0.1:1")


def request(content: bytes) -> None:
    """Every request has an answer, of a status that we know, and no handler fails."""
    asked = read(content)
    with nothing_fails():
        answer = answer_to(asked)
        if isinstance(answer, Streamed):
            stream(answer)
    if answer.status not in STATUSES:
        raise Wrong(f"status {answer.status}")
    if isinstance(answer, Response) and ("content-type", "application/json") in answer.headers:
        orjson.loads(answer.body)
    same(answer_to(asked).status, answer.status, "asked again")


def answer_to(asked: Request) -> Response | Streamed:
    """The answer, also where it is deferred."""
    answer, _ = dispatch().answer(asked)
    return answer.finish(lambda: at_once(answer.steps)) if isinstance(answer, Deferred) else answer


def stream(answer: Streamed) -> None:
    """Open one and hang up."""
    body = Body()
    with contextlib.suppress(RpcError):
        answer.start(body)
    if answer.framing.ending is not None and not body.closed:
        body.finish(answer.framing.ending(Code.UNAVAILABLE, "shutting down"))
    body.closed = True
    if body.on_closed is not None:
        body.on_closed()


def agreement(content: bytes) -> None:
    """A JSON request that protobuf's own reader takes is answered in JSON and in binary alike, by
    OFREP too.
    """
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        return
    if not isinstance(document, dict):
        return
    for method, (asking, answering) in CALLS.items():
        try:
            binary = json_format.Parse(content, asking(), ignore_unknown_fields=True)
        except (json_format.ParseError, UnicodeDecodeError):
            return
        path = f"/flagd.evaluation.v2.Service/{method}"
        ours = outcome(routes().json_unary[path], content)
        theirs = outcome(routes().unary[path], binary.SerializeToString())
        if isinstance(ours, bytes):
            # Read as our clients do, so that spelling does not count.
            ours = json_format.Parse(ours, answering())
            same(ours, answering.FromString(theirs), f"{method}, in JSON")
        else:
            same(ours, theirs, f"{method}, in JSON")
    by_ofrep(content)


def outcome(handler: Any, message: bytes) -> Any:
    """The answer's bytes, or the error's code."""
    try:
        return answer_of(handler(call(), message))
    except RpcError as error:
        return error.code


def by_ofrep(content: bytes) -> None:
    """Each flag singly and in bulk."""
    bulk = answer_of(served_world().ofrep.bulk(Request("POST", ofrep.PREFIX, "", (), content, "")))
    for entry in orjson.loads(bulk.body).get("flags", ()):
        path = f"{ofrep.PREFIX}/{entry['key']}"
        single = answer_of(served_world().ofrep.single(Request("POST", path, "", (), content, "")))
        same(orjson.loads(single.body), entry, f"{entry['key']}, asked for alone")


def binary(content: bytes) -> None:
    """A protobuf message is answered, or refused with a status."""
    with nothing_fails():
        for path, handler in routes().unary.items():
            try:
                handler(call(), content)
            except RpcError as error:
                if error.code is Code.INTERNAL:
                    raise Wrong(f"{path}: {error.message}") from error


def check_framing(content: bytes) -> None:
    """Framing is refused with a status or gives a message within the limit, and takes back what it framed."""
    for encoding in (None, "identity", "gzip", "br"):
        for web in (rpc.BINARY, rpc.TEXT):
            headers = () if encoding is None else (("grpc-encoding", encoding),)
            asked = Request("POST", "/", "", headers, content, "")
            try:
                message = rpc.read_message(asked, web, 1_000)
            except RpcError:
                continue
            if len(message) > 1_000:
                raise Wrong(f"{len(message)} bytes of 1000 allowed")
    packed = framing.frame(gzip.compress(content))
    same(framing.only_message(framing.frame(content), None, LONGEST), content, "framed")
    same(framing.only_message(b"\1" + packed[1:], "gzip", LONGEST), content, "compressed")
    times(content.decode("latin-1"))


def times(text: str) -> None:
    """Limits of time are positive or refused."""
    for seconds in (framing.timeout_seconds, rpc.timeout_seconds):
        try:
            if not 0 <= seconds(text) < 1e12:
                raise Wrong(f"{seconds(text)} seconds")
        except RpcError:
            continue


def query(content: bytes) -> None:
    """A query is refused with a status or read; what is written into one comes out again."""
    path, rest = split_target(content.decode("latin-1"))
    split_target(path)
    with contextlib.suppress(RpcError):
        rpc.query_message(rpc.parse_query(rest), 1_000)
    served_world().ofrep.bulk(Request("POST", ofrep.PREFIX, rest, (), b"", ""))
    packed = gzip.compress(content)
    for parameters in (
        {"message": content},
        {"message": urlsafe_b64encode(content).rstrip(b"="), "base64": "1"},
        {"message": urlsafe_b64encode(packed), "base64": "1", "compression": "gzip"},
    ):
        found = rpc.parse_query(urlencode({"connect": "v1", **parameters}))
        same(rpc.query_message(found, LONGEST), content, "a message in a query")
    same(rpc.read_message(_text(content), rpc.TEXT, LONGEST), content, "in base64")


def _text(content: bytes) -> Request:
    return Request("POST", "/", "", (), b64encode(framing.frame(content)), "")


TARGETS = {
    "request": Target(request, WORDS),
    "agreement": Target(agreement, WORDS[-7:], 2_048),
    "binary": Target(binary, ("\n\bboolean", "targeted", "\x12", "\n\x04tier\x12\x06\x1a\x04gold")),
    "framed": Target(check_framing, (gzip.compress(b""), "10S", "99999999n", b"\0\0\0\0\0")),
    "query": Target(query, ("connect=v1&", "encoding=json", "base64=1", "compression=gzip", "message=%7B%7D",
                            "flagConfigEtag=")),
}  # fmt: skip
