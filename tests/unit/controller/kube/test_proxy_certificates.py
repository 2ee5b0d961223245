"""The Secret and the ConfigMaps of the proxy's certificates, on a small server that speaks for the API
server.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from controller.kube.adapters import WRITTEN, ProxyCertificates
from controller.runtime.clock import now
from controller.runtime.setbacks import Failed, Stalled
from tests.unit.controller.kube.servers import open_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from controller.kube.client import Cluster


@dataclass
class Server:
    """One Secret, and ConfigMaps by namespace."""

    secret: dict[str, Any] | None = None
    maps: dict[str, dict[str, Any]] = field(default_factory=dict)
    refusing: str = ""
    """A namespace whose ConfigMap cannot be changed."""
    asked: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    """Of an answer with the Secret."""

    def add(self, namespace: str) -> None:
        self.maps[namespace] = {"metadata": {"name": "flagstaff-ca", "namespace": namespace}, "data": {}}

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path_qs}")
        parts = request.path.split("/")
        if "secrets" in parts:
            if request.method == "PUT":
                self.secret = await request.json()
            if self.secret is None:
                return web.json_response({"code": 404}, status=404)
            return web.json_response(self.secret, headers=self.headers)
        if request.method == "GET":
            items = [{"metadata": each["metadata"]} for each in self.maps.values()]
            return web.json_response({"metadata": {}, "items": items})
        namespace = parts[parts.index("namespaces") + 1]
        if namespace == self.refusing:
            return web.json_response({"message": "is immutable"}, status=422)
        patch = json.loads(await request.text())
        self.maps[namespace]["data"] |= patch["data"]
        self.maps[namespace]["metadata"]["annotations"] = patch["metadata"]["annotations"]
        return web.json_response({"metadata": self.maps[namespace]["metadata"]})

    def trusted_authorities(self) -> dict[str, str]:
        """Whom the clients of each namespace trust."""
        return {name: each["data"].get("ca.crt", "") for name, each in self.maps.items()}


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def cluster(server: Server, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with open_client(server.answer, tmp_path) as found:
        yield found


def store(cluster: Cluster, config_map: str = "flagstaff-ca") -> ProxyCertificates:
    return ProxyCertificates(cluster, "flagstaff-system", config_map, ())


def secret(**data: bytes) -> dict[str, Any]:
    encoded = {name.replace("_", "."): base64.b64encode(content).decode() for name, content in data.items()}
    return {"metadata": {"name": "flagstaff-proxy-tls"}, "data": encoded}


async def test_each_namespace_that_has_the_config_map_gets_the_authorities_once(
    cluster: Cluster, server: Server
) -> None:
    server.add("shop")
    server.add("billing")
    certificates = store(cluster)
    await certificates.trust(b"one")
    assert server.trusted_authorities() == {"shop": "one", "billing": "one"}
    assert "metadata.name%3Dflagstaff-ca" in server.asked[0]
    server.asked.clear()
    await certificates.trust(b"one")
    assert [each.split()[0] for each in server.asked] == ["GET"]
    await certificates.trust(b"one two")
    assert server.trusted_authorities() == {"shop": "one two", "billing": "one two"}


async def test_a_config_map_that_lost_the_annotation_is_written_anew(
    cluster: Cluster, server: Server
) -> None:
    server.add("shop")
    certificates = store(cluster)
    await certificates.trust(b"one")
    assert server.maps["shop"]["metadata"]["annotations"][WRITTEN].startswith("sha256:")
    server.add("shop")
    await certificates.trust(b"one")
    assert server.trusted_authorities() == {"shop": "one"}


async def test_one_that_cannot_be_changed_keeps_no_other_from_it(cluster: Cluster, server: Server) -> None:
    for each in ("a", "b", "c"):
        server.add(each)
    server.refusing = "b"
    with pytest.raises(Failed, match=r"namespace b: .*is immutable"):
        await store(cluster).trust(b"one")
    assert server.trusted_authorities() == {"a": "one", "b": "", "c": "one"}


async def test_without_a_name_no_namespace_gets_the_authorities(cluster: Cluster, server: Server) -> None:
    server.add("shop")
    await store(cluster, "").trust(b"one")
    assert server.asked == []


async def test_a_certificate_of_somebody_else_is_left_alone(cluster: Cluster, server: Server) -> None:
    server.secret = secret(tls_crt=b"theirs", tls_key=b"theirs")
    with pytest.raises(Stalled, match="did not make"):
        await store(cluster).read()
    assert [each.split()[0] for each in server.asked] == ["GET"]


async def test_an_empty_secret_is_filled_and_read_back(cluster: Cluster, server: Server) -> None:
    certificates = store(cluster)
    assert await certificates.read() is None
    server.secret = {"metadata": {"name": "flagstaff-proxy-tls"}}
    assert await certificates.read() == {}
    written = {"tls.crt": b"c", "tls.key": b"k", "ca.crt": b"a", "ca.key": b"s"}
    assert await certificates.write(written)
    assert await certificates.read() == written


@pytest.mark.parametrize("said", ["Mon, 01 Mar 2027 10:00:00 GMT", "yesterday", ""])
async def test_the_time_is_that_of_the_api_server(server: Server, cluster: Cluster, said: str) -> None:
    store = ProxyCertificates(cluster, "flagstaff-system", "flagstaff-ca", ())
    server.secret, server.headers = {"metadata": {}}, {"Date": said}
    before = now()
    await store.read()
    theirs = datetime(2027, 3, 1, 10, tzinfo=UTC)
    assert store.now == theirs if said.endswith("GMT") else before <= store.now <= now()
