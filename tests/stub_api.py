"""An API server that holds a few objects in memory, and refuses in all the ways that a real one does while it
starts, restarts or is overloaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from typing import TYPE_CHECKING, Any, Final

import trustme
import yaml
from aiohttp import web

from controller.api.kind import ResourceType
from controller.api.kinds import (
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    EVENT,
    FLAG_CARRIERS,
    INGRESS,
    LEASE,
    NAMESPACE,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
)
from tests.cluster.cutting import Cutter
from tests.hostile_objects import CRDS

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

_BUILT_IN: Final = (
    SECRET, CONFIG_MAP, POD, NAMESPACE, EVENT, LEASE, SERVICE, INGRESS, ROLE, ROLE_BINDING, DISRUPTION_BUDGET,
    *FLAG_CARRIERS,
    ResourceType("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions"),
)  # fmt: skip
"""The kinds of Kubernetes that our processes read. Flux is not installed here."""


def installed_kinds() -> Iterator[ResourceType]:
    """Yield the kinds of crds/, each in its stored version."""
    for file in sorted(CRDS.glob("*.yaml")):
        definition = yaml.load(file.read_text(), yaml.CSafeLoader)["spec"]
        version = next(version["name"] for version in definition["versions"] if version["storage"])
        names = definition["names"]
        yield ResourceType(f"{definition['group']}/{version}", names["kind"], names["plural"])


KINDS: Final = {type_.kind: type_ for type_ in (*_BUILT_IN, *installed_kinds())}
"""What the server serves, by kind."""


def _kinds_by_group() -> dict[tuple[str, str], dict[str, str]]:
    grouped: dict[tuple[str, str], dict[str, str]] = {}
    for type_ in KINDS.values():
        grouped.setdefault((type_.group, type_.version), {})[type_.plural] = type_.kind
    return grouped


_KINDS: Final = _kinds_by_group()
"""Kinds by plural, by group and version."""
_CLUSTER_WIDE: Final = {"namespaces", "customresourcedefinitions"}
_VERBS: Final = ["get", "list", "watch", "create", "patch", "update", "delete"]


class _Front(Cutter):
    """What stands before the server: a network, and the server's own handshakes."""

    fault = ""

    def _pass(self, accepted: socket.socket) -> None:
        if self.fault == "tls":
            with accepted, contextlib.suppress(OSError):
                accepted.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\nno TLS is spoken here yet\n")
            return
        if self.fault == "reset":
            accepted.close()
            return
        super()._pass(accepted)


