"""Kubeconfigs, and credentials beside an API server that accepts one token at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

import pytest
from kubernetes.aio import config

from controller.kube.client import Cluster
from controller.kube.kubeconfig import DEFAULT_TIMING, CredentialTiming, load_configuration
from evaluator.http.limits import Limits
from evaluator.http.listener import Listener
from evaluator.http.messages import Response
from evaluator.http.routes import Routes
from tests.git_http import http_proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from evaluator.http.messages import Request

PATH = "/api/v1/namespaces/shop/configmaps/c"


class Server:
    """Accepts `token` alone."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.token = "first"  # noqa: S105
        self.refused: list[str] = []
        self.port = 0

    def answer(self, request: Request) -> Response:
        given = dict(request.headers).get("authorization", "")
        if given == f"Bearer {self.token}":
            return Response(200, b'{"kind": "ConfigMap"}', (("content-type", "application/json"),))
        self.refused.append(given)
        return Response(401, b'{"message": "Unauthorized"}', (("content-type", "application/json"),))

    def write(self, token: str, *, current: str = "x", host: str = "127.0.0.1") -> None:
        """Two contexts, of which `y` has another user and token."""
        server = {"name": "c", "cluster": {"server": f"http://{host}:{self.port}"}}
        users = [{"name": "u", "user": {"token": token}}, {"name": "v", "user": {"token": "another"}}]
        contexts = [
            {"name": name, "context": {"cluster": "c", "user": user}}
            for name, user in (("x", "u"), ("y", "v"))
        ]
        body = {"clusters": [server], "users": users, "contexts": contexts, "current-context": current}
        self.kubeconfig.write_text(json.dumps(body))


@contextlib.asynccontextmanager
async def open_client(
    folder: Path, timing: CredentialTiming = DEFAULT_TIMING
) -> AsyncIterator[tuple[Server, Cluster]]:
    server = Server(folder / "config")
    listener = Listener(Routes(http={("GET", PATH): server.answer}), Limits(), name="api")
    server.port = await listener.start("127.0.0.1", 0)
    server.write(server.token)
    cluster = await Cluster.connect(str(server.kubeconfig), timing=timing)
    try:
        yield server, cluster
    finally:
        await cluster.close()
        await listener.drain(1)


async def test_a_token_that_was_replaced_is_read_again_once_it_is_refused(tmp_path: Path) -> None:
    async with open_client(tmp_path) as (server, cluster):
        assert (await cluster.request("GET", PATH)).status == 200
        server.token = "second"  # noqa: S105
        server.write("second")
        assert (await cluster.request("GET", PATH)).status == 200
        assert server.refused == ["Bearer first"]
        assert (await cluster.request("GET", PATH)).status == 200
        assert len(server.refused) == 1


async def test_a_token_that_is_refused_for_good_is_not_tried_twice(tmp_path: Path) -> None:
    async with open_client(tmp_path) as (server, cluster):
        server.token = "second"  # noqa: S105
        assert (await cluster.request("GET", PATH)).status == 401
        server.kubeconfig.unlink()
        assert (await cluster.request("GET", PATH)).status == 401
        assert server.refused == ["Bearer first", "Bearer first"]


async def test_the_context_stays_though_the_user_chose_another_meanwhile(tmp_path: Path) -> None:
    async with open_client(tmp_path) as (server, cluster):
        server.token = "second"  # noqa: S105
        server.write("second", current="y")
        assert (await cluster.request("GET", PATH)).status == 200


async def test_a_token_of_another_server_is_shown_to_none(tmp_path: Path) -> None:
    async with open_client(tmp_path) as (server, cluster):
        server.token = "second"  # noqa: S105
        server.write("second", host="localhost")
        assert (await cluster.request("GET", PATH)).status == 401
        assert server.refused == ["Bearer first"]


@pytest.mark.parametrize("text", ["", "a: [", "{}", "current-context: x\nclusters: []\ncontexts: []\n"])
async def test_a_kubeconfig_that_is_being_written_changes_nothing(tmp_path: Path, text: str) -> None:
    async with open_client(tmp_path) as (server, cluster):
        server.token = "second"  # noqa: S105
        server.kubeconfig.write_text(text)
        assert (await cluster.request("GET", PATH)).status == 401


