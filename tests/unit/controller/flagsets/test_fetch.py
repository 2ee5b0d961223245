from __future__ import annotations

import gzip
import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from yarl import URL

from controller.api.artifact_status import ArtifactStatus
from controller.flagsets.fetch import ArtifactReader
from controller.runtime.hosts import DENIED, Hosts
from controller.runtime.setbacks import Failed, Setback, Stalled, Waiting
from tests.web_server import web_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CONTENT = b"an archive"


ANY = Hosts(denied=())


def digest_of(content: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"


def artifact(url: str, content: bytes = CONTENT, **fields: Any) -> ArtifactStatus:
    known = {"url": url, "revision": "main@sha1:r1", "digest": digest_of(content), **fields}
    return ArtifactStatus.model_validate(known)


async def answer(request: web.Request) -> web.StreamResponse:
    match request.match_info["what"]:
        case "good":
            return web.Response(body=CONTENT)
        case "moved":
            raise web.HTTPFound("/good")
        case "zipped":
            zipped = gzip.compress(CONTENT, mtime=0)
            return web.Response(body=zipped, headers={"Content-Encoding": "gzip"})
        case "endless":
            response = web.StreamResponse()
            await response.prepare(request)
            for _ in range(64):
                await response.write(b"x" * 65536)
            return response
        case "cut":
            response = web.StreamResponse(headers={"Content-Length": "100"})
            await response.prepare(request)
            await response.write(b"half")
            assert request.transport is not None
            request.transport.abort()
            return response
        case status:
            return web.Response(status=int(status))


@pytest.fixture
async def server() -> AsyncIterator[str]:
    async with web_server(web.get("/{what}", answer)) as port:
        yield f"http://127.0.0.1:{port}"


def reader(**found: bytes) -> ArtifactReader:
    return ArtifactReader(
        lambda path: found.get(path.rpartition("/")[2]),
        hosts=("127.0.0.1",),
        most_bytes=1_000_000,
        judged=ANY,
    )


async def setback(url: str, **fields: Any) -> Setback:
    with pytest.raises(Setback) as caught:
        await reader().read("shop", artifact(url, **fields))
    return caught.value


@pytest.mark.parametrize("algorithm", ["sha256", "sha384", "sha512"])
async def test_an_artifact_is_downloaded_and_proven(server: str, algorithm: str) -> None:
    wanted = artifact(f"{server}/good", digest=digest_of(CONTENT, algorithm))
    assert await reader().read("shop", wanted) == CONTENT


async def test_our_own_is_taken_from_the_store_beside_us() -> None:
    mine = artifact("http://nowhere.invalid/x", path="flagsource/shop/flags/a")
    assert await reader(a=CONTENT).read("shop", mine) == CONTENT


async def test_what_is_not_in_the_store_is_downloaded(server: str) -> None:
    mine = artifact(f"{server}/good", path="flagsource/shop/flags/a")
    assert await reader().read("shop", mine) == CONTENT


@pytest.mark.parametrize("path", ["flagsource/other/flags/a", "flagsource/shop2/flags/a", "a", ""])
async def test_a_path_of_another_namespace_is_not_looked_up(server: str, path: str) -> None:
    foreign = artifact(f"{server}/404", path=path)
    with pytest.raises(Waiting):
        await reader(a=CONTENT).read("shop", foreign)


async def test_a_store_that_holds_something_else_is_found_out() -> None:
    mine = artifact("http://nowhere.invalid/x", path="flagsource/shop/flags/a")
    with pytest.raises(Failed, match="has another digest"):
        await reader(a=b"damaged").read("shop", mine)


async def test_one_that_is_gone_is_waited_for_and_asked_for_again(server: str) -> None:
    caught = await setback(f"{server}/404")
    assert type(caught) is Waiting
    assert (
        caught.message
        == f"{server}/404 does not exist any more; waiting for the source to publish a new artifact"
    )
    assert caught.delay == pytest.approx(30)


async def test_another_content_is_refused_and_tried_again(server: str) -> None:
    caught = await setback(f"{server}/good", digest=digest_of(b"another"))
    assert type(caught) is Failed
    assert caught.message == (f"{server}/good has another digest than status.artifact of its source")
    assert digest_of(CONTENT) not in caught.message


async def test_bytes_are_taken_as_they_were_stored(server: str) -> None:
    stored = gzip.compress(CONTENT, mtime=0)
    assert await reader().read("shop", artifact(f"{server}/zipped", stored)) == stored


async def test_one_without_end_is_cut_off(server: str) -> None:
    caught = await setback(f"{server}/endless")
    assert (type(caught), caught.reason) == (Stalled, "ArtifactTooLarge")
    assert caught.message == f"{server}/endless is larger than 1000000 bytes"


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("503", "answered with status 503"),
        ("moved", "answered with status 302"),
        ("cut", "the connection ended before the end of the answer"),
    ],
)
async def test_a_server_that_fails_is_asked_again(server: str, what: str, message: str) -> None:
    caught = await setback(f"{server}/{what}")
    assert (type(caught), caught.reason) == (Failed, "ArtifactFailed")
    assert caught.message.endswith(message)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "http://[::1", "http://h:x/y"])
