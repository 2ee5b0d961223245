"""A cluster in memory and a FlagSet in it: objects, artifacts and a clock in; what was written, status,
conditions and Events out.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from controller.api.flagset import KIND, SOURCE_API
from controller.api.meta import ObjectKey
from controller.configurations.stage import CONFIGURATIONS
from controller.flagsets.compose import ProvenanceDetail
from controller.flagsets.inputs import InputReader
from controller.flagsets.reconciler import FlagSetReconciler
from controller.flagsets.stage import FLAG_SETS
from controller.runtime.setbacks import Failed
from tests.worlds.flags import flag as definition
from tests.worlds.objects import NAMESPACE, manifest
from tests.worlds.other_clusters import OtherClusters
from tests.worlds.stages import RecordingCluster, Turn, body_of, take_turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.artifact_status import ArtifactStatus
    from controller.flagsets.inputs import Read

CONFIGURATION = "FeatureFlagConfiguration"
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def flag(default: str | None = "off", **fields: Any) -> dict[str, Any]:
    return definition(default) | fields


BROKEN = flag("no such variant")
"""An error."""
ODD = flag(targeting={"frobnicate": [1]})
"""A warning."""


def document(**flags: Any) -> str:
    return json.dumps({"flags": flags}, indent=1)


def pack(files: Mapping[str, str]) -> bytes:
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
class World:
    """One FlagSet, `checkout` in `shop`, of the FlagSource `flags`."""

    cluster: RecordingCluster = field(default_factory=lambda: RecordingCluster((FLAG_SETS, CONFIGURATIONS)))
    archives: dict[str, bytes] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    readers: list[str | None] = field(default_factory=list)
    """Those that were to read ConfigMaps and Secrets."""
    now: datetime = START
    detail: ProvenanceDetail = ProvenanceDetail.FULL
    home: str = ""
    """The namespace whose FlagPolicies judge all."""
    values: dict[tuple[str, str], Mapping[str, bytes]] = field(default_factory=dict)
    """What ConfigMaps and Secrets hold, by (kind, name)."""
    before: dict[str, Any] = field(default_factory=dict)
    """What was delivered, for a test to come back to."""

    def __post_init__(self) -> None:
        self.others = OtherClusters(self.cluster)
        self.restart()

    def restart(self) -> None:
        """Another process: what it knows stands in the cluster."""
        self.reconciler = FlagSetReconciler(
            self.cluster.objects,
            self,
            self.cluster.impersonate,
            lambda: 0.5,
            self.detail,
            InputReader(self._values("Secret"), self._values("ConfigMap")),
            self.home,
            clusters=self.others,
        )

    def _values(self, kind: str) -> Read:
        async def read(namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
            assert namespace == NAMESPACE
            self.readers.append(account)
            return self.values.get((kind, name))

        return read

    async def read(self, namespace: str, artifact: ArtifactStatus) -> bytes:
        self.reads.append(artifact.revision)
        if artifact.digest not in self.archives:
            raise Failed("ArtifactFailed", "the artifact server is down")
        return self.archives[artifact.digest]

    def commit(self, revision: str, text: str = "", *, kind: str = "FlagSource", **files: str) -> None:
        """The source has a new artifact: `flags.json` with `text`, and `files`."""
        tree = {name.replace("__", "."): each for name, each in files.items()}
        archive = pack({"flags.json": text, **tree} if text else tree)
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
        body = {**manifest(KIND, name, wanted), "status": status}
        body["metadata"] = {**body["metadata"], "finalizers": known.finalizers if known else ()}
        self.cluster.put(body)

    def annotate(self, annotation: str, value: str, name: str = "checkout") -> None:
        """As `kubectl annotate` does; no new generation."""
        body = body_of(self.cluster.the(KIND, name))
        body["metadata"]["annotations"][annotation] = value
        self.cluster.put(body)

    async def look(self, name: str = "checkout", after: float = 1.0) -> Turn:
        """One turn of the loop."""
        self.now += timedelta(seconds=after)
        resource = self.cluster.the(KIND, name)
        turn = await take_turn(self.reconciler, resource, self.now)
        self.cluster.set_status(resource, turn.status)
        turn.writes = self.cluster.take_writes()
        return turn

    def document(self, name: str = "checkout", kind: str = CONFIGURATION) -> dict[str, Any]:
        """What is delivered."""
        spec: dict[str, Any] = self.cluster.the(kind, name).spec["flagSpec"]
        return spec

    def document_shards(self) -> list[str]:
        """The names that the index lists."""
        return [each["name"] for each in self.cluster.the(CONFIGURATION, "checkout").spec["shards"]]

    def defaults(self) -> dict[str, Any]:
        return {key: each.get("defaultVariant") for key, each in self.document()["flags"].items()}
