"""Which origins may read answers, and which headers say so to browsers."""

from __future__ import annotations

import pytest

from evaluator.http.cors import EXPOSED, METHODS, PREFLIGHT_SECONDS, Cors
from evaluator.http.grpc_framing import frame
from evaluator.http.limits import Limits
from evaluator.http.messages import Headers, Streamed
from evaluator.http.routes import Routes
from tests.unit.evaluator.http.asking import VERSIONS, Answer, Asking
from tests.unit.evaluator.http.serving import ROUTES, echo

OURS = "https://app.example.com"
TABLE = Routes(
    unary=ROUTES.unary,
    streams=ROUTES.streams,
    json_unary={"/t.T/Echo": echo},
    http={**ROUTES.http, ("GET", "/s"): lambda _: Streamed(200, (), lambda body: body.finish(b"last"))},
)


def client_of(version: str, *origins: str) -> Asking:
    return Asking(version, TABLE, Limits(body_bytes=100), Cors(origins))


def preflight(client: Asking, origin: str | None, method: str = "POST", wanted: str = "") -> Answer:
    sent: Headers = (("access-control-request-method", method),)
    sent += (("origin", origin),) if origin else ()
    sent += (("access-control-request-headers", wanted),) if wanted else ()
    return client.ask("/t.T/Echo", b"", sent, "OPTIONS")


@pytest.mark.parametrize(
    ("allowed", "origin", "answer"),
    [
        ((), "https://any.where", True),
        ((), "null", True),
        (("*",), "https://any.where", True),
        (("https://a.b", "*"), "https://any.where", True),
        (("https://a.b",), "https://a.b", True),
        (("https://A.b ",), "HTTPS://a.B", True),
        (("https://a.b",), "http://a.b", False),
        (("https://a.b",), "https://a.b:8443", False),
        (("https://a.b",), "https://a.b.evil", False),
        (("https://a.b",), "null", False),
        (("https://*.a.b",), "https://x.y.a.b", True),
        (("https://*.a.b",), "http://x.a.b", False),
        (("https://*.a.b",), "https://a.b", False),
        (("*.a.b",), "http://x.a.b", True),
        (("*.a.b",), "http://xa.b", False),
        (("http://localhost:*",), "http://localhost:3000", True),
        (("ab*ba",), "aba", False),
        (("*.a.b",), "http://" + "x" * 600 + ".a.b", False),
    ],
)
def test_an_origin_is_allowed_or_not(allowed: tuple[str, ...], origin: str, answer: bool) -> None:
    assert Cors(allowed).allows(origin) is answer


@pytest.mark.parametrize("origin", ["", " ", "https://*.*.a.b"])
def test_an_origin_that_makes_no_sense_is_refused(origin: str) -> None:
    with pytest.raises(ValueError, match="allowed origin"):
        Cors((origin,))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_preflight_is_answered_before_any_handler(version: str) -> None:
    found = preflight(client_of(version), OURS, wanted="authorization,connect-protocol-version")
    assert (found.status, found.body) == (204, b"")
    assert found["access-control-allow-origin"] == "*"
    assert found["access-control-allow-methods"] == "POST"
    assert found["access-control-allow-headers"] == "authorization,connect-protocol-version"
    assert found["access-control-max-age"] == str(PREFLIGHT_SECONDS)
    assert "origin" in found["vary"]


@pytest.mark.parametrize("method", sorted(METHODS))
def test_flagds_methods_are_allowed(method: str) -> None:
    assert preflight(client_of("HTTP/2"), OURS, method)["access-control-allow-methods"] == method


@pytest.mark.parametrize(
    ("origin", "method", "wanted"),
    [
        ("https://other.example.com", "POST", ""),
        (None, "POST", ""),
        (OURS, "TRACE", ""),
        (OURS, "POST", "x" * 3000),
    ],
)
def test_a_preflight_that_is_not_allowed_says_nothing_of_origins(
    origin: str | None, method: str, wanted: str
) -> None:
    found = preflight(client_of("HTTP/1.1", OURS), origin, method, wanted)
    assert found.status == 204
    assert not found["access-control-allow-origin"]


def test_options_that_ask_for_no_permission_are_ordinary() -> None:
    found = client_of("HTTP/1.1").ask("/t.T/Echo", b"", (("origin", OURS),), "OPTIONS")
    assert found.status == 405


KINDS = {
    "plain": ("/", "GET", b"", ()),
    "streamed": ("/s", "GET", b"", ()),
    "missing": ("/no", "GET", b"", ()),
    "connect": ("/t.T/Echo", "POST", b"{}", (("content-type", "application/json"),)),
    "grpc-web": ("/t.T/Echo", "POST", frame(b""), (("content-type", "application/grpc-web"),)),
    "stream": ("/t.T/Count", "POST", frame(b"a"), (("content-type", "application/grpc-web"),)),
    "too large": ("/t.T/Echo", "POST", bytes(200), (("content-type", "application/json"),)),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_of_any_kind_names_its_origin(version: str, kind: str) -> None:
    path, method, body, sent = KINDS[kind]
    found = client_of(version, OURS).ask(path, body, (*sent, ("origin", OURS)), method)
    assert found["access-control-allow-origin"] == OURS
    assert found["vary"] == "origin"
    assert (
        {"grpc-status", "grpc-message", "etag"}
        <= set(found["access-control-expose-headers"].split(", "))
        <= set(EXPOSED)
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("origin", [(), (("origin", "https://other.example.com"),)])
def test_another_origin_learns_only_that_answers_differ(version: str, origin: Headers) -> None:
    found = client_of(version, OURS).ask("/", b"", origin, "GET")
    assert found.status == 200
    assert [name for name, _ in found.headers if name.startswith("access-control")] == []
    assert found["vary"] == "origin"


@pytest.mark.parametrize("version", VERSIONS)
def test_without_cors_no_header_is_sent(version: str) -> None:
    found = Asking(version, TABLE).ask("/", b"", (("origin", OURS),), "GET")
    assert not found["access-control-allow-origin"]
    assert not found["vary"]
