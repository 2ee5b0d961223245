"""Where bytes of others are read as integers, one of any size is taken or refused."""

from __future__ import annotations

import ast
import asyncio
import base64
import contextlib
import os
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson
import pytest

from controller.proxy.users import seconds_left
from evaluator.host.backoff import retry_after
from evaluator.http import h2_frames
from evaluator.http.grpc_framing import only_message
from evaluator.http.grpc_framing import timeout_seconds as grpc_seconds
from evaluator.http.hpack import encode_block
from evaluator.http.http1_peer import Http1Peer
from evaluator.http.http2_peer import Http2Peer
from evaluator.http.messages import RpcError
from evaluator.http.rpc import timeout_seconds as connect_seconds
from evaluator.sync.config import OAuth, Provider, SourceConfig
from evaluator.sync.follower import accept
from evaluator.sync.http_source import Client, Tokens
from evaluator.sync.schedule import CAP
from evaluator.sync.source import Delivery, SourceFault
from evaluator.wire.resolve_request import read_usual
from evaluator.wire.sync_messages import read_selector
from tests.fuzz.requests import routes
from tests.fuzz.target import nothing_fails
from tests.go import ROOT
from tests.sync_sources import HttpPeer, respond
from tests.unit.evaluator.http import wire
from tests.unit.evaluator.http.asking import VERSIONS, Asking
from tests.unit.evaluator.http.serving import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from http.server import BaseHTTPRequestHandler
    from types import FrameType

INTEGERS: Final = (
    0, 1, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**399,
    -1, -(2**31), -(2**63), -(2**63) - 1, -(10**399),
)  # fmt: skip
TEXTS: Final = (*map(str, INTEGERS), "9" * 5_000)
"""Five thousand digits are more than Python itself reads."""
FILES: Final = (
    "evaluator/http/*.py",
    "evaluator/wire/*.py",
    "evaluator/sync/*.py",
    "controller/proxy/users.py",
)
READERS: Final = frozenset({
    "int", "float", "from_bytes", "unpack", "unpack_from", "iter_unpack", "loads", "fromisoformat",
    "parsedate_to_datetime", "FromString", "_read_integer", "_length",
})  # fmt: skip
"""What makes integers of bytes: functions of Python, and ours of varints."""
OWN: Final = frozenset({
    ("evaluator/http/grpc_framing.py", "_status"),
    ("evaluator/http/rpc.py", "trailer_frame"),
    ("evaluator/sync/grpc_source.py", "__init__"),
})  # fmt: skip
"""Functions whose integers are the program's: codes of answers, options."""


EVALUATIONS: Final = (
    "/ofrep/v1/evaluate/flags/targeted",
    "/flagd.evaluation.v2.Service/ResolveInt",
    "/flagd.evaluation.v1.Service/ResolveFloat",
)


