from __future__ import annotations

import logging
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.http.http1_peer import Http1Peer
from evaluator.http.limits import Limits
from evaluator.http.messages import Response
from evaluator.http.routes import Routes
from tests.unit.evaluator.http.asking import VERSIONS, Asking
from tests.unit.evaluator.http.serving import DATE, Line


def line(**limits: float) -> Line[Http1Peer]:
    return Line(Http1Peer, Limits(**limits))  # type: ignore[arg-type] # names and numbers of Limits


def request(target: str = "/", method: str = "GET", headers: str = "", body: str = "") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nhost: h\r\n{headers}\r\n{body}".encode()


def post_request(body: str, headers: str = "") -> bytes:
    return request("/", "POST", f"content-length: {len(body)}\r\n{headers}", body)


CHUNKED = request("/", "POST", "transfer-encoding: chunked\r\n", "3\r\nabc\r\n1\r\nd\r\n0\r\nx: y\r\n\r\n")


def status(answer: bytes) -> int:
    return int(answer[9:12])


def statuses(answer: bytes) -> list[int]:
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]


def test_a_response_has_its_length_and_the_date() -> None:
    answer = line().feed(request("/a%20b?c=%20d").replace(b"/a", b"/tree/a"))
    head = f"HTTP/1.1 200 OK\r\ncontent-type: a/b\r\ndate: {DATE}\r\ncontent-length: 16\r\n\r\n"
    assert answer == head.encode() + b"/tree/a b|c=%20d"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (request("/"), 200),
        (request("http://host/"), 200),
        (request("/no"), 404),
        (request("/", "DELETE"), 405),
        (request("/tree/leaf", "PUT"), 200),
        (request("/tree/leaf"), 200),
        (request("/tree/other", "PUT"), 405),
        (request("/bug"), 500),
        (request("/t.T/Echo", "POST"), 415),
        (post_request("abc", "content-type: application/grpc\r\n"), 200),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (request("/", headers="host: other\r\n"), 400),
        (b"\x16\x03\x01 a TLS client", 400),
        (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", 400),
        (post_request("abc", "transfer-encoding: chunked\r\n"), 400),
        (request(headers="a: b\r\n c\r\n"), 400),
        (b"CONNECT h:1 HTTP/1.1\r\nhost: h\r\n\r\n", 404),
    ],
    ids=lambda value: repr(value[:24]) if isinstance(value, bytes) else None,
)
def test_a_request_is_answered_with_its_status(sent: bytes, code: int) -> None:
    assert status(line().feed(sent)) == code


def test_a_method_that_a_path_lacks_is_answered_with_those_it_has() -> None:
    assert b"\r\nallow: GET, HEAD, PUT\r\n" in line().feed(request("/tree/leaf", "PATCH"))


def test_head_is_get_without_the_body() -> None:
    answer = line().feed(request("/", "HEAD"))
    assert b"content-length: 2\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_a_failed_handler_is_logged_and_the_connection_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    assert statuses(line().feed(request("/bug") + request())) == [500, 200]
    assert "ValueError: a bug" in caplog.text


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("value", ["a\r\nb: c", "…", "\0"])
def test_a_header_that_would_forge_others_is_never_sent(version: str, value: str) -> None:
    routes = Routes(http={("GET", "/"): lambda _: Response(200, b"", (("x", value),))})
    logging.disable()
    answer = Asking(version, routes).ask("/", method="GET")
    logging.disable(logging.NOTSET)
    assert (answer.status, answer["x"]) == (500, "")


def test_a_chunked_body_arrives_whole_and_its_trailers_are_dropped() -> None:
    assert line().feed(CHUNKED).endswith(b"\r\n\r\nabcd")


@given(cuts=st.lists(st.integers(0, 500), max_size=12))
@settings(max_examples=150)
def test_chunking_makes_no_difference(cuts: list[int]) -> None:
    stream = (
        request("/tree/x?y") + post_request("hello", "expect: 100-continue\r\n") + CHUNKED + request("/no")
    )
    places = sorted({0, *(cut % len(stream) for cut in cuts), len(stream)})
    pieces = [stream[a:b] for a, b in pairwise(places)]
    answer = line().feed(*pieces).replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
    assert answer == line().feed(stream)


@given(st.binary(max_size=200))
@settings(max_examples=150)
def test_garbage_is_refused_or_awaited_but_never_raises(garbage: bytes) -> None:
    answered = line(header_bytes=64).feed(garbage, b"\r\n\r\n")
    assert answered == b"" or status(answered) >= 200


