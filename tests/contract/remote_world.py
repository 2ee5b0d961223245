"""A FeatureFlagConfiguration with a remote provider, over a cluster in memory and servers on loopback."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from aiohttp import web

from controller.api import flagshard
from controller.api.meta import ObjectKey
from controller.api.status import REMOTE_FLAGS
from controller.configurations.reconciler import ConfigurationReconciler
from controller.configurations.remote_providers import RemoteProviders, RemoteShards
from controller.configurations.stage import CONFIGURATIONS
from controller.delivery.claims import ClaimIndex
from controller.delivery.delivered import delivery_of
from controller.flagsets.fetch import SourceFlags
from controller.runtime.helpers import TRUSTED
from controller.runtime.http_client import HttpClient
from controller.runtime.limits import Places
from controller.runtime.result import Settled, settle
from controller.runtime.shards import Shard
from controller.sources.flag_servers import GrpcFlags, HttpFlags
from controller.sources.secrets import Secrets
from tests.statuses import find
from tests.web_server import web_server
from tests.worlds.flagsets import CONFIGURATION, START, flag
from tests.worlds.objects import NAMESPACE
from tests.worlds.stages import RecordingCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from controller.api.artifact_status import ArtifactStatus
    from controller.api.meta import Resource
    from controller.delivery.delivered import Delivered, RemoteSource
    from controller.runtime.helpers import ForeignTasks
    from controller.runtime.hosts import Hosts

SECONDS = 2.0
"""Seconds that a provider may take."""


@dataclass
class FlagServer:
    """Answers as a test says; a document has an ETag of its content."""

    document: dict[str, Any] = field(default_factory=lambda: {"flags": {"remote": flag("on")}})
    accepts: str = ""
    """The login; empty: any."""
    answer: web.StreamResponse | None = None
    """Instead of the document."""
    headers: dict[str, str] = field(default_factory=dict)
    etag: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.headers))
        if self.answer is not None:
            return self.answer
        if self.accepts and request.headers.get("Authorization") != self.accepts:
            return web.Response(status=401)
        headers = {**self.headers, **({"ETag": self.etag} if self.etag else {})}
        if self.etag and request.headers.get("If-None-Match") == self.etag:
            return web.Response(status=304, headers=headers)
        return web.json_response(self.document, headers=headers)


@dataclass
class RemoteWorld:
    """One object, `flags` in `shop`, whose own flags are `own` and `both`."""

    hosts: Hosts | None = None
    cluster: RecordingCluster = field(default_factory=lambda: RecordingCluster((CONFIGURATIONS,)))
    secrets: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    archives: dict[str, bytes] = field(default_factory=dict)
    now: datetime = START
    tasks: ForeignTasks = TRUSTED
    local: dict[str, Any] = field(
        default_factory=lambda: {"flags": {"own": flag("off"), "both": flag("off")}}
    )

    def restart(self) -> None:
        """Another process: what it knows stands in the cluster."""
        secrets, objects = Secrets(self._secret), self.cluster.objects
        self.client = HttpClient(self.hosts, Places(4, 4))
        sources: dict[str, RemoteSource] = {
            "http": HttpFlags(self.client, secrets, SECONDS),
            "grpc": GrpcFlags(self.hosts, secrets, Places(4, 4), SECONDS),
            "flagSource": SourceFlags(objects, self),
        }
        shards = RemoteShards(objects, self.cluster.impersonate, Shard.of("team=shop", ()))
        self.readers: list[str | None] = []
        """The service accounts that were to read Secrets."""
        self.reconciler = ConfigurationReconciler(
            objects, ClaimIndex(), remote=RemoteProviders(objects, sources, shards, self.tasks)
        )

    def write(self, **provider: Any) -> None:
        """What the user applies; the status stays."""
        known = self.cluster.objects.get(ObjectKey(CONFIGURATION, NAMESPACE, "flags"))
        meta: dict[str, Any] = {"name": "flags", "labels": {"team": "shop", "app": "x"}}
        if known is not None:
            meta["annotations"] = dict(known.annotations)
        remote = {"remoteFlagProvider": provider} if provider else {}
        body = {"apiVersion": "core.openfeature.dev/v1beta1", "kind": CONFIGURATION, "metadata": meta}
        status = {} if known is None else dict(known.status)
        self.cluster.put({**body, "spec": {"flagSpec": self.local, **remote}, "status": status})

    @property
    def resource(self) -> Resource:
        return self.cluster.the(CONFIGURATION, "flags")

    async def look(self, after: float = 60.0) -> Settled:
        """One turn of the loop, once the provider is due again."""
        self.now += timedelta(seconds=after)
        resource = self.resource
        settled = settle(resource, await self.reconciler.reconcile(resource, self.now), self.now)
        self.cluster.set_status(resource, settled.status)
        return settled

    @property
    def delivered(self) -> Delivered:
        return delivery_of(self.resource, flagshard.finder(self.cluster.objects.get, NAMESPACE))

    @property
    def served(self) -> dict[str, str | None]:
        """The default variant of each flag that evaluators are sent."""
        return {key: each.default_variant for key, each in self.delivered.flag_set.flags.items()}

    @property
    def provider(self) -> dict[str, Any]:
        """The provider in the status."""
        return dict(self.resource.status["providers"][0])

    @property
    def condition(self) -> Mapping[str, Any]:
        found = find(self.resource.status, REMOTE_FLAGS)
        assert found is not None
        return found

    @property
    def shards(self) -> list[str]:
        return self.cluster.names(flagshard.KIND)

    async def read(self, namespace: str, artifact: ArtifactStatus) -> bytes:
        assert namespace == NAMESPACE
        return self.archives[artifact.digest]

    async def _secret(self, namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
        assert namespace == NAMESPACE
        self.readers.append(account)
        return self.secrets.get(name)


@contextlib.asynccontextmanager
async def remote_world(**options: Any) -> AsyncIterator[RemoteWorld]:
    world = RemoteWorld(**options)
    world.restart()
    try:
        yield world
    finally:
        await world.client.close()


@contextlib.asynccontextmanager
async def flag_server() -> AsyncIterator[tuple[FlagServer, str]]:
    """The server, and the URL of its document."""
    server = FlagServer()
    async with web_server(web.get("/flags.json", server.serve)) as port:
        yield server, f"http://127.0.0.1:{port}/flags.json"


def document(**flags: str) -> dict[str, Any]:
    """Flags by their default variants."""
    return json.loads(json.dumps({"flags": {key: flag(default) for key, default in flags.items()}}))  # type: ignore[no-any-return]