def varint(number: int) -> bytes:
    """As many bytes as the number has, be it too large for the format."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


def low_bytes(number: int, size: int) -> bytes:
    """What a field of so many bytes has of it."""
    return (number % (1 << 8 * size)).to_bytes(size)


def http1_heads(text: str) -> None:
    for head in (f"content-length: {text}", f"content-length: 1\r\ncontent-length: {text}"):
        sent = f"POST / HTTP/1.1\r\nhost: h\r\n{head}\r\n\r\nx".encode()
        assert Line(Http1Peer).feed(sent)[9:12] in {b"", b"200", b"400", b"413"}


def http1_chunks(text: str) -> None:
    sizes = [text, f"{abs(int(text)):x}" if len(text) < 4_000 else "f" * 5_000]
    for size in sizes:
        sent = f"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n{size}\r\nx\r\n".encode()
        assert Line(Http1Peer).feed(sent)[9:12] in {b"", b"400", b"413"}


def http2_lengths(text: str) -> None:
    for values in ((text,), ("1", text), (text, text)):
        block = encode_block([*wire.HEAD, *(("content-length", value) for value in values)])
        line = Line(Http2Peer)
        line.feed(wire.GREETING)
        assert refusals(line.feed(wire.headers_frame(1, block), wire.data_frame(1))) <= {h2_frames.RST_STREAM}


def refusals(output: bytes) -> set[int]:
    """Which frames of `output` refuse a stream or end the connection."""
    return {kind for kind, *_ in wire.parse_frames(output)} & {h2_frames.RST_STREAM, h2_frames.GOAWAY}


def http2_frames(number: int) -> None:
    """Each fixed field of a frame; those that are left out of 32 bits make a frame of the wrong size."""
    word, identifier = low_bytes(number, 4), number % 2**32
    opened = wire.headers_frame(1, flags=h2_frames.END_HEADERS)
    size = h2_frames.head(h2_frames.DATA, 0, 1, number % 2**24)
    priority = wire.headers_frame(
        3, word + b"\x10" + wire.BLOCK, h2_frames.END_HEADERS | h2_frames.WITH_PRIORITY
    )
    whole = [
        size, priority, h2_frames.frame(h2_frames.PRIORITY, 0, 1, word + b"\x10"),
        *(h2_frames.frame(h2_frames.RST_STREAM, 0, stream, word) for stream in (0, 1)),
        *(h2_frames.frame(h2_frames.WINDOW_UPDATE, 0, stream, word) for stream in (0, 1)),
        *(h2_frames.frame(h2_frames.SETTINGS, 0, 0, low_bytes(key, 2) + word)
          for key in (*range(10), identifier)),
        h2_frames.frame(h2_frames.GOAWAY, 0, 0, word + word),
        h2_frames.frame(h2_frames.DATA, 0, identifier, b"x"),
        h2_frames.frame(h2_frames.HEADERS, h2_frames.END_HEADERS, identifier, wire.BLOCK),
    ]  # fmt: skip
    for sent in (*whole, *(h2_frames.frame(kind, 0, 0, low_bytes(number, 170)) for kind in range(11))):
        line = Line(Http2Peer)
        line.feed(wire.GREETING, opened)
        line.feed(sent, wire.data_frame(1))


def hpack_integers(number: int) -> None:
    """An index, a name's index, the size of the table, the lengths of a name and a value."""
    tail = varint(max(0, abs(number) - 1))
    for first in (b"\xff", b"\x7f", b"\x0f", b"\x1f", b"\x3f", b"\x00\x7f", b"\x00\xff", b"\x01\x7f"):
        line = Line(Http2Peer)
        line.feed(wire.GREETING)
        line.feed(wire.headers_frame(1, first + tail))


def rpc_timeouts(text: str) -> None:
    for read, value in ((connect_seconds, text), *((grpc_seconds, text + unit) for unit in "HMSmun")):
        with contextlib.suppress(RpcError):
            assert 0 <= read(value) <= 99_999_999 * 3_600


def rpc_lengths(number: int) -> None:
    for flag in (b"\0", b"\1"):
        with contextlib.suppress(RpcError):
            assert only_message(flag + low_bytes(number, 4) + b"x", "gzip", 10_000) == b"x"


def varints(number: int) -> None:
    size = varint(abs(number))
    for tag in (
        b"\x0a",
        b"\x12",
        b"\x12\x08\x0a",
        b"\x12\x05\x0a\x03\x0a",
        b"\x12\x07\x0a\x05\x0a\x01k\x12",
        b"\x08",
    ):
        message = tag + size + b"x"
        read_usual(message)
        with contextlib.suppress(RpcError):
            read_selector(message)


def evaluation_contexts(text: str) -> None:
    """A number of a JSON document, and the binary one that is nearest."""
    for version in VERSIONS:
        for path in EVALUATIONS:
            body = f'{{"flagKey": "integer", "context": {{"targetingKey": {text}, "tier": {text}}}}}'.encode()
            answer = Asking(version, routes()).ask(path, body, (("content-type", "application/json"),))
            assert answer.status in {200, 400}


def tokens(text: str) -> None:
    for name in ("exp", "nbf", "iat"):
        claims = base64.urlsafe_b64encode(f'{{"{name}": {text}}}'.encode()).decode()
        assert 0 <= seconds_left(f"e30.{claims}.x", 1e9, unlimited=60.0) <= 2**53


