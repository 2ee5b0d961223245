"""Requests whose heads came before are answered as if they had been parsed, whatever comes around them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.http.heads import Heads
from evaluator.http.http1 import Http1Peer
from evaluator.http.reader import Reader
from evaluator.http.routes import Request, Response, Routes
from tests.unit.evaluator.http.serving import Line

ASK = b"POST /a?b HTTP/1.1\r\nhost: h\r\n"
REQUESTS = [
    ASK + b"content-length: 5\r\n\r\nhello",
    ASK + b"content-length: 5\r\n\r\nother",
    ASK + b"content-length: 4\r\n\r\n\r\n\r\n",
    ASK + b"\r\n",
    ASK + b"content-length: 0\r\n\r\n",
    ASK + b"x: y\r\ncontent-length: 2\r\n\r\n{}",
    ASK + b"connection: keep-alive\r\ncontent-length: 2\r\n\r\n{}",
    ASK + b"connection: close\r\ncontent-length: 2\r\n\r\n{}",
    ASK + b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\n{}",
    ASK + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n{}",
    ASK + b"authorization: Bearer t\r\ncontent-length: 2\r\n\r\n{}",
    ASK + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ASK + b"content-length: 2\n\n{}",
    ASK + b"x: " + b"y" * 3_000 + b"\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: h\r\n\r\n",
    b"HEAD /a HTTP/1.1\r\nhost: h\r\n\r\n",
    b"GET /a HTTP/1.0\r\n\r\n",
    b"GET /a HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"nothing that is known\r\n\r\n",
]


class Parsed(Heads):
    """Knows none."""

    def learn(self, data: bytes, request: Request) -> None:
        """Keep nothing."""


def answer(request: Request) -> Response:
    head = f"{request.method} {request.path} {request.query} {request.headers} "
    return Response(200, head.encode() + request.body)


def connection(heads: Heads) -> Line[Http1Peer]:
    found = Line(Http1Peer, routes=Routes(http={("GET", "/a"): answer, ("POST", "/a"): answer}))
    found.port.heads = heads
    return found


@given(st.data())
def test_what_is_known_makes_no_difference(data: st.DataObject) -> None:
    sent = b"".join(data.draw(st.lists(st.sampled_from(REQUESTS), max_size=12)))
    cuts = data.draw(st.lists(st.integers(0, len(sent)), max_size=12).map(sorted))
    pieces = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    heads, parsed = Heads(), connection(Parsed())
    for each in REQUESTS:
        connection(heads).feed(each, each)
    known = connection(heads)
    assert [known.feed(piece) for piece in pieces] == [parsed.feed(piece) for piece in pieces]
    assert known.over() == parsed.over()


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What goes to the parser."""
    seen: list[bytes] = []
    parse = Reader._parse

    def parsed(self: Reader, data: bytes) -> None:
        seen.append(data)
        parse(self, data)

    monkeypatch.setattr(Reader, "_parse", parsed)
    return seen


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 5, 6, 14, 15])
def test_a_request_like_an_earlier_one_is_not_parsed(spied: list[bytes], number: int) -> None:
    heads, asked = Heads(), REQUESTS[number]
    answers = [connection(heads).feed(asked) for _ in range(3)]
    assert (len(spied), len(set(answers))) == (1, 1)


@pytest.mark.parametrize("number", [8, 9, 10, 11, 13])
def test_what_is_framed_otherwise_or_is_not_to_be_kept_is_parsed_each_time(
    spied: list[bytes], number: int
) -> None:
    heads = Heads()
    for _ in range(3):
        connection(heads).feed(REQUESTS[number])
    assert len(spied) == 3


def test_no_more_heads_are_kept_than_a_port_has_room_for() -> None:
    heads: Any = Heads()
    one = connection(heads)
    for number in range(1_000):
        one.feed(ASK + b"x: %d\r\n\r\n" % number)
    assert 0 < len(heads._known) <= 64


def test_a_body_that_is_not_all_there_is_waited_for() -> None:
    one = connection(Heads())
    one.feed(REQUESTS[0])
    assert one.feed(REQUESTS[0][:-1]) == b""
    assert one.feed(b"!").endswith(b"hell!")
