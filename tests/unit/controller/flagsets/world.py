"""A cluster in memory and a FlagSet in it: objects, artifacts and a clock in; what was written, status,
conditions and Events out.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from controller.api.flagset import KIND, SOURCE_API
from controller.api.objects.conditions import READY
from controller.api.objects.meta import ObjectKey, Resource
from controller.configurations.stage import CONFIGURATIONS
from controller.flagsets.building.commit_provenance import ProvenanceDetail
from controller.flagsets.reading.inputs import InputReader
from controller.flagsets.reconciler import FlagSetReconciler
from controller.flagsets.stage import FLAG_SETS
from controller.runtime.objects.cache import Cache
from controller.runtime.reconciling.result import Result
from controller.runtime.reconciling.setbacks import Failed, Passing, Setback
from controller.runtime.reconciling.settle import Settled, settle
from controller.runtime.reconciling.watches import indexes_of
from tests.statuses import find

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.objects.artifact_status import ArtifactStatus
    from controller.flagsets.reading.inputs import Read

NAMESPACE = "shop"
CONFIGURATION = "FeatureFlagConfiguration"
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def flag(default: str | None = "off", **fields: Any) -> dict[str, Any]:
    variants = {"on": True, "off": False}
    return {"state": "ENABLED", "variants": variants, "defaultVariant": default} | fields


BROKEN = flag("no such variant")
"""An error."""
ODD = flag(targeting={"frobnicate": [1]})
"""A warning."""


def document(**flags: Any) -> str:
    return json.dumps({"flags": flags}, indent=1)


def packed(files: Mapping[str, str]) -> bytes:
    archive = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", 6, archive, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for name, text in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return archive.getvalue()


@dataclass
class Cluster:
    """Keeps objects as the API server would: every write that changes one is a new version, one of its spec a
    new generation.
    """

    objects: Cache = field(default_factory=lambda: Cache(indexes_of((FLAG_SETS, CONFIGURATIONS))))
    writes: list[str] = field(default_factory=list)
    """`apply Kind/name` and `delete Kind/name`, in order."""
    managers: set[str] = field(default_factory=set)
    editors: dict[str, str] = field(default_factory=dict)
    """Who changed `Kind/name` by hand since it was applied."""
    failing: dict[str, Setback] = field(default_factory=dict)
    """By `apply Kind/name` or `delete Kind/name`."""
    prunes: frozenset[str] = frozenset()
    """Fields below spec that this API server does not know."""
    version: int = 0

    def put(self, body: dict[str, Any]) -> Resource:
        """Whatever anybody writes."""
        self.version += 1
        key = ObjectKey(body["kind"], NAMESPACE, body["metadata"]["name"])
        before = self.objects.get(key)
        changed = before is None or before.spec != body.get("spec", {})
        body["metadata"] |= {
            "namespace": NAMESPACE,
            "uid": before.uid if before else f"uid-{self.version}",
            "generation": (before.generation if before else 0) + changed,
            "resourceVersion": str(self.version),
        }
        resource = Resource.of(deepcopy(body))
        self.objects.learn(resource)
        return resource

    def edit(self, kind: str, name: str, who: str = "kubectl-edit", **spec: Any) -> None:
        """A hand's change."""
        before = self.the(kind, name)
        self.put(body_of(before) | {"spec": {**before.spec, **spec}})
        self.editors[f"{kind}/{name}"] = who

    def remove(self, kind: str, name: str) -> None:
        self.objects.forget(ObjectKey(kind, NAMESPACE, name))

    def the(self, kind: str, name: str) -> Resource:
        found = self.objects.get(ObjectKey(kind, NAMESPACE, name))
        assert found is not None, f"{kind} {name} is not there"
        return found

    def names(self, kind: str) -> list[str]:
        return sorted(each.name for each in self.objects.of_kind(kind))

    async def apply(self, manifest: Mapping[str, Any], *, manager: str) -> tuple[dict[str, Any], str]:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        self._write(f"apply {kind}/{name}")
        self.managers.add(manager)
        body = deepcopy(dict(manifest))
        there = self.objects.get(ObjectKey(kind, NAMESPACE, name))
        version = body["metadata"].pop("resourceVersion", None)
        if version is not None and (there is None or version != there.resource_version):
            raise Passing("ChangedMeanwhile", f"{kind} {name} changed", delay=0.1)
        body["spec"] = {key: each for key, each in body["spec"].items() if key not in self.prunes}
        written = self.put(body)
        return body_of(written), self.editors.pop(f"{kind}/{name}", "")

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, *, uid: str = "", version: str = ""
    ) -> None:
        self._write(f"delete {kind}/{name}")
        if self.the(kind, name).uid == uid:
            self.remove(kind, name)

    def _write(self, what: str) -> None:
        if what in self.failing:
            raise self.failing[what]
        self.writes.append(what)

    def taken(self) -> list[str]:
        """The writes since this was asked last."""
        writes, self.writes = self.writes, []
        return writes


def body_of(resource: Resource) -> dict[str, Any]:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.key.kind,
        "metadata": {
            "name": resource.name,
            "namespace": resource.namespace,
            "uid": resource.uid,
            "generation": resource.generation,
            "resourceVersion": resource.resource_version,
            "labels": dict(resource.labels),
            "annotations": dict(resource.annotations),
            "ownerReferences": [dict(each) for each in resource.owners],
        },
        "spec": deepcopy(dict(resource.spec)),
        "status": deepcopy(dict(resource.status)),
    }


