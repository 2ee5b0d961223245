"""Calls of the Connect protocol, over both HTTP versions."""

from __future__ import annotations

import contextlib
import gzip
import json
from base64 import b64encode, urlsafe_b64encode
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.http.grpc_framing import frame
from evaluator.http.limits import Limits
from evaluator.http.messages import Call, Code, MessageStream, RpcError
from evaluator.http.routes import Routes
from evaluator.http.rpc import (
    ERRORS,
    end_of_stream,
    error_response,
    parse_query,
    query_message,
    timeout_seconds,
)
from tests.unit.evaluator.http.asking import VERSIONS, Asking
from tests.unit.evaluator.http.serving import ROUTES, count, fail, refuse

if TYPE_CHECKING:
    from evaluator.http.messages import Headers

JSON = (("content-type", "application/json"),)
PROTO = (("content-type", "application/proto"),)
STREAM = (("content-type", "application/connect+json"),)


def shout(call: Call, message: bytes) -> bytes:
    return message.upper()


def answer_refused(call: Call, message: bytes, stream: MessageStream) -> None:
    refuse(call, message)


def answer_failed(call: Call, message: bytes, stream: MessageStream) -> None:
    fail(call, message)


TABLE = Routes(
    unary=ROUTES.unary,
    streams={"/t.T/Count": count, "/t.T/Refused": answer_refused},
    json_unary={"/t.T/Echo": shout, "/t.T/Fail": fail, "/t.T/Refuse": refuse},
    json_streams={"/t.T/Count": count, "/t.T/Refused": answer_refused, "/t.T/Failed": answer_failed},
    idempotent=frozenset({"/t.T/Echo", "/t.T/Refuse"}),
    http=ROUTES.http,
)


@pytest.fixture(params=VERSIONS)
def client(request: pytest.FixtureRequest) -> Asking:
    return Asking(request.param, TABLE, Limits(body_bytes=1000))


def envelopes(body: bytes) -> list[tuple[int, bytes]]:
    found = []
    while body:
        end = 5 + int.from_bytes(body[1:5])
        found.append((body[0], body[5:end]))
        body = body[end:]
    return found


@pytest.mark.parametrize(
    ("content_type", "answer"),
    [
        ("application/json", b"ABC"),
        ("application/json; charset=utf-8", b"ABC"),
        ('Application/JSON;charset="UTF-8"', b"ABC"),
        ("application/proto", b"abc"),
    ],
)
def test_a_unary_call_is_a_post(client: Asking, content_type: str, answer: bytes) -> None:
    found = client.ask("/t.T/Echo", b"abc", (("content-type", content_type),))
    assert (found.status, found.body) == (200, answer)
    assert found["content-type"] == content_type.partition(";")[0].lower()
    assert found["content-length"] == "3"


@pytest.mark.parametrize(
    ("path", "sent", "code"),
    [
        ("/t.T/Echo", (("content-type", "text/plain"),), 415),
        ("/t.T/Echo", (("content-type", "application/json; charset=latin-1"),), 415),
        ("/t.T/Echo", (("content-type", "application/connect+json"),), 415),
        ("/t.T/Echo", (), 415),
        ("/t.T/Count", JSON, 415),
        ("/t.T/Unknown", JSON, 404),
        ("/t.T/Echo", (*JSON, ("connect-protocol-version", "1")), 200),
        ("/t.T/Echo", (*JSON, ("connect-protocol-version", "2")), 400),
        ("/t.T/Echo", (*JSON, ("connect-timeout-ms", "5000")), 200),
        ("/t.T/Echo", (*JSON, ("connect-timeout-ms", "soon")), 400),
        ("/t.T/Echo", (*JSON, ("content-encoding", "identity")), 200),
        ("/t.T/Echo", (*JSON, ("content-encoding", "br")), 501),
        ("/t.T/Echo", (*JSON, ("content-encoding", "gzip")), 400),
        ("/t.T/Refuse", JSON, 404),
        ("/t.T/Fail", JSON, 500),
    ],
)
def test_a_request_has_its_status(client: Asking, path: str, sent: Headers, code: int) -> None:
    assert client.ask(path, b"abc", sent).status == code