async def test_a_plugin_that_hangs_holds_up_no_request_for_good(tmp_path: Path) -> None:
    async with open_client(tmp_path, CredentialTiming(pause=0.0, patience=0.1)) as (server, cluster):
        server.token = "second"  # noqa: S105
        body = json.loads(server.kubeconfig.read_text())
        plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sleep", "args": ["2"]}
        body["users"][0]["user"] = {"exec": plugin}
        server.kubeconfig.write_text(json.dumps(body))
        for _ in range(3):
            assert (await cluster.request("GET", PATH)).status == 401
        server.write("second")
        statuses = []
        for _ in range(100):
            statuses.append((await cluster.request("GET", PATH)).status)
            if statuses[-1] == 200:
                break
            await asyncio.sleep(0.1)
        assert statuses[-1] == 200


async def test_requests_go_through_the_proxy_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_proxy("me:p@ss/word") as proxy:
        address = proxy.address.replace("://", "://me:p%40ss%2Fword@")
        monkeypatch.setenv("http_proxy", address)
        async with open_client(tmp_path) as (_, cluster):
            assert (await cluster.request("GET", PATH)).status == 200
        assert proxy.admitted == 1
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with open_client(tmp_path) as (_, cluster):
            assert (await cluster.request("GET", PATH)).status == 200
        assert proxy.admitted == 1


async def test_a_netrc_of_the_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password word\n")
    monkeypatch.setenv("NETRC", str(netrc))
    async with open_client(tmp_path) as (_, cluster):
        assert (await cluster.request("GET", PATH)).status == 200


HEAD = "current-context: c\ncontexts: [{name: c, context: {cluster: x, user: u}}]\n"
SERVER = "https://127.0.0.1:1"
KEPT = (
    f"clusters: [{{name: x, cluster: {{server: '{SERVER}'}}}}]\nusers: [{{name: u, user: {{}}}}]\n".encode()
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [b\n", ":2:1: not YAML: expected ',' or ']'"),
        (b"a:\n\t- b\n", ":2:1: not YAML: a tab stands where only spaces may be"),
        (b"- a\n", "it is not a mapping of clusters and users"),
        (b"", "it is not a mapping of clusters and users"),
        (b"junk", "it is not a mapping of clusters and users"),
        (b"\xff\xfe\x00", "it is not text"),
        (b"clusters: 3\n", "clusters must be a list of objects"),
        (b"users: [3]\n", "users must be a list of objects"),
        (b"clusters: []\ncontexts: []\n", "is not a complete kubeconfig: current-context is missing"),
        (b"current-context: x\ncontexts: []\nclusters: []\n", ": there is no context named x"),
        (HEAD.encode() + b"clusters: []\nusers: []\n", ": there is no cluster named x"),
        (b"a: &x [*x]\n" + HEAD.encode() + KEPT, "an alias in it contains itself"),
        (
            f"{HEAD}clusters: [{{name: x, cluster: {{server: '127.0.0.1:1'}}}}]\nusers: []\n".encode(),
            "is not a URL",
        ),
        (
            f"{HEAD}clusters: [{{name: x, cluster: {{server: 'h:1'}}}}]\n"
            "users: [{name: u, user: {}}]\n".encode(),
            "server 'h:1' is not a URL",
        ),
        (
            f"{HEAD}clusters: [{{name: x, cluster: {{server: '{SERVER}', "
            "certificate-authority-data: aaaa}}]\n"
            "users: [{name: u, user: {}}]\n".encode(),
            "is not PEM",
        ),
    ],
)
async def test_unusable_kubeconfig_is_named_with_the_reason(
    content: bytes, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "config"
    file.write_bytes(content)
    with pytest.raises(config.ConfigException) as raised:
        await load_configuration(str(file))
    assert str(file) in str(raised.value)
    assert message in str(raised.value)


async def test_missing_program_for_credentials_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config"
    file.write_text(
        f"{HEAD}clusters: [{{name: x, cluster: {{server: '{SERVER}'}}}}]\n"
        "users: [{name: u, user: {exec: {command: no-such-program}}}]\n"
    )
    with pytest.raises(config.ConfigException, match="the program 'no-such-program', which gives user 'u'"):
        await load_configuration(str(file))
    assert capfd.readouterr().err == ""


async def test_missing_kubeconfig_and_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(config.ConfigException, match="none: no such file"):
        await load_configuration(str(tmp_path / "none"))
    with pytest.raises(config.ConfigException, match="cannot be read: Is a directory"):
        await load_configuration(str(tmp_path))