class StubApi:
    """The server. `fault` is a status, `reset`, `tls`, `page` (200 with what is no JSON), `odd` (JSON that is
    no object of Kubernetes), `event` (a watch that sends an error), or empty: all is well.
    """

    def __init__(self, folder: Path) -> None:
        self.asked: list[tuple[str, str, int]] = []
        """(method, path, status) of each request."""
        self.deletes = False
        """Whether DELETE removes an object; else everything stays, for tests that look at all of it."""
        self.denied: set[str] = set()
        """Plurals, or names of pods, that the user has no right to."""
        self.nodes: list[object] | None = None
        """The cluster's nodes; None: the user has no right to them."""
        self._objects: dict[str, dict[str, Any]] = {}
        self._watches: set[tuple[str, asyncio.Queue[dict[str, Any]]]] = set()
        self._version = 1
        self._fault = ""
        self._loop = asyncio.new_event_loop()
        self._folder = folder
        self._front: _Front | None = None

    # -- what a test does ------------------------------------------------------------------------------------

    @property
    def kubeconfig(self) -> Path:
        return self._folder / "stub.kubeconfig"

    def refuse(self, fault: str) -> None:
        """Break all connections, and answer so from now on; an empty text ends it."""
        assert self._front is not None
        self._fault = fault if fault not in {"reset", "tls"} else ""
        self._front.fault = fault
        self._front.cut()

    def put(self, path: str, body: dict[str, Any]) -> None:
        """Make or change an object, as a person does."""
        asyncio.run_coroutine_threadsafe(self._put(path, body), self._loop).result(10)

    def remove(self, namespace: str) -> None:
        """Delete the objects of a namespace, as its deletion does."""
        asyncio.run_coroutine_threadsafe(self._remove(namespace), self._loop).result(10)

    @staticmethod
    def path_of(body: dict[str, Any]) -> str:
        """The path of an object; without a namespace, in `shop`."""
        meta, type_ = body["metadata"], KINDS[body["kind"]]
        root = f"/apis/{type_.api_version}" if type_.group else f"/api/{type_.version}"
        within = "" if type_.plural in _CLUSTER_WIDE else f"namespaces/{meta.get('namespace', 'shop')}/"
        return f"{root}/{within}{type_.plural}/{meta['name']}"

    def get(self, path: str) -> dict[str, Any]:
        """An object, empty where there is none."""
        return self._objects.get(path, {})

    def count(self, method: str, path: str, status: int) -> int:
        """How often that was answered."""
        return self.asked.count((method, path, status))

    # -- the server ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def serve(self) -> Iterator[StubApi]:
        """Listen for as long as the block lasts."""
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        runner = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(30)
        assert self._front is not None
        front = threading.Thread(target=self._front.run)
        front.start()
        try:
            yield self
        finally:
            self._front.stop()
            front.join()
            asyncio.run_coroutine_threadsafe(self._end(runner), self._loop).result(30)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    async def _start(self) -> web.AppRunner:
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1")
        ssl_context = await asyncio.to_thread(_server_context, issued)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl_context)
        await site.start()
        port = runner.addresses[0][1]
        self._front = _Front(port, 3600.0)
        self._write_kubeconfig(authority, self._front.port)
        return runner

    async def _end(self, runner: web.AppRunner) -> None:
        await runner.cleanup()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for each in left:
            each.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _write_kubeconfig(self, authority: trustme.CA, port: int) -> None:
        trusted = self._folder / "stub.ca"
        authority.cert_pem.write_to_path(str(trusted))
        cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(trusted)}
        content = {
            "apiVersion": "v1", "kind": "Config", "current-context": "stub",
            "clusters": [{"name": "stub", "cluster": cluster}],
            "users": [{"name": "stub", "user": {"token": "a-token"}}],
            "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": "stub"}}],
        }  # fmt: skip
        self.kubeconfig.write_text(json.dumps(content))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        response = self._refusal(request)
        if response is None:
            parts = request.path.strip("/").split("/")
            response = self._discovery(parts) or self._nodes(parts)
            if response is None and request.query.get("watch"):
                return await self._watch(request)
            response = response or await self._object(request)
        self.asked.append((request.method, request.path, response.status))
        return response

    def _refusal(self, request: web.Request) -> web.Response | None:
        fault = self._fault
        if not self.denied.isdisjoint(request.path.split("/")):
            status = {
                "kind": "Status",
                "code": 403,
                "message": f"{request.path} is forbidden: no right to it",
            }
            return web.json_response(status, status=403)
        if fault.isdigit():
            status = {"kind": "Status", "code": int(fault), "message": "not now"}
            return web.json_response(status, status=int(fault), headers={"Retry-After": "1"})
        if fault == "page":
            return web.Response(text="<html>please wait</html>", content_type="text/html")
        if fault == "odd":
            return web.json_response({"metadata": [1], "items": {"no": "list"}, "spec": "no object"})
        if fault == "event" and request.query.get("watch"):
            status = {"kind": "Status", "code": 500, "message": "etcdserver: no leader"}
            return web.json_response({"type": "ERROR", "object": status})
        return None

    def _discovery(self, parts: list[str]) -> web.Response | None:
        if parts == ["version"]:
            return web.json_response({"gitVersion": "v1.33.0", "major": "1", "minor": "33"})
        if parts == ["api"]:
            return web.json_response({"kind": "APIVersions", "versions": ["v1"]})
        if parts == ["apis"]:
            groups = [
                {
                    "name": group,
                    "versions": [{"version": version, "groupVersion": f"{group}/{version}"}],
                    "preferredVersion": {"version": version, "groupVersion": f"{group}/{version}"},
                }
                for group, version in _KINDS
                if group
            ]
            return web.json_response({"kind": "APIGroupList", "groups": groups})
        named = ("", parts[1]) if len(parts) == 2 else (parts[1], parts[2]) if len(parts) == 3 else None
        if named is None or (parts[0] == "api") != (named[0] == "") or named not in _KINDS:
            return None
        resources = [
            {
                "name": plural, "singularName": kind.lower(), "kind": kind,
                "namespaced": plural not in _CLUSTER_WIDE, "verbs": _VERBS,
            }
            for plural, kind in _KINDS[named].items()
        ]  # fmt: skip
        return web.json_response({"kind": "APIResourceList", "resources": resources})

    def _nodes(self, parts: list[str]) -> web.Response | None:
        if parts[-3:-2] == ["pods"] and parts[-1] == "log":
            # As of a pod that no node runs.
            status = 204 if parts[-2].startswith("pending") else 200
            return web.Response(text=f"the log of {parts[-2]}\n" if status == 200 else None, status=status)
        if parts == ["api", "v1", "nodes"] and self.nodes is not None:
            return web.json_response({"kind": "NodeList", "items": self.nodes})
        return None

    async def _object(self, request: web.Request) -> web.Response:
        path = request.path
        kind = _listed_kind(path)
        if request.method == "GET" and kind is not None:
            labels = dict(
                part.split("=") for part in request.query.get("labelSelector", "").split(",") if part
            )
            items = [
                each
                for name, each in self._objects.items()
                if _collection(name).endswith(_plural(path))
                and labels.items() <= each["metadata"].get("labels", {}).items()
            ]
            found = {"kind": f"{kind}List", "metadata": {"resourceVersion": str(self._version)}}
            return web.json_response({**found, "items": items})
        if _plural(path) == "":
            return web.Response(status=404, text="404 page not found")
        body = await request.json() if request.can_read_body else {}
        if request.method == "POST":
            path = f"{path}/{body['metadata']['name']}"
        target = path.removesuffix("/status")
        known = self._objects.get(target)
        if request.method == "DELETE" and self.deletes:
            self._objects.pop(target, None)
            return web.json_response({"kind": "Status", "metadata": {}})
        if request.method == "GET" or (known is None and isinstance(body, list)):
            return web.json_response(known or {"code": 404, "kind": "Status"}, status=200 if known else 404)
        if isinstance(body, list):
            await self._put(target, {**(known or {}), "status": _patch(known or {}, body)})
        elif "merge-patch" in request.content_type:
            await self._put(target, _merge(known or {}, body))
        elif request.method in {"POST", "PUT", "PATCH"}:
            await self._put(target, {**(known or {}), **body})
        return web.json_response(self._objects.get(target, {"kind": "Status", "metadata": {}}))

    async def _put(self, path: str, body: dict[str, Any]) -> None:
        self._version += 1
        known = self._objects.get(path)
        meta = {**(known or {}).get("metadata", {}), **body.get("metadata", {})}
        meta |= {"uid": f"uid-of-{path}", "resourceVersion": str(self._version)}
        meta.setdefault("generation", 1)
        self._objects[path] = {**body, "metadata": meta}
        self._report("MODIFIED" if known else "ADDED", path, self._objects[path])

    async def _remove(self, namespace: str) -> None:
        for path in [path for path in self._objects if f"/namespaces/{namespace}/" in path]:
            self._version += 1
            body = self._objects.pop(path)
            meta = {**body["metadata"], "resourceVersion": str(self._version)}
            self._report("DELETED", path, {**body, "metadata": meta})

    def _report(self, change: str, path: str, body: dict[str, Any]) -> None:
        for plural, queue in self._watches:
            if _collection(path).endswith(plural):
                queue.put_nowait({"type": change, "object": body})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self.asked.append(("WATCH", request.path, 200))
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        entry = (_plural(request.path), queue)
        self._watches.add(entry)
        try:
            since = int(request.query.get("resourceVersion", "0"))
            for path, each in self._objects.items():
                if _collection(path).endswith(entry[0]) and int(each["metadata"]["resourceVersion"]) > since:
                    queue.put_nowait({"type": "MODIFIED", "object": each})
            while True:
                await response.write(json.dumps(await queue.get()).encode() + b"\n")
        finally:
            self._watches.discard(entry)