def pauses(text: str) -> None:
    dates = [
        date.format(text)
        for date in (
            "Thu, {} Jan 1970 00:00:00 GMT",
            "Thu, 01 Jan {} 00:00:00 GMT",
            "Thu, 01 Jan 1970 {}:00:00 GMT",
            "Thu, 01 Jan 1970 00:00:00 +{}",
        )
    ]
    assert all(0 <= retry_after(asked, 10.0, CAP) <= 10 for asked in (text, *dates))


def sources_answers(text: str) -> None:
    """A server's content length, and for how long a token of it is valid."""
    peer = HttpPeer()
    token = f'{{"access_token": "t", "expires_in": {text}}}'.encode()
    try:
        for body, length in ((b"{}", text), (token, str(len(token)))):
            peer.answer = partial(respond_once, body=body, length=length)
            asyncio.run(ask_source(peer.port))
    finally:
        peer.close()


def respond_once(request: BaseHTTPRequestHandler, body: bytes, length: str) -> bool:
    respond(request, 200, body, Content_Length=length)
    request.close_connection = True
    return True


async def ask_source(port: int) -> None:
    client = Client(SourceConfig(f"http://127.0.0.1:{port}/flags.json", Provider.HTTP))
    given = Tokens(OAuth(f"http://127.0.0.1:{port}/token", "me", "it"), lambda: 0.0)
    try:
        with contextlib.suppress(SourceFault):
            assert await given.token(client) == "t"
        with contextlib.suppress(SourceFault):
            await client.request(f"http://127.0.0.1:{port}/", {}, 1_000)
    finally:
        client.close()


def deliveries(text: str) -> None:
    """A number wherever a flag set may have one, and in the mark of flags that were left out."""
    rule = f'"defaultVariant": "a", "targeting": {{"+": [{text}, 1]}}'
    flag = f'{{"state": "ENABLED", "variants": {{"a": {text}}}, {rule}}}'
    left_out = orjson.dumps(f"[{text}]").decode()
    metadata = f'{{"n": {text}, "flagstaff.dev/left-out": {left_out}}}'
    document = f'{{"flags": {{"k": {flag}}}, "metadata": {metadata}}}'.encode()
    accept(Delivery((("flags.json", document),)), None)


def of_integer(case: Callable[[int], None]) -> Callable[[str], None]:
    def feed(text: str) -> None:
        case(int(text) if len(text) < 4_000 else 8**4_000)

    return feed


CASES: Final[dict[str, Callable[[str], None]]] = {
    **{case.__name__: case for case in (
        http1_heads, http1_chunks, http2_lengths, rpc_timeouts, evaluation_contexts, tokens, pauses,
        sources_answers, deliveries,
    )},
    **{case.__name__: of_integer(case) for case in (http2_frames, hpack_integers, rpc_lengths, varints)},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_integer_of_any_size_is_taken_or_refused(name: str) -> None:
    for text in TEXTS:
        with nothing_fails():
            CASES[name](text)


def parsers() -> Iterator[tuple[str, str]]:
    """File and name of each function that makes integers of bytes."""
    for pattern in FILES:
        for file in sorted(ROOT.glob(pattern)):
            if not file.name.endswith("_pb2.py"):
                path = file.relative_to(ROOT).as_posix()
                tree = ast.parse(file.read_text(encoding="utf-8"))
                functions = [
                    node
                    for node in ast.walk(tree)
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                ]
                yield from ((path, function.name) for function in functions if reads_integers(function))


def reads_integers(function: ast.AST) -> bool:
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return any(getattr(call, "id", getattr(call, "attr", "")) in READERS for call in calls)


@pytest.mark.skipif(os.environ.get("FLAGSTAFF_NATIVE") == "1", reason="what is compiled is called unseen")
def test_every_parser_of_integers_gets_them() -> None:
    called: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            called.add((frame.f_code.co_filename, frame.f_code.co_name))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        for case in CASES.values():
            case("1")
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    reached = {(file.removeprefix(f"{ROOT}/"), name) for file, name in called}
    assert set(parsers()) - OWN - reached == set()
    assert set(parsers()) > OWN
