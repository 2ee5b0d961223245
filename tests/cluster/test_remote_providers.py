"""Remote providers on a real API server: what a proxy sends of an object whose flags are merged with those of
a server, while that server changes, asks for another token and goes down.
"""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from tests.cluster.api import Api
from tests.cluster.patience import within
from tests.worlds.flags import flags
from tests.worlds.objects import condition, configuration, reader, secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.objects import Namespace
    from tests.cluster.proxies import ProxyProcess
    from tests.cluster.spines import Spine


class FlagServer:
    """Serves one document to whoever has the token."""

    def __init__(self, port: int = 0) -> None:
        self.text = flags(remote="on", both="on")
        self.token = "first"
        self._port = port
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/flags.json"

    def start(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                allowed = self.headers.get("Authorization") == f"Bearer {outer.token}"
                body = outer.text.encode() if allowed else b""
                self.send_response(200 if allowed else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@pytest.fixture
def server() -> Iterator[FlagServer]:
    made = FlagServer()
    made.start()
    yield made
    made.stop()


def provider(server: FlagServer, **fields: Any) -> dict[str, Any]:
    credentials = {"secret": "login"}
    return {"type": "http", "url": server.url, "interval": "500ms", "credentials": credentials, **fields}


def local(**defaults: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(flags(**defaults))
    return document


def token_of(space: Namespace, account: str = "reader") -> str:
    """That of a service account that may read the namespace's flags."""
    space.apply(*reader(account))
    return Api(space.plane).token(space.name, account)


@contextlib.contextmanager
def sent_by(proxy: ProxyProcess, space: Namespace) -> Iterator[Any]:
    """What the proxy sends of the object `flags`: a function of the flags' default variants."""
    metadata = (("authorization", f"Bearer {token_of(space)}"),)
    with grpc.insecure_channel(proxy.target) as channel:
        stub = sync_pb2_grpc.FlagSyncServiceStub(channel)

        def ask() -> dict[str, Any]:
            request = sync_pb2.FetchAllFlagsRequest(selector=f"{space.name}/flags")
            try:
                answer = stub.FetchAllFlags(request, metadata=metadata, timeout=10)
            except grpc.RpcError as error:
                return {"error": str(error)}
            found: dict[str, Any] = json.loads(answer.flag_configuration)["flags"]
            return found

        yield ask


def defaults(sent: dict[str, Any]) -> dict[str, str]:
    return {key: str(flag.get("defaultVariant")) for key, flag in sent.items() if isinstance(flag, dict)}


def test_flags_of_a_server_are_served_with_the_objects_own_whatever_becomes_of_the_server(
    space: Namespace, delivering: ProxyProcess, server: FlagServer
) -> None:
    space.apply(secret("login", token="first"))
    own = local(own="off", both="off")
    space.apply(configuration(flagSpec=own, remoteFlagProvider=provider(server)))
    space.wait("ffc", lambda it: condition(it, "RemoteFlagsFetched").get("status") == "True")
    with sent_by(delivering, space) as sent:
        within(lambda: defaults(sent()) == {"own": "off", "both": "off", "remote": "on"}, lambda: str(sent()))
        found = space.get("ffc")
        assert found["spec"]["flagSpec"] == own
        assert sent()["remote"]["metadata"]["flagstaff.dev/provider"] == server.url
        assert found["status"]["providers"][0]["flags"] == 2

        server.text = flags(remote="off", both="on")
        within(lambda: defaults(sent())["remote"] == "off", lambda: str(sent()))

        space.apply(configuration(flagSpec=own, remoteFlagProvider=provider(server, strategy="override")))
        within(lambda: defaults(sent())["both"] == "on", lambda: str(sent()))

        server.token = "second"
        space.wait(
            "ffc", lambda it: condition(it, "RemoteFlagsFetched").get("reason") == "AuthenticationFailed"
        )
        assert defaults(sent())["remote"] == "off"
        space.apply(secret("login", token="second"))
        space.wait("ffc", lambda it: condition(it, "RemoteFlagsFetched").get("status") == "True")

        server.stop()
        found = space.wait("ffc", lambda it: it["status"]["providers"][0].get("staleSince"))
        assert condition(found, "RemoteFlagsFetched")["reason"] == "FetchFailed"
        assert condition(found, "Ready")["status"] == "True"
        within(lambda: "flagstaff.dev/stale-since" in sent()["remote"]["metadata"], lambda: str(sent()))
        assert defaults(sent()) == {"own": "off", "both": "on", "remote": "off"}

        server.start()
        space.wait("ffc", lambda it: "staleSince" not in it["status"]["providers"][0])
        space.apply(configuration(flagSpec=own))
        within(lambda: defaults(sent()) == {"own": "off", "both": "off"}, lambda: str(sent()))
    assert {each["reason"] for each in space.events()} >= {
        "RemoteFlagsUpdated", "AuthenticationFailed", "FetchFailed",
    }  # fmt: skip


def test_a_flag_set_merges_the_flags_of_another_clusters_proxy(
    spine: Spine, neighbour: Namespace, delivering: ProxyProcess
) -> None:
    neighbour.apply(configuration(flagSpec=local(far="on")))
    spine.apply(secret("far", token=token_of(neighbour)))
    remote = {
        "type": "grpc",
        "url": f"grpc://{delivering.target}",
        "selector": f"{neighbour.name}/flags",
        "interval": "500ms",
        "credentials": {"secret": "far"},
    }
    spine.patch("flagset", {"spec": {"remoteFlagProvider": remote}})
    spine.wait("ffc", lambda it: condition(it, "RemoteFlagsFetched").get("status") == "True")
    with sent_by(delivering, spine) as sent:
        within(lambda: defaults(sent()) == {"banner": "on", "far": "on"}, lambda: str(sent()))
        spine.push("banner off", flags__json=flags(banner="off"))
        neighbour.apply(configuration(flagSpec=local(far="off")))
        within(lambda: defaults(sent()) == {"banner": "off", "far": "off"}, lambda: str(sent()))
    assert spine.served_variants() == {"banner": "off"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": "http"}, "http and grpc need url"),
        ({"type": "http", "url": "https://ada:secret@flags.example.com"}, "without a username"),
        ({"type": "grpc", "url": "https://flags.example.com"}, "url must be grpcs://HOST:PORT"),
        ({"type": "smoke", "url": "https://flags.example.com"}, "Unsupported value"),
    ],
    ids=str,
)
def test_a_provider_that_cannot_be_asked_is_refused_by_the_api_server(
    space: Namespace, fields: dict[str, Any], message: str
) -> None:
    body = configuration(flagSpec=local(own="off"), remoteFlagProvider=fields)
    given = json.dumps({**body, "metadata": {"name": "flags", "namespace": space.name}})
    words = space.kubectl("apply", "-f", "-", "--dry-run=server", given=given, check=False)
    assert message in words