def _server_context(issued: trustme.LeafCert) -> Any:
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    issued.configure_cert(context)
    return context


def _plural(path: str) -> str:
    """`/plural` of a list's or an object's path; empty where the kind is unknown."""
    known = {plural for kinds in _KINDS.values() for plural in kinds}
    return next((f"/{part}" for part in reversed(path.split("/")) if part in known), "")


def _collection(path: str) -> str:
    return path.rpartition("/")[0]


def _listed_kind(path: str) -> str | None:
    """The kind whose objects a path lists."""
    last = path.rpartition("/")[2]
    return next((kinds[last] for kinds in _KINDS.values() if last in kinds), None)


def _merge(body: Any, patch: Any) -> Any:
    """A body after a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(body) if isinstance(body, dict) else {}
    for name, part in patch.items():
        merged[name] = _merge(merged.get(name), part)
    return {name: part for name, part in merged.items() if part is not None}


def _patch(body: dict[str, Any], steps: list[dict[str, Any]]) -> dict[str, Any]:
    """A status after a JSON patch, as the controller writes it."""
    status = dict(body.get("status") or {})
    for step in steps:
        if step["path"] == "/status":
            status = dict(step["value"])
        elif step["op"] == "add":
            status[step["path"].removeprefix("/status/")] = step["value"]
        elif step["op"] == "remove":
            status.pop(step["path"].removeprefix("/status/"), None)
    return status


@contextlib.contextmanager
def stub_api(folder: Path, fault: str = "") -> Iterator[StubApi]:
    """A stub for as long as the block lasts, that refuses from its start where a fault is named."""
    folder.mkdir(parents=True, exist_ok=True)
    stub = StubApi(folder)
    with stub.serve():
        if fault:
            stub.refuse(fault)
        yield stub