async def test_a_url_that_leads_nowhere_is_a_failure(url: str) -> None:
    assert (await setback(url)).reason == "ArtifactFailed"


async def test_a_digest_that_nobody_can_check_is_refused(server: str) -> None:
    caught = await setback(f"{server}/good", digest="md5:00")
    assert (type(caught), caught.message) == (
        Stalled,
        "the digest algorithm md5 is not supported; sha256, sha384 and sha512 are",
    )


@pytest.mark.parametrize("what", ["404", "503", "good", "endless"])
async def test_no_message_repeats_what_may_be_secret_in_a_url(server: str, what: str) -> None:
    url = server.replace("//", "//user:hunter2@") + f"/{what}?token=hunter2#hunter2"
    caught = await setback(url, digest=digest_of(b"another"))
    assert "hunter2" not in caught.message
    assert f"{server}/{what}" in caught.message


HOSTS = (".svc", ".svc.cluster.local.", "flags.example.com", "artifacts.example.com.:9090")
ALLOWED = {
    "a Service": "http://source-controller.flux-system.svc/a",
    "its whole name": "http://source-controller.flux-system.svc.cluster.local./a",
    "with a port": "https://Source-Controller.flux-system.SVC.cluster.local:8443/a",
    "a name": "https://flags.example.com:444/a",
    "a name and a port": "http://artifacts.example.com:9090/a",
}
REFUSED = {
    "an address": "http://169.254.169.254/latest/meta-data",
    "loopback": "http://[::1]:8014/metrics",
    "another name": "http://example.com/a",
    "an ending without its dot": "http://evilsvc/a",
    "an ending as a user": "http://x.svc@example.com/a",
    "an ending as a path": "http://example.com/.svc",
    "an ending as a fragment": "http://example.com#.svc",
    "another port": "http://artifacts.example.com:9091/a",
    "below a name": "http://x.flags.example.com/a",
    "another scheme": "ftp://x.svc/a",
    "a file": "file:///etc/passwd",
    "nothing": "nothing",
}


@pytest.mark.parametrize("url", ALLOWED.values(), ids=ALLOWED)
def test_hosts_that_artifacts_may_come_from(url: str) -> None:
    ArtifactReader(lambda _: None, HOSTS).require_allowed(URL(url), url)


@pytest.mark.parametrize("url", REFUSED.values(), ids=REFUSED)
async def test_other_hosts_get_no_request_and_are_not_named(url: str) -> None:
    with pytest.raises(Stalled, match="FLAGSTAFF_ARTIFACT_HOSTS") as caught:
        await ArtifactReader(lambda _: None, HOSTS).read("shop", artifact(url))
    assert caught.value.reason == "AccessDenied"


async def test_by_default_only_services_are_reached(server: str) -> None:
    with pytest.raises(Stalled, match="FLAGSTAFF_ARTIFACT_HOSTS"):
        await ArtifactReader(lambda _: None).read("shop", artifact(f"{server}/good"))


async def services(host: str, _: int) -> tuple[str, ...]:
    """What the names of Services lead to."""
    return {
        "metadata.team.svc": ("169.254.169.254",),
        "both.team.svc": ("10.0.0.5", "127.0.0.1"),
        "api.team.svc": ("10.96.0.1",),
        "flux.team.svc": ("127.0.0.1",),
    }[host]


DECEIVING = {
    "the cloud's metadata": ("metadata.team.svc", "has the address 169.254.169.254, denied by"),
    "among others this machine": ("both.team.svc", "has the address 127.0.0.1, denied by"),
    "the API server": ("api.team.svc", "is the API server's"),
    "the API server's own name": ("kubernetes.default.svc", "is the API server's"),
}


