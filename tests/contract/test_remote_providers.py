"""What becomes of an object's flags when its remote provider does what it should, and what it should not, on
real servers: the object's own flags stay, the provider's last good ones stay in force, and the status says
what is wrong and what to do.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import trustme
from aiohttp import web

from controller.api.meta import ACCEPT_REVISION, REQUESTED_AT
from controller.api.remote_provider import RemoteFlagProvider
from controller.delivery.delivered import RemoteRequest
from controller.runtime.hosts import Hosts
from controller.sources.flag_servers import MOST_BYTES, HttpFlags
from controller.sources.secrets import Secrets
from evaluator.flags.canonical import digest
from evaluator.flags.model import PROVIDER_KEY, PROVIDER_VERSION_KEY, REVISION_KEY, STALE_KEY, STALE_SINCE_KEY
from evaluator.http.messages import Code, RpcError, header
from evaluator.http.routes import Routes
from evaluator.wire.sync_messages import SERVICE
from tests.contract.remote_world import SECONDS, document, flag_server, remote_world
from tests.sync_sources import GrpcPeer
from tests.unit.evaluator.http.serving import run_listener
from tests.web_server import web_server
from tests.worlds.flagsets import BROKEN, CONFIGURATION, flag, pack
from tests.worlds.proxy import Scene
from tests.worlds.stages import body_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from evaluator.http.messages import Call, MessageStream
    from tests.contract.remote_world import FlagServer, RemoteWorld

OWN = {"own": "off", "both": "off"}


@pytest.fixture
async def world() -> AsyncIterator[RemoteWorld]:
    async with remote_world() as made:
        yield made


@pytest.fixture
async def web_flags() -> AsyncIterator[tuple[FlagServer, str]]:
    async with flag_server() as made:
        yield made


# -- composition ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("strategy", "both"), [("merge", "off"), ("override", "on")])
async def test_a_flag_of_both_is_the_objects_by_merge_and_the_providers_by_override(
    world: RemoteWorld, web_flags: tuple[FlagServer, str], strategy: str, both: str
) -> None:
    server, url = web_flags
    server.document = document(remote="on", both="on")
    world.write(type="http", url=url, strategy=strategy)
    await world.look()
    assert world.served == {"own": "off", "both": both, "remote": "on"}
    assert world.resource.status["flags"] == 3
    assert world.resource.status["digest"] == digest(world.delivered.flag_set)


async def test_a_remote_flag_names_its_provider_and_version_in_its_metadata(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    server, url = web_flags
    server.etag = '"v7"'
    world.local["metadata"] = {REVISION_KEY: "main@sha1:local", "flagstaff.dev/author": "Ada"}
    world.write(type="http", url=f"{url}?key=hidden")
    await world.look()
    flag_set = world.delivered.flag_set
    metadata = flag_set.flags["remote"].metadata_under(flag_set.metadata)
    assert metadata[PROVIDER_KEY] == url
    assert metadata[PROVIDER_VERSION_KEY] == metadata[REVISION_KEY] == '"v7"'
    assert metadata["flagstaff.dev/author"] == ""
    assert PROVIDER_KEY not in flag_set.flags["own"].metadata
    assert "hidden" not in json.dumps(world.resource.status)


async def test_the_users_spec_stays_as_it_was_written(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    world.write(type="http", url=web_flags[1])
    before = json.dumps(world.resource.spec)
    await world.look()
    assert json.dumps(world.resource.spec) == before
    assert world.cluster.take_writes() == [f"apply FlagShard/{world.shards[0]}"]
    # What is written belongs to the controller's shard, as the object does.
    assert world.cluster.the("FlagShard", world.shards[0]).labels == {"team": "shop"}


async def test_a_provider_that_is_taken_out_of_the_spec_takes_its_flags_along(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    world.write(type="http", url=web_flags[1])
    await world.look()
    world.write()
    assert world.served == OWN
    await world.look()
    assert "providers" not in world.resource.status
    assert world.shards
    await world.look(after=61.0)
    assert world.shards == []


# -- polling -------------------------------------------------------------------------------------------------


async def test_an_unchanged_document_is_asked_for_with_its_etag_and_nothing_is_written(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    server, url = web_flags
    server.etag = 'W/"v1"'
    world.write(type="http", url=url)
    first = await world.look()
    world.cluster.take_writes()
    again = await world.look()
    assert server.asked[1]["If-None-Match"] == 'W/"v1"'
    assert again.status == first.status
    assert world.cluster.take_writes() == []


async def no_secret(namespace: str, name: str, account: str | None) -> None:
    raise AssertionError((namespace, name, account))


async def test_an_unchanged_document_without_an_etag_is_not_parsed_again(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    server, url = web_flags
    world.write(type="http", url=url)
    await world.look()
    source = HttpFlags(world.client, Secrets(no_secret), SECONDS)
    spec = RemoteFlagProvider(type="http", url=url)
    in_force = RemoteRequest(world.resource, spec, "sha256:known")
    assert await source.fetch(in_force) is not None
    assert await source.fetch(in_force) is None
    # What was fetched last was bad, or is of another provider.
    assert await source.fetch(RemoteRequest(world.resource, spec)) is not None
    server.document = document(remote="off")
    assert await source.fetch(in_force) is not None


async def test_a_provider_is_not_asked_before_its_interval_is_over(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    server, url = web_flags
    world.write(type="http", url=url, interval="30s")
    settled = await world.look()
    assert settled.requeue_after == 30.0
    await world.look(after=29.0)
    assert len(server.asked) == 1
    await world.look(after=1.0)
    assert len(server.asked) == 2


async def test_a_requested_reconcile_asks_at_once(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    server, url = web_flags
    world.write(type="http", url=url)
    await world.look()
    annotate(world, REQUESTED_AT, "now")
    await world.look(after=1.0)
    assert len(server.asked) == 2


async def test_a_restarted_controller_writes_nothing_for_what_is_unchanged(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    server, url = web_flags
    server.etag = '"v1"'
    world.write(type="http", url=url)
    first = await world.look()
    world.cluster.take_writes()
    await world.client.close()
    world.restart()
    again = await world.look()
    assert (again.status, again.events, world.cluster.take_writes()) == (first.status, (), [])


async def test_a_shard_that_was_deleted_is_written_again(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    server, url = web_flags
    server.etag = '"v1"'
    world.write(type="http", url=url)
    await world.look()
    world.cluster.remove("FlagShard", world.shards[0])
    await world.look(after=1.0)
    assert world.served == {**OWN, "remote": "on"}


async def test_without_its_shards_and_its_provider_an_object_serves_its_own_flags(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    server, url = web_flags
    world.write(type="http", url=url)
    await world.look()
    world.cluster.remove("FlagShard", world.shards[0])
    server.answer = web.Response(status=503)
    await world.look()
    assert world.served == OWN


# -- faults --------------------------------------------------------------------------------------------------


async def endless(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    try:
        while True:
            await answer.write(b" " * 1_048_576)
    except ConnectionError:
        return answer


async def silent(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(SECONDS + 0.5)
    return web.Response()


def reply(status: int, text: str = "", **headers: str) -> Callable[[web.Request], Any]:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(
            status=status, text=text, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    return answer


FAULTS = {
    "401": (reply(401), "AuthenticationFailed", "correct the token"),
    "403": (reply(403), "AuthenticationFailed", "correct the token"),
    "404": (reply(404), "NotFound", "correct url"),
    "500": (reply(500), "FetchFailed", "answers 500"),
    "429": (reply(429), "FetchFailed", "answers 429"),
    "204": (reply(204), "FetchFailed", "answers 204"),
    "304 that nobody asked for": (reply(304), "FetchFailed", "answers 304"),
    "an endless body": (endless, "TooLarge", "make the set smaller"),
    "silence": (silent, "Timeout", "no answer within"),
    "a redirect to another host": (
        reply(302, Location="http://evil.example/?token=t"), "Redirected", "to evil.example; redirects",
    ),
    "HTML": (reply(200, "<html>log in</html>", Content_Type="text/html"), "InvalidFlags", "HTML"),
    "HTML as JSON": (
        reply(200, "\n<!doctype html>", Content_Type="application/json"), "InvalidFlags", "HTML",
    ),
    "broken JSON": (reply(200, '{"flags": {'), "InvalidFlags", "flags.json:1"),
    "no JSON object": (reply(200, "[]"), "InvalidFlags", "correct it at the provider"),
    "no flags any more": (reply(200, '{"flags": {}}'), "InvalidFlags", "no flags any more"),
    "a document without flags": (reply(200, "{}"), "InvalidFlags", "flags"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
async def test_last_good_flags_stay_in_force_and_the_condition_says_what_to_do(
    world: RemoteWorld, fault: str
) -> None:
    answer, reason, advice = FAULTS[fault]
    good = True

    async def serve(request: web.Request) -> web.StreamResponse:
        return web.json_response(document(remote="on")) if good else await answer(request)

    async with web_server(web.get("/flags.json", serve)) as port:
        world.write(type="http", url=f"http://127.0.0.1:{port}/flags.json")
        before = await world.look()
        good = False
        settled = await world.look()
        assert world.served == {**OWN, "remote": "on"}
        assert (world.condition["status"], world.condition["reason"]) == ("False", reason)
        assert advice in world.condition["message"]
        assert "1 flag at sha256:" in world.condition["message"]
        assert world.provider["staleSince"]
        assert [each.reason for each in settled.events] == [reason]
        assert settled.status["digest"] == before.status["digest"]
        assert world.delivered.flag_set.flags["remote"].metadata[STALE_KEY] is True
        assert (await world.look()).events == ()
        good = True
        recovered = await world.look()
        assert [(each.reason, each.ends) for each in recovered.events] == [(reason, True)]
        assert recovered.status == before.status | {"conditions": recovered.status["conditions"]}
        assert STALE_SINCE_KEY not in world.delivered.flag_set.flags["remote"].metadata


@pytest.mark.parametrize("fault", [name for name in FAULTS if "any more" not in name])
async def test_own_flags_are_served_where_the_provider_never_had_any(world: RemoteWorld, fault: str) -> None:
    answer, reason, _ = FAULTS[fault]
    async with web_server(web.get("/flags.json", answer)) as port:
        world.write(type="http", url=f"http://127.0.0.1:{port}/flags.json")
        settled = await world.look()
    assert world.served == OWN
    assert world.condition["reason"] == reason
    assert "own flags are served without" in world.condition["message"]
    assert settled.status["conditions"][0]["status"] == "True"
    assert world.shards == []


async def test_a_server_that_is_not_there_is_a_failure_to_fetch(world: RemoteWorld) -> None:
    async with flag_server() as (_, url):
        pass
    world.write(type="http", url=url)
    await world.look()
    assert (world.condition["reason"], world.served) == ("FetchFailed", OWN)


async def test_a_bad_flag_keeps_its_definition_while_the_others_are_updated(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    server, url = web_flags
    server.document = document(one="on", two="on")
    world.write(type="http", url=url)
    await world.look()
    server.document["flags"] |= {"one": BROKEN, "two": flag("off")}
    await world.look()
    assert world.served == {**OWN, "one": "on", "two": "off"}
    assert world.condition["reason"] == "PartiallyFetched"
    assert "1 flag is bad, and served as before" in world.condition["message"]
    assert "staleSince" not in world.provider


async def test_bad_own_flags_are_not_filled_by_the_provider(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    server, url = web_flags
    server.document = document(own="on")
    world.local["flags"]["own"] = BROKEN
    world.write(type="http", url=url)
    await world.look()
    assert "own" not in world.served
    assert world.delivered.missing == ("own",)


# -- versions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [({"version": "10"}, {"version": "9"}), ({"version": "1.10.0"}, {"version": "v1.9.3"})],
)
async def test_an_older_version_is_kept_out_until_it_is_accepted(
    world: RemoteWorld, web_flags: tuple[FlagServer, str], before: dict[str, str], after: dict[str, str]
) -> None:
    server, url = web_flags
    server.document = {**document(remote="on"), "metadata": before}
    world.write(type="http", url=url)
    await world.look()
    server.document = {**document(remote="off"), "metadata": after}
    await world.look()
    assert (world.served["remote"], world.condition["reason"]) == ("on", "OlderVersion")
    assert world.provider["version"] == before["version"]
    annotate(
        world, ACCEPT_REVISION, world.condition["message"].rpartition(f"{ACCEPT_REVISION}=")[2].split(";")[0]
    )
    await world.look(after=1.0)
    assert (world.served["remote"], world.condition["status"]) == ("off", "True")


async def test_a_document_that_was_changed_earlier_than_the_one_in_force_is_kept_out(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    server, url = web_flags
    server.headers["Last-Modified"] = "Fri, 02 Jan 2026 03:04:05 GMT"
    world.write(type="http", url=url)
    await world.look()
    server.headers["Last-Modified"] = "Thu, 01 Jan 2026 03:04:05 GMT"
    server.document = document(remote="off")
    await world.look()
    assert (world.served["remote"], world.condition["reason"]) == ("on", "OlderVersion")


async def test_the_same_flags_of_a_replica_that_wrote_them_earlier_are_no_older_version(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    server, url = web_flags
    server.headers["Last-Modified"] = "Fri, 02 Jan 2026 03:04:05 GMT"
    world.write(type="http", url=url)
    await world.look()
    server.headers["Last-Modified"] = "Thu, 01 Jan 2026 03:04:05 GMT"
    await world.look()
    assert (world.condition["status"], world.provider["lastModified"]) == ("True", "2026-01-02T03:04:05Z")


async def test_another_providers_version_is_compared_with_none(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    server, url = web_flags
    server.document["metadata"] = {"version": "2"}
    world.write(type="http", url=url)
    await world.look()
    server.document = {**document(remote="off"), "metadata": {"version": "1"}}
    world.write(type="http", url=f"{url}?other")
    await world.look()
    assert (world.served["remote"], world.condition["status"]) == ("off", "True")


# -- credentials and addresses -------------------------------------------------------------------------------


async def test_a_missing_secret_and_a_missing_key_are_named(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    server, url = web_flags
    server.accepts = "Bearer t0ken"
    world.write(type="http", url=url, credentials={"secret": "login"})
    await world.look()
    assert world.condition["reason"] == "AuthenticationFailed"
    assert "Secret shop/login does not exist; create it" in world.condition["message"]
    world.secrets["login"] = {"password": b"t0ken"}
    await world.look()
    assert world.condition["reason"] == "InvalidSecret"
    assert "key 'token' is missing" in world.condition["message"]
    assert "'password'" in world.condition["message"]
    assert server.asked == []
    world.secrets["login"] = {"token": b"t0ken\n"}
    await world.look()
    assert (world.condition["status"], world.served["remote"]) == ("True", "on")
    assert "t0ken" not in json.dumps(world.resource.status)


async def test_a_rotated_secret_is_read_at_once(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    server, url = web_flags
    server.accepts = "Bearer new"
    world.secrets["login"] = {"key": b"old"}
    world.cluster.put({"kind": "Secret", "metadata": {"name": "login"}})
    world.write(type="http", url=url, credentials={"secret": "login", "key": "key"})
    await world.look()
    assert world.condition["reason"] == "AuthenticationFailed"
    world.secrets["login"] = {"key": b"new"}
    world.cluster.put({"kind": "Secret", "metadata": {"name": "login"}})
    await world.look(after=1.0)
    assert world.condition["status"] == "True"


async def test_secrets_are_read_and_shards_written_as_the_service_account(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    world.secrets["login"] = {"token": b"t"}
    login = {"secret": "login"}
    world.write(type="http", url=web_flags[1], credentials=login, serviceAccountName="flags")
    await world.look()
    assert [*world.readers, *world.cluster.accounts] == ["flags", "flags"]


@pytest.mark.parametrize("provider", ["http", "grpc"])
async def test_a_denied_host_is_never_asked(provider: str) -> None:
    async with remote_world(hosts=Hosts(denied=("127.0.0.0/8",))) as world, flag_server() as (server, url):
        address = url if provider == "http" else url.replace("http", "grpc").removesuffix("/flags.json")
        world.write(type=provider, url=address)
        await world.look()
        assert (world.condition["reason"], server.asked) == ("HostDenied", [])


@pytest.mark.parametrize("provider", ["http", "grpc"])
async def test_plain_text_is_denied_where_flag_sources_may_not_use_it(provider: str) -> None:
    async with (
        remote_world(hosts=Hosts(denied=(), plain_http=False)) as world,
        flag_server() as (server, url),
    ):
        address = url if provider == "http" else url.replace("http", "grpc").removesuffix("/flags.json")
        world.write(type=provider, url=address)
        await world.look()
        assert (world.condition["reason"], server.asked) == ("URLInvalid", [])
        assert "--deny-http-sources" in world.condition["message"]


async def test_a_spec_that_cannot_be_read_leaves_own_flags_alone(world: RemoteWorld) -> None:
    world.write(type="http")
    await world.look()
    assert world.condition["reason"] == "InvalidSpec"
    assert "spec.remoteFlagProvider" in world.condition["message"]
    assert world.served == OWN


@pytest.mark.parametrize("url", ["https://[x/flags.json", "https://[::x]/", "grpc://[x:80", "grpc://a:70000"])
async def test_a_url_without_a_usable_host_or_port_leaves_own_flags_alone(
    world: RemoteWorld, url: str
) -> None:
    world.write(type=url[:4], url=url)
    await world.look()
    assert (world.condition["reason"], world.served) == ("URLInvalid", OWN)
    assert "correct url" in world.condition["message"]


# -- flagd.sync ----------------------------------------------------------------------------------------------


async def test_the_flags_of_a_flagstaff_proxy_are_merged_with_their_revision(world: RemoteWorld) -> None:
    scene = Scene(auth="enforce")
    scene.reviews.rights["reader"] = {("far", "flags")}
    scene.learn("far/flags", {**document(remote="on"), "metadata": {REVISION_KEY: "main@sha1:far"}})
    world.secrets["login"] = {"token": b"reader"}
    async with run_listener(scene.routes) as (_, port):
        login, selector = {"secret": "login"}, "far/flags"
        url = f"grpc://127.0.0.1:{port}"
        world.write(type="grpc", url=url, selector=selector, credentials=login)
        await world.look()
        assert world.condition["status"] == "True", world.condition
        assert world.served == {**OWN, "remote": "on"}
        assert world.provider["version"] == "main@sha1:far"
        assert world.provider["name"] == f"{url} far/flags"
        scene.learn("far/flags", {**document(remote="off"), "metadata": {REVISION_KEY: "main@sha1:next"}})
        await world.look()
        assert (world.served["remote"], world.provider["version"]) == ("off", "main@sha1:next")
        world.secrets["login"] = {"token": b"nobody"}
        await world.look()
        assert world.condition["reason"] == "AuthenticationFailed"
    await world.look()
    assert (world.condition["reason"], world.served["remote"]) == ("FetchFailed", "off")


async def test_words_of_a_server_that_repeat_the_token_are_in_no_message(world: RemoteWorld) -> None:
    world.secrets["login"] = {"token": b"s3cret-token"}

    def repeat(call: Call, message: bytes, stream: MessageStream) -> None:
        raise RpcError(code, f"unknown: {header(call.headers, 'authorization')}")

    routes = Routes(streams={f"{SERVICE}FetchAllFlags": repeat})
    for code in (Code.UNAUTHENTICATED, Code.UNAVAILABLE):
        async with run_listener(routes) as (_, port):
            world.write(type="grpc", url=f"grpc://127.0.0.1:{port}", credentials={"secret": "login"})
            settled = await world.look()
            assert f"answers {code.name}" in world.condition["message"]
            assert "s3cret-token" not in str((world.resource.status, settled.events))


async def test_a_server_with_streams_alone_is_read_from_its_first_message(world: RemoteWorld) -> None:
    peer = GrpcPeer()
    await peer.put(json.dumps(document(remote="on")).encode())
    try:
        world.write(type="grpc", url=peer.uri, selector="source=a")
        await world.look()
        assert world.served == {**OWN, "remote": "on"}
        assert peer.asked[0][0].selector == "source=a"
        await peer.put(b"<html>")
        await world.look()
        assert world.condition["reason"] == "InvalidFlags"
        await peer.put(b"x" * (MOST_BYTES + 1))
        await world.look()
        assert world.condition["reason"] == "TooLarge"
        assert world.served == {**OWN, "remote": "on"}
    finally:
        await peer.remove()


async def test_a_grpc_server_is_trusted_by_the_authority_of_the_secret(world: RemoteWorld) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    chain = [(issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes())]
    peer = GrpcPeer()
    await peer.start(grpc.ssl_server_credentials(chain))
    await peer.put(json.dumps(document(remote="on")).encode())
    world.secrets["login"] = {"token": b"t0ken"}
    try:
        url = peer.uri.replace("grpc://127.0.0.1", "grpcs://localhost")
        world.write(type="grpc", url=url, credentials={"secret": "login"})
        await world.look()
        assert world.condition["reason"] in {"FetchFailed", "Timeout"}
        assert peer.asked == []
        world.secrets["login"] = {"token": b"t0ken", "ca.crt": authority.cert_pem.bytes()}
        await world.look()
        assert world.served == {**OWN, "remote": "on"}
        assert peer.asked[0][1]["authorization"] == "Bearer t0ken"
    finally:
        await peer.remove()


async def test_an_http_server_is_trusted_by_the_authority_of_the_secret(world: RemoteWorld) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    world.secrets["login"] = {"token": b"t0ken"}

    async def serve(request: web.Request) -> web.Response:
        return web.json_response(document(remote="on"))

    async with web_server(web.get("/", serve), tls=tls) as port:
        world.write(type="http", url=f"https://127.0.0.1:{port}/", credentials={"secret": "login"})
        await world.look()
        assert world.condition["reason"] == "CertificateRefused"
        assert "'ca.crt'" in world.condition["message"]
        world.secrets["login"] = {"token": b"t0ken", "ca.crt": authority.cert_pem.bytes()}
        await world.look()
        assert world.served == {**OWN, "remote": "on"}


# -- a FlagSource --------------------------------------------------------------------------------------------


async def test_layers_of_a_flag_sources_artifact_are_merged_with_own_flags(world: RemoteWorld) -> None:
    world.write(type="flagSource", flagSource="platform", paths=["base.json", "shop.json"])
    await world.look()
    assert (world.condition["reason"], world.served) == ("SourceFailed", OWN)
    store(world, "main@sha1:1", base__json=document(remote="off"), shop__json=document(remote="on"))
    await world.look(after=1.0)
    assert world.served == {**OWN, "remote": "on"}
    assert (world.provider["name"], world.provider["version"]) == ("FlagSource/platform", "main@sha1:1")
    store(world, "main@sha1:2", base__json=document(remote="off"))
    await world.look(after=1.0)
    assert (world.condition["reason"], world.served["remote"]) == ("InvalidFlags", "on")
    store(world, "main@sha1:3", base__json=document(remote="off"), shop__json=document(more="on"))
    await world.look(after=1.0)
    assert world.served == {**OWN, "remote": "off", "more": "on"}


async def test_a_source_that_fails_makes_its_flags_stale(world: RemoteWorld) -> None:
    world.write(type="flagSource", flagSource="platform")
    store(world, "main@sha1:1", flags__json=document(remote="on"))
    await world.look()
    store(world, "main@sha1:1", failing="the server is down", flags__json=document(remote="on"))
    await world.look(after=1.0)
    assert (world.condition["status"], world.served["remote"]) == ("True", "on")
    await world.look()
    assert (world.condition["reason"], world.served["remote"]) == ("SourceFailed", "on")
    assert "the server is down" in world.condition["message"]
    assert world.provider["staleSince"]


async def test_a_large_set_is_divided_into_shards(
    world: RemoteWorld, web_flags: tuple[FlagServer, str]
) -> None:
    server, url = web_flags
    names = [f"flag-{number}" for number in range(1_200)]
    server.document = document(**dict.fromkeys(names, "on"))
    for each in server.document["flags"].values():
        each["variants"]["long"] = "x" * 1_000
    world.write(type="http", url=url)
    await world.look()
    assert len(world.shards) > 1
    assert world.served == {**OWN, **dict.fromkeys(names, "on")}


def annotate(world: RemoteWorld, name: str, value: str) -> None:
    body = body_of(world.cluster.the(CONFIGURATION, "flags"))
    body["metadata"]["annotations"][name] = value
    world.cluster.put(body)


def store(world: RemoteWorld, revision: str, failing: str = "", **files: dict[str, Any]) -> None:
    """The FlagSource has this artifact."""
    tree = {name.replace("__", "."): json.dumps(content) for name, content in files.items()}
    archive = pack(tree)
    artifact = f"sha256:{hashlib.sha256(archive).hexdigest()}"
    world.archives[artifact] = archive
    ready = {"type": "Ready", "status": "False" if failing else "True", "reason": "R", "message": failing}
    world.cluster.put(
        {
            "kind": "FlagSource",
            "metadata": {"name": "platform"},
            "status": {
                "artifact": {"url": "http://a/x.tar.gz", "revision": revision, "digest": artifact},
                "conditions": [ready],
            },
        }
    )