def test_415_says_what_is_accepted(client: Asking) -> None:
    accepted = client.ask("/t.T/Echo", b"", (("content-type", "a/b"),))["accept-post"].split(", ")
    assert accepted[:2] == ["application/json", "application/proto"]
    accepted = client.ask("/t.T/Count", b"", (("content-type", "a/b"),))["accept-post"].split(", ")
    assert accepted[:2] == ["application/connect+json", "application/connect+proto"]


def test_an_error_has_a_code_and_a_message(client: Asking) -> None:
    found = client.ask("/t.T/Refuse", b"", PROTO)
    assert (found.status, found["content-type"]) == (404, "application/json")
    assert json.loads(found.body) == {"code": "not_found", "message": "flag 'ß' is 100% missing\n"}


def test_every_code_has_a_name_and_a_status() -> None:
    assert set(ERRORS) == set(Code) - {Code.OK}
    assert error_response(RpcError(Code.UNAVAILABLE, "")).body == b'{"code":"unavailable"}'


def test_an_error_message_that_is_no_unicode_can_be_sent() -> None:
    assert json.loads(error_response(RpcError(Code.UNKNOWN, "\ud800")).body)["code"] == "unknown"


@pytest.mark.parametrize("headers", [JSON, PROTO])
def test_a_gzipped_request_is_expanded(client: Asking, headers: Headers) -> None:
    sent = gzip.compress(b"A" * 900)
    found = client.ask("/t.T/Echo", sent, (*headers, ("content-encoding", "gzip")))
    assert found.body == b"A" * 900


def test_no_body_is_not_expanded(client: Asking) -> None:
    assert client.ask("/t.T/Echo", b"", (*JSON, ("content-encoding", "gzip"))).status == 200


@pytest.mark.parametrize(
    ("body", "encoding"),
    [(bytes(1001), "identity"), (gzip.compress(bytes(100_000)), "gzip")],
    ids=["as it is", "once expanded"],
)
def test_too_large_a_request_is_resource_exhausted(client: Asking, body: bytes, encoding: str) -> None:
    found = client.ask("/t.T/Echo", body, (*JSON, ("content-encoding", encoding)))
    assert (found.status, json.loads(found.body)["code"]) == (429, "resource_exhausted")


def test_too_large_a_request_for_a_plain_route_is_413(client: Asking) -> None:
    assert client.ask("/", bytes(1001), JSON).status == 413


# -- GET -----------------------------------------------------------------------------------------------------


def pack(message: bytes) -> str:
    return urlsafe_b64encode(message).decode()


@pytest.mark.parametrize(
    ("query", "code", "answer"),
    [
        ("connect=v1&encoding=json&message=abc", 200, b"ABC"),
        ("message=a%20b%2Bc+d&encoding=json&more=1", 200, b"A B+C D"),
        ("message=%c3%9f&encoding=proto", 200, "ß".encode()),
        (f"encoding=proto&base64=1&message={pack(b'>>>???')}", 200, b">>>???"),
        ("encoding=proto&base64=1&message=YQ", 200, b"a"),
        ("encoding=proto&base64=1&message=YQ%3D%3D", 200, b"a"),
        ("encoding=proto&base64=1&message=Y", 400, None),
        ("encoding=proto&base64=1&message=%ff%fe", 400, None),
        ("encoding=proto&base64=0&message=YQ", 200, b"YQ"),
        (f"encoding=proto&base64=1&compression=gzip&message={pack(gzip.compress(b'abc'))}", 200, b"abc"),
        ("encoding=proto&compression=gzip&message=", 200, b""),
        ("encoding=proto&compression=br&message=a", 501, None),
        ("encoding=json", 400, None),
        ("message=abc", 415, None),
        ("encoding=xml&message=abc", 415, None),
        ("connect=v2&encoding=json&message=abc", 400, None),
        ("encoding=json&message=" + "a" * 1001, 429, None),
        ("encoding=json&message=a&" + "&".join("x=y" for _ in range(100)), 400, None),
    ],
    ids=range(18),
)
def test_a_call_without_side_effects_may_be_a_get(
    client: Asking, query: str, code: int, answer: bytes | None
) -> None:
    found = client.ask(f"/t.T/Echo?{query}", method="GET")
    assert found.status == code
    assert answer is None or found.body == answer