@dataclass
class World:
    """One FlagSet, `checkout` in `shop`, of the FlagSource `flags`."""

    cluster: Cluster = field(default_factory=Cluster)
    archives: dict[str, bytes] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    accounts: list[str | None] = field(default_factory=list)
    """The service accounts that were to write."""
    readers: list[str | None] = field(default_factory=list)
    """Those that were to read ConfigMaps and Secrets."""
    now: datetime = START
    detail: ProvenanceDetail = ProvenanceDetail.FULL
    values: dict[tuple[str, str], Mapping[str, bytes]] = field(default_factory=dict)
    """What ConfigMaps and Secrets hold, by (kind, name)."""
    before: dict[str, Any] = field(default_factory=dict)
    """What was delivered, for a test to come back to."""

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Another process: what it knows stands in the cluster."""
        self.reconciler = FlagSetReconciler(
            self.cluster.objects,
            self,
            self.writer,
            lambda body: None,
            lambda: 0.5,
            self.detail,
            InputReader(self._values("Secret"), self._values("ConfigMap")),
        )

    def _values(self, kind: str) -> Read:
        async def read(namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
            assert namespace == NAMESPACE
            self.readers.append(account)
            return self.values.get((kind, name))

        return read

    def writer(self, namespace: str, account: str | None) -> Cluster:
        assert namespace == NAMESPACE
        self.accounts.append(account)
        return self.cluster

    async def read(self, namespace: str, artifact: ArtifactStatus) -> bytes:
        self.reads.append(artifact.revision)
        if artifact.digest not in self.archives:
            raise Failed("ArtifactFailed", "the artifact server is down")
        return self.archives[artifact.digest]

    def commit(self, revision: str, text: str = "", *, kind: str = "FlagSource", **files: str) -> None:
        """The source has a new artifact: `flags.json` with `text`, and `files`."""
        tree = {name.replace("__", "."): each for name, each in files.items()}
        archive = packed({"flags.json": text, **tree} if text else tree)
        digest = f"sha256:{hashlib.sha256(archive).hexdigest()}"
        self.archives[digest] = archive
        artifact = {
            "url": "http://artifacts/x.tar.gz",
            "revision": f"main@sha1:{revision}",
            "digest": digest,
            "metadata": {
                "flagstaff.dev/author": "Ada <ada@example.com>",
                "flagstaff.dev/committed-at": "2026-01-02T03:00:00Z",
                "flagstaff.dev/subject": f"Commit {revision}",
            },
        }
        self.source(kind, {"artifact": artifact})

    def source(self, kind: str, status: dict[str, Any], **spec: Any) -> None:
        body = {"apiVersion": SOURCE_API[kind], "kind": kind, "metadata": {"name": "flags"}}
        self.cluster.put({**body, "spec": spec, "status": status})

    def flag_set(self, name: str = "checkout", **spec: Any) -> None:
        known = self.cluster.objects.get(ObjectKey(KIND, NAMESPACE, name))
        wanted = {"sourceRef": {"kind": "FlagSource", "name": "flags"}, **spec}
        status = dict(known.status) if known else {"observedGeneration": -1}
        body = {"apiVersion": "flagstaff.dev/v1beta1", "kind": KIND, "metadata": {"name": name}}
        self.cluster.put({**body, "spec": wanted, "status": status})

    def annotate(self, annotation: str, value: str, name: str = "checkout") -> None:
        """As `kubectl annotate` does; no new generation."""
        body = body_of(self.cluster.the(KIND, name))
        body["metadata"]["annotations"][annotation] = value
        self.cluster.put(body)

    async def look(self, name: str = "checkout", after: float = 1.0) -> Looked:
        """One turn of the loop."""
        self.now += timedelta(seconds=after)
        resource = self.cluster.the(KIND, name)
        try:
            result = await self.reconciler.reconcile(resource, self.now)
        except Setback as setback:
            result = Result.of(setback)
        settled = settle(resource, result, self.now)
        changed = settled.status != resource.status
        self.cluster.put(body_of(resource) | {"status": settled.status})
        return Looked(settled, changed, type(result.outcome).__name__, self.cluster.taken())

    def document(self, name: str = "checkout", kind: str = CONFIGURATION) -> dict[str, Any]:
        """What is delivered."""
        spec: dict[str, Any] = self.cluster.the(kind, name).spec["flagSpec"]
        return spec

    def document_shards(self) -> list[str]:
        """The names that the index lists."""
        return [each["name"] for each in self.cluster.the(CONFIGURATION, "checkout").spec["shards"]]

    def defaults(self) -> dict[str, Any]:
        return {key: each.get("defaultVariant") for key, each in self.document()["flags"].items()}


@dataclass
class Looked:
    """What one reconcile came to."""

    settled: Settled
    status_written: bool
    result: str
    writes: list[str]

    @property
    def status(self) -> dict[str, Any]:
        return self.settled.status

    @property
    def ready(self) -> tuple[str, str, str]:
        """(status, reason, message)."""
        found = find(self.status, READY)
        assert found is not None
        return found["status"], found["reason"], found["message"]

    @property
    def reason(self) -> str:
        return self.ready[1]

    @property
    def message(self) -> str:
        return self.ready[2]

    @property
    def said(self) -> list[str]:
        """`Reason: message` of each Event."""
        return [f"{each.reason}: {each.message}" for each in self.settled.events]