def test_pipelined_requests_are_answered_in_order_in_one_write() -> None:
    one = line()
    answer = one.feed(*[b"".join(post_request(f"<{number}>") for number in range(50))])
    assert [part.split(b">")[0] for part in answer.split(b"<")[1:]] == [b"%d" % n for n in range(50)]
    assert one.pipe.writes == 1


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (request(), True),
        (request(headers="connection: close\r\n"), False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", True),
        (CHUNKED, True),
        (
            CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"host", b"connection: keep-alive\r\nhost"),
            False,
        ),
    ],
    ids=["1.1", "close", "1.0", "1.0 kept", "1.1 chunked", "1.0 chunked"],
)
def test_a_connection_is_kept_as_its_client_asks(sent: bytes, kept: bool) -> None:
    one = line()
    assert (b"connection: close" in one.feed(sent)) is not kept
    assert one.over() is not kept
    assert status(one.feed(request()) or b"HTTP/1.1 000") == (200 if kept else 0)


@pytest.mark.parametrize(
    "last",
    [
        post_request("abc", "connection: close, upgrade\r\nupgrade: h2c\r\n"),
        b"POST / HTTP/1.0\r\nupgrade: h2c\r\nconnection: upgrade\r\ncontent-length: 3\r\n\r\nabc",
        b"CONNECT h:1 HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc",
        b"CONNECT h:1 HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
    ],
    ids=["upgrade and close", "upgrade of 1.0", "CONNECT with a body", "CONNECT and close"],
)
def test_nothing_behind_the_last_request_of_a_connection_is_answered(last: bytes) -> None:
    one = line()
    answer = one.feed(last + request() + request())
    assert len(statuses(answer)) == 1
    assert b"\r\nconnection: close\r\n" in answer
    assert one.over()


def test_a_client_that_expects_100_continue_gets_it() -> None:
    one = line()
    head, body = post_request("abc", "expect: 100-Continue\r\n").split(b"abc")[0], b"abc"
    assert one.feed(head) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert one.feed(body).endswith(b"abc")


@pytest.mark.parametrize("cut", range(0, 160, 7))
def test_an_upgrade_to_h2c_is_ignored_and_its_body_read(cut: int) -> None:
    headers = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
    sent = (
        post_request("abc", headers).replace(b"POST /", b"PUT /tree/leaf")
        + request("/", headers=headers)
        + request("/no")
    )
    answer = line().feed(sent[:cut], sent[cut:])
    assert statuses(answer) == [200, 200, 404]
    assert b"\r\n\r\nabcHTTP/1.1" in answer


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (post_request("x" * 11), 413),
        (post_request("x" * 10), 200),
        (request("/", "POST", "content-length: 11\r\nexpect: 100-continue\r\n"), 413),
        (request("/", "POST", "transfer-encoding: chunked\r\n", "6\r\n123456\r\n6\r\n1"), 0),
        (request("/", "POST", "transfer-encoding: chunked\r\n", "6\r\n123456\r\n6\r\n12345"), 413),
        (request("/" + "x" * 300), 431),
        (request(headers="x: " + "y" * 300 + "\r\n"), 431),
        (request(headers="x: y\r\n" * 200), 431),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_kept(sent: bytes, code: int) -> None:
    one = line(body_bytes=10, header_bytes=256)
    answer = one.feed(sent)
    assert (status(answer) if answer else 0) == code
    assert one.over() is (code in {413, 431})


@pytest.mark.parametrize("framing", ["content-length: 900000", "transfer-encoding: chunked"])
def test_an_unknown_path_is_refused_before_its_body_comes(framing: str) -> None:
    one = line()
    assert status(one.feed(request("/no", "POST", f"{framing}\r\n"))) == 404
    assert one.over()


def test_a_short_body_of_an_unknown_path_is_read_and_the_connection_kept() -> None:
    one = line()
    sent = request("/no", "POST", "content-length: 3\r\n", "abc") + request()
    assert statuses(one.feed(sent)) == [404, 200]
    assert not one.over()


def test_a_long_body_of_a_known_path_is_awaited() -> None:
    one = line()
    assert one.feed(request("/tree/leaf", "PUT", "content-length: 5000\r\n")) == b""
    assert status(one.feed(bytes(5000))) == 200


def test_a_header_without_an_end_is_refused() -> None:
    one = line(header_bytes=256)
    assert status(one.feed(b"GET / HTTP/1.1\r\nx: ", *[b"y" * 100] * 4)) == 431


