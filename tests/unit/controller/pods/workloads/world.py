"""A Flagd, its FeatureFlagSource and a cluster that makes what is applied."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import WORKLOADS
from controller.api.objects.meta import ObjectKey, Resource
from controller.pods.admission.known_objects import KnownObjects
from controller.pods.injection.installation import Options
from controller.pods.workloads.exposure import Exposure
from controller.pods.workloads.reconciler import FlagdReconciler
from controller.pods.workloads.stage import FLAGDS
from controller.runtime.objects.cache import Cache
from controller.runtime.reconciling.settle import Settled, settle
from controller.runtime.reconciling.watches import indexes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.runtime.reconciling.setbacks import Setback

NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OPTIONS: Final = Options(image="example/evaluator:1", proxy_address="proxy:8015")
INGRESS: Final = {"enabled": True, "hosts": ["flags.example.com"]}
ROUTES: Final = {"enabled": True, "parentRefs": [{"name": "gateway"}]}


def flagd(**spec: Any) -> Resource:
    return Resource(
        ObjectKey("Flagd", "shop", "flags"),
        "flagd-uid",
        1,
        "1",
        {"featureFlagSource": "source", **spec},
        api_version="core.openfeature.dev/v1beta1",
    )


def source(**spec: Any) -> Resource:
    given = {"sources": [{"source": "checkout"}], **spec}
    return Resource(ObjectKey("FeatureFlagSource", "shop", "source"), "source-uid", 1, "1", given)


@dataclass
class World:
    """Applied objects are in the cache at once, as by their watch; one that is applied again as it is keeps
    its version.
    """

    options: Options = OPTIONS
    gateways: bool = True
    failing: Mapping[str, Setback] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    acted: list[str | None] = field(default_factory=list)
    """The accounts in whose names was written."""
    exposure: Exposure = field(default_factory=Exposure)
    unwatched: dict[ObjectKey, dict[str, Any]] = field(default_factory=dict)
    """Objects without our label."""

    def __post_init__(self) -> None:
        self.objects = Cache(indexes_of((FLAGDS,)))
        self.objects.learn(source())
        known = KnownObjects(self.objects, ())
        self.reconciler = FlagdReconciler(self.objects, self, self._learn, known, self.options, self.exposure)
        self._version = 10
        self.status: Mapping[str, Any] = {}

    async def look(self, **spec: Any) -> Settled:
        """Reconcile, and keep the status."""
        resource = replace(flagd(**spec), status=self.status)
        settled = settle(resource, await self.reconciler.reconcile(resource, NOW), NOW)
        self.status = settled.status
        return settled

    def the(self, kind: str) -> Resource:
        found = self.objects.get(ObjectKey(kind, "shop", "flags"))
        assert found is not None
        return found

    def change(self, kind: str, **spec: Any) -> None:
        """A hand's change."""
        found = self.the(kind)
        self._version += 1
        given = {**found.spec, **spec}
        self.objects.learn(
            replace(found, spec=given, resource_version=str(self._version), generation=found.generation + 1)
        )

    def rolled_out(self, pods: int = 1, **status: Any) -> None:
        """What the Deployment's controller says."""
        counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        found = self.the("Deployment")
        self._version += 1
        given = {**dict.fromkeys(counts, pods), "observedGeneration": found.generation, **status}
        self.objects.learn(replace(found, status=given, resource_version=str(self._version)))

    def taken(self) -> list[str]:
        """The writes since this was asked last."""
        writes, self.writes = self.writes, []
        return writes

    def acting_as(self, namespace: str, account: str | None) -> World:
        assert namespace == "shop"
        self.acted.append(account)
        return self

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        del api_version
        return self.unwatched.get(ObjectKey(kind, namespace, name))

    async def serves(self, api_version: str, plural: str) -> bool:
        assert (api_version, plural) in {(each.api_version, each.plural) for each in WORKLOADS}
        return self.gateways

    async def apply(self, manifest: Mapping[str, Any], *, manager: str) -> tuple[dict[str, Any], str]:
        assert manager == "flagstaff-flagd"
        kind, meta = manifest["kind"], manifest["metadata"]
        if kind in self.failing:
            raise self.failing[kind]
        self.writes.append(f"apply {kind}")
        before = self.objects.get(ObjectKey(kind, meta["namespace"], meta["name"]))
        made = Resource.of(manifest)
        same = before is not None and (before.spec, before.labels) == (made.spec, made.labels)
        self._version += not same
        body = deepcopy(dict(manifest))
        body["metadata"] |= {
            "uid": before.uid if before else f"uid-{self._version}",
            "generation": (before.generation if before else 0) + (not same),
            "resourceVersion": before.resource_version if before and same else str(self._version),
        }
        return {**body, "status": dict(before.status) if before else {}}, ""

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, *, uid: str = "", version: str = ""
    ) -> None:
        del api_version
        self.writes.append(f"delete {kind}")
        key = ObjectKey(kind, namespace, name)
        found = self.objects.get(key)
        assert found is not None
        assert found.uid == uid
        self.objects.forget(key)

    def _learn(self, body: dict[str, Any]) -> None:
        self.objects.learn(Resource.of(body))
