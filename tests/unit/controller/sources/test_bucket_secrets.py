"""`spec.bucket` and Secrets on a real server of each protocol, asked as in a cluster: by a helper process."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING

import pytest
import trustme

from controller.runtime.hosts import Hosts
from controller.runtime.setbacks import Failed
from tests.buckets.azure import KEY, token
from tests.buckets.fixtures import KINDS, azure_port, empty_bucket, google_port
from tests.buckets.google import service_account
from tests.git_http import http_proxy
from tests.s3 import manifest
from tests.sync_sources import raw_server
from tests.worlds.sources import Cluster

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from tests.buckets.relay import Relay

__all__ = ["azure_port", "google_port"]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Relay]:
    with empty_bucket(request.param, request, tmp_path) as server:
        server.put(a="1")
        yield server


@pytest.fixture
async def cluster(store: Relay) -> AsyncIterator[Cluster]:
    found = Cluster(store.login)
    yield found
    await found.factory.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_private_authority_is_trusted_when_a_secret_says_so(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with empty_bucket(kind, request, tmp_path, tls) as store:
        store.put(a="1")
        # By a tunnel of the proxy that judges, and without it.
        for hosts in (None, Hosts((), ())):
            cluster = Cluster(store.login, hosts)
            cluster.secrets["trusted"] = {"ca.crt": authority.cert_pem.bytes().decode()}
            cluster.secrets["strange"] = {"ca.crt": trustme.CA().cert_pem.bytes().decode()}
            await (await cluster.open(manifest(store, certSecretRef={"name": "trusted"}))).resolve()
            for spec in (manifest(store), manifest(store, certSecretRef={"name": "strange"})):
                with pytest.raises(Failed, match=r"UnknownIssuer.*spec\.bucket\.certSecretRef") as setback:
                    await (await cluster.open(spec)).resolve()
                assert setback.value.reason == "CertificateRefused"
            await cluster.factory.close()


async def test_a_proxy_of_a_secret_is_passed(cluster: Cluster, store: Relay) -> None:
    with http_proxy("me:p@ss/word") as proxy:
        cluster.secrets["proxy"] = {"address": proxy.address, "username": "me", "password": "p@ss/word"}
        source = await cluster.open(manifest(store, proxySecretRef={"name": "proxy"}))
        await source.resolve()
        assert len(proxy.targets) == 1
        cluster.secrets["proxy"] = {**cluster.secrets["proxy"], "password": "wr@ng/word"}
        with pytest.raises(Failed, match="407") as setback:
            await (await cluster.open(manifest(store, proxySecretRef={"name": "proxy"}))).resolve()
    assert setback.value.reason == "AuthenticationFailed"
    assert "wr@ng" not in str(setback.value) + repr(source)


async def test_a_redirect_leads_to_no_host_that_is_denied(
    store: Relay, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    with empty_bucket("s3", request, tmp_path / "elsewhere") as other:
        leads_to = other.url.replace("127.0.0.1", "localhost")

        def away(exchange: BaseHTTPRequestHandler) -> bool:
            exchange.send_response(307)
            exchange.send_header("Location", f"{leads_to}/flags")
            exchange.send_header("Content-Length", "0")
            exchange.end_headers()
            return True

        store.instead = away
        cluster = Cluster(store.login, Hosts((), ("localhost",)))
        with pytest.raises(Failed):
            await (await cluster.open(manifest(store))).resolve()
        assert store.asked
        assert not other.asked
        await cluster.factory.close()


async def test_the_controllers_own_identity_is_not_shown_where_a_secret_is(
    cluster: Cluster, store: Relay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own-token"
    own.write_text("the-controllers-own")
    shown: list[str] = []

    def see(request: BaseHTTPRequestHandler) -> bool:
        shown.append(f"{request.command} {request.path} {request.headers}")
        return False

    store.instead = see
    for name, text in {
        # As AKS, EKS and Google's libraries have it.
        "AZURE_CLIENT_ID": "own", "AZURE_TENANT_ID": "own", "AZURE_FEDERATED_TOKEN_FILE": str(own),
        "AZURE_AUTHORITY_HOST": store.url,
        "AWS_SESSION_TOKEN": "the-controllers-own", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        "GOOGLE_BEARER_TOKEN": "the-controllers-own", "GOOGLE_SERVICE_ACCOUNT": str(own),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, text)
    await (await cluster.open(manifest(store))).resolve()
    assert (len(shown), store.listings) == (1, 1)
    assert "the-controllers-own" not in str(shown)


@pytest.mark.parametrize("store", ["google"], indirect=True)
async def test_a_key_that_names_a_host_does_not_decide_which_host_is_asked(
    cluster: Cluster, store: Relay
) -> None:
    elsewhere = json.loads(service_account()) | {"gcs_base_url": store.url}
    asked: list[bytes] = []

    def refuse(connection: socket.socket) -> None:
        asked.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    with raw_server(refuse) as port:
        cluster.secrets["bucket"] = {"serviceaccount": json.dumps(elsewhere)}
        cluster.secrets["proxy"] = {"address": f"http://127.0.0.1:{port}"}
        spec = {"provider": "gcp", "bucketName": store.bucket, "secretRef": {"name": "bucket"}}
        with pytest.raises(Failed):
            await (await cluster.open({**spec, "proxySecretRef": {"name": "proxy"}})).resolve()
    assert asked[0].startswith(b"CONNECT storage.googleapis.com:443 ")
    assert not store.asked


@pytest.mark.parametrize("store", ["azure"], indirect=True)
async def test_an_accounts_key_reads_and_so_does_a_token_with_its_mark(
    cluster: Cluster, store: Relay
) -> None:
    before = await (await cluster.open(manifest(store))).resolve()
    for login in ({"accountKey": KEY}, {"accountKey": f"{KEY}\n"}, {"sasKey": f"?{token('rl')}\n"}):
        cluster.secrets["bucket"] = login
        assert await (await cluster.open(manifest(store))).resolve() == before


@pytest.mark.parametrize("store", ["google"], indirect=True)
async def test_an_account_signs_its_requests_itself_unless_its_key_says_otherwise(
    cluster: Cluster, store: Relay
) -> None:
    shown: list[str] = []

    def see(request: BaseHTTPRequestHandler) -> bool:
        shown.append(request.headers.get("Authorization", ""))
        return False

    store.instead = see
    nobody = {"client_email": "", "private_key": "", "private_key_id": "", "disable_oauth": True}
    for text in (service_account(), json.dumps(nobody)):
        cluster.secrets["bucket"] = {"serviceaccount": text}
        await (await cluster.open(manifest(store))).resolve()
    assert [each[:10] for each in shown] == ["Bearer eyJ", ""]


@pytest.mark.parametrize(
    ("store", "login", "says"),
    [
        ("azure", {"accountKey": "d3Jvbmc="}, "403 AuthorizationFailure"),
        ("azure", {"sasKey": token("rl").replace("sig=", "sig=d3Jvbmc")}, "403 AuthorizationFailure"),
        ("azure", {"sasKey": token("r")}, "403 AuthorizationPermissionMismatch"),
        ("azure", {"accountKey": "no Base64!"}, "form"),
        ("azure", {"sasKey": "no-token"}, "form"),
        ("google", {"serviceaccount": "no JSON"}, "form"),
        ("google", {"serviceaccount": '{"client_email": "a", "private_key": "b", "private_key_id": "c"}'},
         "form"),
    ],
    indirect=["store"],
)  # fmt: skip
async def test_a_refused_key_is_reported_and_not_shown(
    cluster: Cluster, store: Relay, login: dict[str, str], says: str
) -> None:
    cluster.secrets["bucket"] = login
    with pytest.raises(Failed, match=rf"{says}.*; check the Secret that spec\.bucket\.secretRef") as setback:
        await (await cluster.open(manifest(store))).resolve()
    assert setback.value.reason == "AuthenticationFailed"
    assert not any(text in str(setback.value) for text in login.values())