@pytest.mark.parametrize(("host", "why"), DECEIVING.values(), ids=DECEIVING)
async def test_a_service_does_not_lead_where_no_artifact_may_come_from(host: str, why: str) -> None:
    judged = Hosts((), DENIED, services, "artifact", ("10.96.0.1",))
    with pytest.raises(Stalled, match=why) as caught:
        await ArtifactReader(lambda _: None, judged=judged).read("shop", artifact(f"http://{host}/a"))
    assert caught.value.reason == "HostDenied"
    assert "source" not in caught.value.message


async def test_a_listed_address_is_judged_as_well(server: str) -> None:
    with pytest.raises(Stalled, match="denied by --denied-artifact-hosts"):
        await ArtifactReader(lambda _: None, ("127.0.0.1",)).read("shop", artifact(f"{server}/good"))


async def test_the_connection_is_made_to_the_address_that_was_judged(server: str) -> None:
    reader = ArtifactReader(lambda _: None, judged=Hosts((), (), services))
    url = server.replace("127.0.0.1", "flux.team.svc")
    assert await reader.read("shop", artifact(f"{url}/good")) == CONTENT


OWN = [
    ("artifacts.example.com", "http://artifacts.example.com/a"),
    ("artifacts.example.com.:80", "http://Artifacts.example.com/a"),
    ("[::1]:9090", "http://[::1]:9090/a"),
]


@pytest.mark.parametrize(("own", "url"), OWN)
def test_our_own_server_is_known_however_it_is_written(own: str, url: str) -> None:
    mine = ArtifactReader(lambda _: None, own=lambda: [own], token=lambda: "s3cret")
    archive = URL(url).with_path("/flagsource/shop/flags/a")
    mine.require_allowed(archive, url)
    assert mine.headers("shop", archive) == {"Authorization": "Bearer s3cret"}


@pytest.mark.parametrize("url", ["https://artifacts.example.com/a", "http://artifacts.example.com:81/a"])
def test_another_port_of_our_own_host_is_not_ours(url: str) -> None:
    mine = ArtifactReader(lambda _: None, own=lambda: ["artifacts.example.com"], token=lambda: "s3cret")
    with pytest.raises(Stalled, match="FLAGSTAFF_ARTIFACT_HOSTS"):
        mine.require_allowed(URL(url), url)


@pytest.fixture
async def shown() -> AsyncIterator[tuple[int, list[str | None]]]:
    """A server's port, and the authorization of each request to it."""
    asked: list[str | None] = []

    async def note(request: web.Request) -> web.Response:
        asked.append(request.headers.get("Authorization"))
        return web.Response(body=CONTENT)

    async with web_server(web.get("/{path:.*}", note)) as port:
        yield port, asked


OURS = "http://127.0.0.1:{}/flagsource/shop/flags/a"
SHOWN = {
    "our own": ("127.0.0.1:{}", OURS, "s3cret", "Bearer s3cret"),
    "without a token": ("127.0.0.1:{}", OURS, None, None),
    "without a server of our own": ("", OURS, "s3cret", None),
    "another host": ("localhost:{}", OURS, "s3cret", None),
    "another port": ("127.0.0.1:1", OURS, "s3cret", None),
    "another port's name": ("127.0.0.1", OURS, "s3cret", None),
    "another namespace": ("127.0.0.1:{}", OURS.replace("shop", "other"), "s3cret", None),
    "another namespace after all": (
        "127.0.0.1:{}",
        OURS.replace("flags/a", "../other/flags/a"),
        "s3cret",
        None,
    ),
    "no archive": ("127.0.0.1:{}", "http://127.0.0.1:{}/else", "s3cret", None),
    "that of another shard": ("flagstaff-artifacts.svc:9090 127.0.0.1:{}", OURS, "s3cret", "Bearer s3cret"),
}


@pytest.mark.parametrize(("own", "url", "token", "expected"), SHOWN.values(), ids=SHOWN)
async def test_our_token_is_shown_to_our_own_server_alone(
    shown: tuple[int, list[str | None]], own: str, url: str, token: str | None, expected: str | None
) -> None:
    port, asked = shown
    reader = ArtifactReader(
        lambda _: None, ("127.0.0.1",), own=lambda: own.format(port).split(), token=lambda: token, judged=ANY
    )
    assert await reader.read("shop", artifact(url.format(port))) == CONTENT
    assert asked == [expected]
