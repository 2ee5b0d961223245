"""Requests whose heads are plain are answered as the parser would have them, whatever comes around them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.http.h1.connection import Http1Peer
from evaluator.http.h1.head import read_plain
from evaluator.http.h1.reader import Reader
from evaluator.http.messages import Request, Response
from evaluator.http.routes import Routes
from evaluator.http.server.limits import Limits
from tests.unit.evaluator.http.serving import Line

ASK = b"POST /a?b HTTP/1.1\r\nhost: h\r\n"
PLAIN = [
    ASK + b"content-length: 5\r\n\r\nhello",
    ASK + b"content-length: 4\r\n\r\n\r\n\r\n",
    ASK + b"\r\n",
    ASK + b"content-length: 0\r\n\r\n",
    ASK + b"X-Y: z\r\nContent-Length: 2\r\n\r\n{}",
    ASK + b"authorization: Bearer t:u\r\ncontent-length: 2\r\n\r\n{}",
    ASK + b"x: \xe9\r\ny: 1\r\n\r\n",
    b"GET /a%20b HTTP/1.1\r\nhost: h\r\n\r\n",
    b"HEAD /a HTTP/1.1\r\nhost: h\r\n\r\n",
]
UNUSUAL = [
    ASK + b"connection: close\r\ncontent-length: 2\r\n\r\n{}",
    ASK + b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\n{}",
    ASK + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n{}",
    ASK + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ASK + b"content-length: 2\n\n{}",
    ASK + b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}",
    ASK + b"content-length: +2\r\n\r\n{}",
    ASK + b"content-length: \xb2\r\n\r\n{}",
    ASK + b"host: i\r\n\r\n",
    ASK + b"x: 1\r\nX: 2\r\n\r\n",
    ASK + b"x: " + b"y" * 5_000 + b"\r\n\r\n",
    ASK + b"x: \r\n\r\n",
    ASK + b"x:y\r\n\r\n",
    ASK + b"x:  y\r\n\r\n",
    ASK + b"x: y \r\n\r\n",
    ASK + b"x: y\r\n z\r\n\r\n",
    ASK + b"x y: z\r\n\r\n",
    ASK + b"x : z\r\n\r\n",
    ASK + b"x: a\0b\r\n\r\n",
    ASK + b"x: a\rb\r\n\r\n",
    ASK + b"x\r\n\r\n",
    ASK + b"content-length: 5\r\n\r\nhell",
    b"POST /a HTTP/1.1\r\n\r\n",
    b"GET  /a HTTP/1.1\r\nhost: h\r\n\r\n",
    b"GET http://h/a HTTP/1.1\r\nhost: h\r\n\r\n",
    b"GET /a#b HTTP/1.1\r\nhost: h\r\n\r\n",
    b"GET /\xe9 HTTP/1.1\r\nhost: h\r\n\r\n",
    b"GET /a HTTP/1.0\r\n\r\n",
    b"GET /a HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
    b"CONNECT h:1 HTTP/1.1\r\nhost: h\r\n\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"nothing that is known\r\n\r\n",
]


def answer(request: Request) -> Response:
    head = f"{request.method} {request.path} {request.query} {request.headers} "
    return Response(200, head.encode() + request.body)


def answers(pieces: list[bytes], *, plain: bool = True) -> tuple[list[bytes], bool]:
    line = Line(Http1Peer, routes=Routes(http={("GET", "/*"): answer, ("POST", "/*"): answer}))
    with pytest.MonkeyPatch.context() as patched:
        if not plain:
            patched.setattr(Reader, "_plain", lambda _, data: data)
        return [line.feed(piece) for piece in pieces], line.over()


@given(st.data())
def test_plain_heads_are_read_as_the_parser_reads_them(data: st.DataObject) -> None:
    sent = b"".join(data.draw(st.lists(st.sampled_from(PLAIN + UNUSUAL), max_size=12)))
    cuts = data.draw(st.lists(st.integers(0, len(sent)), max_size=12).map(sorted))
    pieces = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    assert answers(pieces) == answers(pieces, plain=False)


@given(
    st.sampled_from(PLAIN + UNUSUAL),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
)
def test_a_changed_byte_makes_no_difference_either(sent: bytes, changes: list[tuple[int, int]]) -> None:
    changed = bytearray(sent)
    for at, byte in changes:
        changed[at % len(changed)] = byte
    pieces = [bytes(changed) + PLAIN[0]]
    assert answers(pieces) == answers(pieces, plain=False)


@pytest.mark.parametrize("sent", PLAIN)
def test_a_plain_request_is_read_to_its_end(sent: bytes) -> None:
    found = read_plain(b"before" + sent + b"behind", 6, Limits(), "")
    assert found is not None
    assert found[1] == 6 + len(sent)


@pytest.mark.parametrize("sent", UNUSUAL)
def test_what_is_unusual_is_left_to_the_parser(sent: bytes) -> None:
    assert read_plain(sent, 0, Limits(), "") is None