def test_requests_before_a_bad_one_are_answered() -> None:
    one = line()
    assert statuses(one.feed(request() + request("/no") + b"rubbish\r\n\r\n" + request())) == [200, 404, 400]
    assert one.over()


@pytest.mark.parametrize(
    ("sent", "seconds", "code"),
    [
        (b"GET / HT", 2.0, 0),
        (b"GET / HT", 4.0, 408),
        (request("/", "POST", "content-length: 5\r\n", "ab"), 4.0, 0),
        (request("/", "POST", "content-length: 5\r\n", "ab"), 6.0, 408),
    ],
)
def test_a_slow_request_times_out(sent: bytes, seconds: float, code: int) -> None:
    one = line(header_seconds=3.0, body_seconds=5.0)
    one.feed(sent)
    answer = one.wait(seconds)
    assert (status(answer) if answer else 0) == code


def test_a_drip_of_bytes_does_not_put_off_the_time_limit() -> None:
    one = line()
    answers = [one.feed(b) + one.wait(0.5) for b in (b"G", b"E", b"T", b" ", b"/", b"a", b"b", b"c")]
    assert status(b"".join(answers)) == 408


def test_an_idle_connection_is_closed() -> None:
    one = line(idle_seconds=300)
    one.feed(request())
    assert not one.wait(299)
    assert not one.over()
    one.wait(50)
    assert one.over()


def test_a_refused_client_that_goes_on_sending_is_ignored_and_then_closed() -> None:
    one = line(body_bytes=10)
    one.feed(post_request("x" * 11))
    assert one.feed(b"x" * 1000, request()) == b""
    assert not one.pipe.closed
    one.wait(3)
    assert one.pipe.closed


def test_a_peer_that_reads_nothing_makes_us_keep_requests_not_responses() -> None:
    one = line()
    one.pipe.fills_after = 1
    first = one.feed(request("/large") * 100)
    assert len(first) < 200_000
    assert not one.pipe.reading
    one.peer.resume_writing()
    assert statuses(first + one.pipe.take()) == [200] * 100
    assert one.pipe.reading


@pytest.mark.parametrize(
    ("waiting", "seconds", "cut"),
    [(2_000_000, 4, False), (2_000_000, 8, True), (1_000, 100, False), (1_000, 400, True)],
)
def test_a_peer_that_reads_nothing_is_cut_off(waiting: int, seconds: float, cut: bool) -> None:
    one = line(body_seconds=5.0, idle_seconds=300, write_buffer_bytes=1_000_000)
    one.pipe.fills_after = 1
    one.feed(request("/large"))
    one.pipe.waiting = waiting
    one.wait(seconds)
    assert one.pipe.aborted is cut


def test_a_peer_that_reads_slowly_is_not_cut_off() -> None:
    one = line(body_seconds=5.0, write_buffer_bytes=1_000_000)
    one.pipe.fills_after = 1
    one.feed(request("/large"))
    for waiting in range(5_000_000, 1_000_000, -100_000):
        one.pipe.waiting = waiting
        one.wait(3)
    assert not one.pipe.aborted


def test_a_last_response_is_not_cut_short_for_a_peer_that_reads_slowly() -> None:
    one = line()
    one.pipe.fills_after = 1
    one.feed(request("/large", headers="connection: close\r\n"))
    for waiting in range(100_000, 50_000, -10_000):
        one.pipe.waiting = waiting
        one.wait(10)
    one.peer.resume_writing()
    assert not one.pipe.closed
    one.wait(0.5)
    assert one.pipe.closed


def test_a_refusal_is_said_once() -> None:
    one = line()
    one.pipe.fills_after = 1
    assert status(one.feed(b"rubbish\r\n\r\n")) == 400
    one.peer.resume_writing()
    assert one.pipe.take() == b""


def test_draining_ends_a_connection_with_its_next_response() -> None:
    one = line()
    one.feed(request()[:10])
    one.port.draining = True
    answer = one.feed(request()[10:] + request())
    assert statuses(answer) == [200]
    assert b"connection: close" in answer
    assert one.over()


def test_draining_closes_a_connection_that_is_silent() -> None:
    one = line()
    one.feed(request())
    one.port.draining = True
    one.wait(0.5)
    assert not one.over()
    one.wait(2)
    assert one.over()


def test_a_client_that_ends_its_side_gets_the_responses_it_is_owed() -> None:
    one = line()
    one.pipe.fills_after = 1
    one.feed(request("/large") * 3)
    assert one.peer.eof_received() is True
    one.peer.resume_writing()
    assert statuses(one.pipe.take()) == [200, 200]
    assert one.over()
