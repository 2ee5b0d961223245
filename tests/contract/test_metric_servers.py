"""Every kind of metric server, asked for real: values, no values, faults and logins."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Final

import pytest
import trustme
from aiohttp import web

from controller.runtime.secret_texts import Binding, SecretContent, hosts_of
from tests.contract.metric_servers import LOGIN, QUERIES, MetricApi, guarded_prometheus, prometheus
from tests.web_server import web_server
from tests.worlds.metrics import MetricWorld, metric_world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from controller.api.rollout_status import MetricStatus

if TYPE_CHECKING:
    Answer = Callable[[web.Request], Any]

KEYS: Final = {"datadog_api_key": b"key-of-the-api", "datadog_application_key": b"key-of-the-application"}
TYPES: Final = ("prometheus", "datadog", "http")


@pytest.fixture(scope="module")
def prometheus_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus(tmp_path_factory.mktemp("prometheus")) as address:
        yield address


@pytest.fixture
async def world() -> AsyncIterator[MetricWorld]:
    async with metric_world() as opened:
        opened.secrets["datadog"] = dict(KEYS)
        yield opened


@pytest.mark.parametrize(
    ("query", "verdict", "words"),
    [
        ("value", "Pass", None),
        ("scalar", "Pass", None),
        ("signs", "Pass", None),
        ("nothing", "Inconclusive", "no result"),
        ("NaN", "Inconclusive", "NaN"),
        ("infinite", "Error", "infinite"),
        ("minus infinite", "Error", "infinite"),
        ("several", "Error", "3 series; sum them"),
        ("matrix", "Error", "a matrix, not a vector"),
        ("text", "Error", "a string, not a vector"),
        ("refused", "Error", "127.0.0.1 answers 400 (bad_data)"),
    ],
)
async def test_prometheus(
    prometheus_address: str, world: MetricWorld, query: str, verdict: str, words: str | None
) -> None:
    world.template({"type": "prometheus", "address": prometheus_address}, QUERIES[query])
    status = await world.check()
    assert (status.verdict, status.value) == (verdict, 0.25 if verdict == "Pass" else None)
    assert words is None or words in (status.message or "")


async def test_prometheus_counts_samples(prometheus_address: str, world: MetricWorld) -> None:
    address = {"type": "prometheus", "address": prometheus_address}
    world.template(address, QUERIES["value"], samples=QUERIES["samples"])
    enough, few = await world.check(minSamples=40), await world.check(minSamples=41)
    assert (enough.verdict, enough.samples) == ("Pass", 40)
    assert (few.verdict, few.message) == ("Inconclusive", "40 samples, 41 are needed")


async def test_prometheus_with_a_login_and_an_authority_of_its_own(tmp_path: Any, world: MetricWorld) -> None:
    authority = trustme.CA()
    world.secrets["login"] = {"username": LOGIN[0].encode(), "password": LOGIN[1].encode()}
    world.secrets["wrong"] = {"username": b"ada", "password": b"battery staple"}
    world.secrets["authority"] = {"ca.crt": authority.cert_pem.bytes()}
    with guarded_prometheus(tmp_path, authority) as address:
        provider: dict[str, Any] = {"type": "prometheus", "address": address}
        provider |= {"secretRef": {"name": "login"}, "certSecretRef": {"name": "authority"}}
        world.template(provider, "vector(0.25)")
        assert (await world.check()).verdict == "Pass"
        world.template({**provider, "secretRef": {"name": "wrong"}}, "vector(0.25)")
        assert "answers 401; correct the Secret" in ((await world.check()).message or "")
        del provider["certSecretRef"]
        world.template(provider, "vector(0.25)")
        assert "certificate is not trusted" in ((await world.check()).message or "")


async def ask_api(
    world: MetricWorld, api: MetricApi, type_: str, query: str, **provider: Any
) -> MetricStatus:
    async with web_server(*api.routes()) as port:
        address = f"http://127.0.0.1:{port}"
        given: dict[str, Any] = {"type": type_, "address": address, **provider}
        if type_ == "datadog":
            given.setdefault("secretRef", {"name": "datadog"})
        elif type_ == "http":
            given["jsonPath"] = "$.data[0].value"
        world.template(given, query)
        return await world.check()


@pytest.mark.parametrize(
    ("query", "verdict", "words"),
    [
        ("value", "Pass", None),
        ("nothing", "Inconclusive", "no series"),
        ("no points", "Inconclusive", "no points"),
        ("several", "Error", "2 series; sum them"),
        ("refused", "Error", "Datadog refuses the query"),
    ],
)
async def test_datadog(world: MetricWorld, query: str, verdict: str, words: str | None) -> None:
    api = MetricApi()
    status = await ask_api(world, api, "datadog", query)
    assert (status.verdict, status.value) == (verdict, 0.25 if verdict == "Pass" else None)
    assert words is None or words in (status.message or "")
    (request,) = api.requests
    assert request.headers["DD-API-KEY"] == "key-of-the-api"
    assert request.headers["DD-APPLICATION-KEY"] == "key-of-the-application"
    assert int(request.query["to"]) - int(request.query["from"]) == 600, "ten intervals"


@pytest.mark.parametrize(
    ("query", "verdict", "words"),
    [
        ("value", "Pass", None),
        ("nothing", "Inconclusive", "nothing at $.data[0].value"),
        ("null", "Inconclusive", "nothing at"),
        ("object", "Error", "the value is no number"),
        ("NaN", "Inconclusive", "NaN"),
    ],
)
async def test_json(world: MetricWorld, query: str, verdict: str, words: str | None) -> None:
    status = await ask_api(world, MetricApi(), "http", f"/stats?q={query}&flag={{{{ flag }}}}")
    assert (status.verdict, status.value) == (verdict, 0.25 if verdict == "Pass" else None)
    assert words is None or words in (status.message or "")
    assert "another tenant" not in str(status)


async def test_values_of_variables_are_encoded_in_a_url(world: MetricWorld) -> None:
    api = MetricApi()
    odd = {"flags": ("a&q=object#?/é",)}
    async with web_server(*api.routes()) as port:
        world.template(
            {"type": "http", "address": f"http://127.0.0.1:{port}", "jsonPath": "$.data[0].value"},
            "/stats?q=value&flag={{ flag }}",
        )
        assert (await world.check(step=odd)).verdict == "Pass"
    assert api.requests[0].query["flag"] == "a&q=object#?/é"


async def _huge(_: web.Request) -> web.Response:
    return web.Response(body=b" " * (256 * 1024 + 1))


async def _hang(_: web.Request) -> web.Response:
    await asyncio.sleep(2)
    return web.Response()


async def _cut(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def _status(status: int, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text="password: hunter2", headers=headers)

    return answer


FAULTS: Final[dict[str, tuple[Answer, str]]] = {
    "400": (_status(400), "answers 400"),
    "401": (_status(401), "answers 401; correct the Secret"),
    "404": (_status(404), "answers 404"),
    "500": (_status(500), "answers 500"),
    "503": (_status(503), "answers 503"),
    "204": (_status(204), "answers 204"),
    "redirect": (_status(302, Location="/api/v1/elsewhere"), "redirects are not followed"),
    "text": (_status(200), "the answer is not JSON"),
    "huge": (_huge, "more than 262144 bytes"),
    "hang": (_hang, "no answer within 0.3 s"),
    "cut": (_cut, "the connection ended without an answer"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("type_", TYPES)
async def test_a_server_with_a_fault_is_an_error_that_repeats_no_text_of_it(
    world: MetricWorld, type_: str, fault: str
) -> None:
    answer, words = FAULTS[fault]
    async with web_server(web.get("/{path:.*}", answer)) as port:
        provider = {"type": type_, "address": f"http://127.0.0.1:{port}", "jsonPath": "$"}
        world.template(provider, "/query")
        status = await world.check(seconds=0.3 if fault == "hang" else 10.0)
    assert (status.verdict, status.value) == ("Error", None)
    assert words in (status.message or "")
    assert "hunter2" not in str(status)


@pytest.mark.parametrize("type_", TYPES)
async def test_a_server_that_is_down_is_an_error(world: MetricWorld, type_: str) -> None:
    async with web_server() as port:
        pass
    provider = {"type": type_, "address": f"http://127.0.0.1:{port}", "jsonPath": "$"}
    world.template(provider, "/query")
    assert (await world.check()).message == "127.0.0.1: connection refused"


LOGINS: Final = {
    "token": ({"token": b"s3cr3t-token\n"}, "Bearer s3cr3t-token"),
    "login": ({"username": b"ada", "password": b"s3cr3t"}, "Basic YWRhOnMzY3IzdA=="),
}


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("type_", ["prometheus", "http"])
async def test_a_secret_is_sent_and_shown_nowhere(world: MetricWorld, type_: str, login: str) -> None:
    secret, header = LOGINS[login]
    world.secrets["login"] = dict(secret)
    api = MetricApi()
    headers = {"X-Scope-OrgID": ["shop", "pay"]}
    query = "/stats?q=value" if type_ == "http" else "value"
    status = await ask_api(world, api, type_, query, secretRef={"name": "login"}, headers=headers)
    (request,) = api.requests
    assert request.headers["Authorization"] == header
    assert request.headers["X-Scope-OrgID"] == "shop, pay"
    assert "s3cr3t" not in f"{status}{world.secrets['login'] and status.query}"


@pytest.mark.parametrize(
    ("secret", "words"),
    [
        (None, "Secret login does not exist"),
        ({}, "key 'token' is missing"),
        ({"username": b"ada"}, "key 'password' is missing"),
        ({"token": b"two\nlines"}, "line break"),
    ],
)
async def test_a_secret_that_cannot_be_used_is_an_error(
    world: MetricWorld, secret: dict[str, bytes] | None, words: str
) -> None:
    if secret is not None:
        world.secrets["login"] = secret
    api = MetricApi()
    status = await ask_api(world, api, "prometheus", "value", secretRef={"name": "login"})
    assert (status.verdict, api.requests) == ("Error", [])
    assert words in (status.message or "")


@pytest.mark.parametrize(("hosts", "asked"), [("127.0.0.1", True), ("prometheus.example.com", False)])
async def test_a_secret_is_sent_to_the_hosts_of_its_annotation_alone(
    world: MetricWorld, hosts: str, *, asked: bool
) -> None:
    content = SecretContent({"token": b"s3cr3t-token"}, Binding("shop", "login", hosts_of(hosts)))
    world.secrets["login"] = content
    api = MetricApi()
    status = await ask_api(world, api, "prometheus", "value", secretRef={"name": "login"})
    assert bool(api.requests) == asked
    assert asked or "may not be used for host 127.0.0.1" in (status.message or "")


async def test_another_authority_is_trusted_by_its_secret_alone(world: MetricWorld) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    world.secrets["authority"] = {"ca.crt": authority.cert_pem.bytes()}
    async with web_server(*MetricApi().routes(), tls=context) as port:
        provider = {"type": "http", "address": f"https://localhost:{port}", "jsonPath": "$.data[0].value"}
        world.template({**provider, "certSecretRef": {"name": "authority"}}, "/stats?q=value")
        trusted = await world.check()
        world.template(provider, "/stats?q=value")
        unknown = await world.check()
    assert trusted.verdict == "Pass"
    assert (unknown.verdict, "certificate is not trusted" in (unknown.message or "")) == ("Error", True)