def test_the_error_of_a_get_is_an_error(client: Asking) -> None:
    found = client.ask("/t.T/Refuse?encoding=json&message=", method="GET")
    assert (found.status, json.loads(found.body)["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("path", "method", "allow"),
    [("/t.T/Fail", "GET", "POST"), ("/t.T/Count", "GET", "POST"), ("/t.T/Echo", "PUT", "GET, HEAD, POST")],
)
def test_other_methods_are_not_allowed(client: Asking, path: str, method: str, allow: str) -> None:
    found = client.ask(f"{path}?encoding=json&message=", method=method)
    assert (found.status, found["allow"]) == (405, allow)


@given(st.binary(max_size=200))
@settings(max_examples=100)
def test_any_message_survives_a_query(message: bytes) -> None:
    query = parse_query(f"message={pack(message).rstrip('=')}&base64=1")
    assert query_message(query, 0) == message
    assert query_message(parse_query(f"message={quote(message)}"), 0) == message


@given(st.text(alphabet=st.characters(max_codepoint=255), max_size=100))
@settings(max_examples=100)
def test_any_query_is_read_or_refused(query: str) -> None:
    with contextlib.suppress(RpcError):
        assert len(query_message(parse_query(query), 50)) <= 50


# -- streams -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["json", "proto"])
def test_a_stream_is_in_envelopes(client: Asking, codec: str) -> None:
    content_type = f"application/connect+{codec}"
    found = client.ask("/t.T/Count", frame(b"abc"), (("content-type", content_type),))
    assert (found.status, found["content-type"], found.ended) == (200, content_type, True)
    assert envelopes(found.body) == [(0, b"0"), (0, b"1"), (0, b"2"), (2, b"{}")]


@pytest.mark.parametrize(
    ("path", "body", "sent", "code"),
    [
        ("/t.T/Refused", frame(b""), (), "not_found"),
        ("/t.T/Failed", frame(b""), (), "internal"),
        ("/t.T/Count", b"", (), "invalid_argument"),
        ("/t.T/Count", frame(b"a") * 2, (), "invalid_argument"),
        ("/t.T/Count", b"\2" + frame(b"a")[1:], (), "invalid_argument"),
        ("/t.T/Count", b"\1" + frame(b"a")[1:], (), "invalid_argument"),
        ("/t.T/Count", b"\1" + frame(b"a")[1:], (("connect-content-encoding", "br"),), "unimplemented"),
        ("/t.T/Count", frame(b"a"), (("connect-timeout-ms", "-1"),), "invalid_argument"),
        ("/t.T/Count", frame(b"a"), (("connect-protocol-version", "2"),), "invalid_argument"),
        ("/t.T/Count", frame(bytes(1000)), (), "resource_exhausted"),
    ],
    ids=range(10),
)
def test_what_went_wrong_stands_at_the_end_of_the_stream(
    client: Asking, path: str, body: bytes, sent: Headers, code: str
) -> None:
    found = client.ask(path, body, (*STREAM, *sent))
    ((flags, end),) = envelopes(found.body)
    assert (found.status, found["content-type"], flags) == (200, "application/connect+json", 2)
    assert json.loads(end)["error"]["code"] == code
    assert found.ended


def test_a_compressed_envelope_is_expanded(client: Asking) -> None:
    sent = b"\1" + frame(gzip.compress(b"abc"))[1:]
    found = client.ask("/t.T/Count", sent, (*STREAM, ("connect-content-encoding", "gzip")))
    assert len(envelopes(found.body)) == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stream_ends_at_its_deadline(version: str) -> None:
    opened: list[MessageStream] = []
    ends: list[int] = []
    routes = Routes(json_streams={"/t.T/S": lambda *call: opened.append(call[2])})
    client = Asking(version, routes)
    client.ask("/t.T/S", frame(b""), (*STREAM, ("connect-timeout-ms", "1500")))
    opened[0].on_closed = lambda: ends.append(1)
    opened[0].send(b"one")
    client.line.peer.sweep(client.line.now + 1)
    assert not client.read().ended
    client.line.peer.sweep(client.line.now + 2)
    (_, one), (flags, end) = envelopes(client.read().body)
    assert (one, flags, json.loads(end)["error"]["code"]) == (b"one", 2, "deadline_exceeded")
    assert (client.read().ended, opened[0].closed, ends) == (True, True, [1])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stream_keeps_the_rules_of_all_streams(version: str) -> None:
    opened: list[MessageStream] = []
    client = Asking(version, Routes(json_streams={"/t.T/S": lambda *call: opened.append(call[2])}))
    client.ask("/t.T/S", frame(b""), STREAM)
    (stream,), offers = opened, []
    assert (stream.writable, stream.on_writable, stream.on_closed) == (True, None, None)
    stream.on_writable = lambda: offers.append(stream.writable)
    client.line.peer.pause_writing()
    assert not stream.send(b"one")
    client.line.peer.resume_writing()
    assert offers == [True]
    for _ in range(2):
        stream.close(Code.UNAVAILABLE, "gone")
    assert client.read().body == end_of_stream(Code.UNAVAILABLE, "gone")
    assert not stream.writable


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stream_that_is_cut_ends_with_an_error(version: str) -> None:
    routes = Routes(json_streams={"/t.T/S": lambda *_: None})
    client = Asking(version, routes)
    client.ask("/t.T/S", frame(b""), STREAM)
    client.line.peer.cut()
    assert client.read().body == end_of_stream(Code.UNAVAILABLE, "shutting down")
    assert client.read().ended


@pytest.mark.parametrize(("value", "seconds"), [("0", 0.0), ("1500", 1.5), ("9" * 10, 9999999.999)])
def test_a_timeout_is_milliseconds(value: str, seconds: float) -> None:
    assert timeout_seconds(value) == seconds


@pytest.mark.parametrize("value", ["", "-1", "1.5", "1e3", "9" * 11, "٣"])
def test_another_timeout_is_refused(value: str) -> None:
    with pytest.raises(RpcError):
        timeout_seconds(value)


@given(
    body=st.binary(max_size=100),
    path=st.sampled_from(["/t.T/Echo", "/t.T/Count", "/t.T/Refused"]),
    content_type=st.sampled_from(
        ["application/json", "application/proto", "application/connect+json",
         "application/connect+proto"]
    ),
    encoding=st.sampled_from(["gzip", "identity", "br", "\xff"]),
    version=st.sampled_from(VERSIONS),
)  # fmt: skip
@settings(max_examples=150)
def test_any_bytes_are_answered_and_the_next_call_too(
    body: bytes, path: str, content_type: str, encoding: str, version: str
) -> None:
    client = Asking(version, TABLE)
    sent = (("content-encoding", encoding), ("connect-content-encoding", encoding))
    found = client.ask(path, body, (("content-type", content_type), *sent))
    assert found.ended
    assert found.status in {200, 400, 404, 415, 501}
    assert client.ask("/t.T/Echo", b"on it goes", JSON).body == b"ON IT GOES"


def test_base64_of_the_other_alphabet_is_taken_too() -> None:
    query = {"message": b64encode(b">>>???"), "base64": b"1"}
    assert query_message(query, 0) == b">>>???"
