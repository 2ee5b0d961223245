"""gRPC-Web calls, binary and in base64, over both HTTP versions."""

from __future__ import annotations

import gzip
import re
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.http.grpc_framing import frame
from evaluator.http.limits import Limits
from evaluator.http.messages import Code, MessageStream
from evaluator.http.routes import Routes
from evaluator.http.rpc import trailer_frame
from tests.unit.evaluator.http.asking import VERSIONS, Answer, Asking
from tests.unit.evaluator.http.serving import ROUTES

if TYPE_CHECKING:
    from evaluator.http.messages import Headers

BINARY = ("application/grpc-web", "application/grpc-web+proto")
TEXT = ("application/grpc-web-text", "application/grpc-web-text+proto")


@pytest.fixture(params=VERSIONS)
def client(request: pytest.FixtureRequest) -> Asking:
    return Asking(request.param, ROUTES, Limits(body_bytes=1000))


def call(client: Asking, path: str, body: bytes, content_type: str, sent: Headers = ()) -> Answer:
    body = b64encode(body) if content_type in TEXT else body
    return client.ask(path, body, (("content-type", content_type), ("x-grpc-web", "1"), *sent))


def parts(answer: Answer) -> list[tuple[int, bytes]]:
    """Flags and content of each frame in the body."""
    body, found = answer.body, []
    if answer["content-type"] in TEXT:
        body = b"".join(b64decode(piece) for piece in re.findall(rb"[^=]+=*", body))
    while body:
        end = 5 + int.from_bytes(body[1:5])
        found.append((body[0], body[5:end]))
        body = body[end:]
    return found


OK = (0x80, b"grpc-status: 0\r\n")


@pytest.mark.parametrize("content_type", [*BINARY, *TEXT])
@pytest.mark.parametrize("message", [b"", b"a", b"abc", bytes(700)], ids=len)
def test_a_message_comes_back(client: Asking, content_type: str, message: bytes) -> None:
    found = call(client, "/t.T/Echo", frame(message), content_type)
    assert (found.status, found["content-type"]) == (200, content_type)
    assert parts(found) == [(0, message), OK]


@pytest.mark.parametrize("content_type", [*BINARY, *TEXT])
def test_a_stream_is_frames_and_its_trailers_the_last(client: Asking, content_type: str) -> None:
    found = call(client, "/t.T/Count", frame(b"abc"), content_type)
    assert (found.status, found.ended) == (200, True)
    assert parts(found) == [(0, b"0"), (0, b"1"), (0, b"2"), OK]


@pytest.mark.parametrize("content_type", [BINARY[0], TEXT[0]])
@pytest.mark.parametrize(
    ("path", "body", "sent", "code"),
    [
        ("/t.T/Refuse", frame(b""), (), Code.NOT_FOUND),
        ("/t.T/Fail", frame(b""), (), Code.INTERNAL),
        ("/t.T/Echo", b"", (), Code.INTERNAL),
        ("/t.T/Echo", frame(b"a") * 2, (), Code.INTERNAL),
        ("/t.T/Echo", b"\1" + frame(b"a")[1:], (("grpc-encoding", "br"),), Code.UNIMPLEMENTED),
        ("/t.T/Count", frame(b"a"), (("grpc-timeout", "soon"),), Code.INTERNAL),
        ("/t.T/Count", b"", (), Code.INTERNAL),
        ("/t.T/Echo", frame(bytes(1500)), (), Code.RESOURCE_EXHAUSTED),
        ("/t.T/Count", frame(bytes(1500)), (), Code.RESOURCE_EXHAUSTED),
    ],
)
def test_what_went_wrong_stands_in_the_trailers(
    client: Asking, content_type: str, path: str, body: bytes, sent: Headers, code: Code
) -> None:
    found = call(client, path, body, content_type, sent)
    ((flags, trailers),) = parts(found)
    assert (found.status, flags) == (200, 0x80)
    assert trailers.startswith(b"grpc-status: %d\r\ngrpc-message: " % code)


def test_a_message_of_trailers_is_percent_encoded() -> None:
    assert trailer_frame(Code.NOT_FOUND, "ß\n")[5:] == b"grpc-status: 5\r\ngrpc-message: %C3%9F%0A\r\n"


def test_a_compressed_message_is_expanded(client: Asking) -> None:
    sent = b"\1" + frame(gzip.compress(b"abc"))[1:]
    found = call(client, "/t.T/Echo", sent, BINARY[0], (("grpc-encoding", "gzip"),))
    assert parts(found) == [(0, b"abc"), OK]


def test_what_is_not_base64_is_refused(client: Asking) -> None:
    found = client.ask("/t.T/Echo", b"%%%", (("content-type", TEXT[0]),))
    ((_, trailers),) = parts(found)
    assert trailers.startswith(b"grpc-status: 13\r\n")


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 7])
def test_base64_may_be_padded_wherever_its_sender_flushed(client: Asking, cut: int) -> None:
    sent = frame(b"abc")
    padded = b64encode(sent[:cut]) + b64encode(sent[cut:])
    found = client.ask("/t.T/Echo", padded, (("content-type", TEXT[0]),))
    assert parts(found) == [(0, b"abc"), OK]


@pytest.mark.parametrize("body", [b"=", b"A===", b"====", b"AA==" * 65])
def test_padding_for_its_own_sake_is_refused(client: Asking, body: bytes) -> None:
    ((_, trailers),) = parts(client.ask("/t.T/Echo", body, (("content-type", TEXT[0]),)))
    assert trailers.startswith(b"grpc-status: 13\r\n")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stream_ends_at_its_deadline(version: str) -> None:
    opened: list[MessageStream] = []
    client = Asking(version, Routes(streams={"/t.T/S": lambda *args: opened.append(args[2])}))
    call(client, "/t.T/S", frame(b""), BINARY[0], (("grpc-timeout", "1S"),))
    client.line.peer.sweep(client.line.now + 2)
    ((_, trailers),) = parts(client.read())
    assert trailers.startswith(b"grpc-status: 4\r\n")
    assert opened[0].closed


@pytest.mark.parametrize(
    ("version", "code"), [("HTTP/1.1", 415), ("HTTP/2", 200)], ids=["HTTP/1.1", "HTTP/2"]
)
def test_grpc_itself_is_for_http2_only(version: str, code: int) -> None:
    sent = (("content-type", "application/grpc"), ("te", "trailers"))
    assert Asking(version, ROUTES).ask("/t.T/Echo", frame(b""), sent).status == code


@given(
    body=st.binary(max_size=100),
    path=st.sampled_from(["/t.T/Echo", "/t.T/Count"]),
    content_type=st.sampled_from([*BINARY, *TEXT]),
    version=st.sampled_from(VERSIONS),
)
@settings(max_examples=150)
def test_any_bytes_are_answered_with_trailers(
    body: bytes, path: str, content_type: str, version: str
) -> None:
    client = Asking(version, ROUTES)
    found = client.ask(path, body, (("content-type", content_type),))
    assert (found.status, found.ended) == (200, True)
    assert parts(found)[-1][0] == 0x80
    assert parts(call(client, "/t.T/Echo", frame(b"on"), BINARY[0])) == [(0, b"on"), OK]
