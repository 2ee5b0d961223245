"""A Flagd, its FeatureFlagSource and a cluster that makes what is applied."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import WORKLOADS
from controller.api.meta import ObjectKey, Resource
from controller.pods.flagd_objects import ExposureRules
from controller.pods.flagd_reconciler import FlagdReconciler
from controller.pods.installation import Options
from controller.pods.known_objects import KnownObjects
from controller.pods.stage import FLAGDS
from tests.worlds.stages import RecordingCluster, take_turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.runtime.result import Settled
    from controller.runtime.setbacks import Setback

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


@dataclass(eq=False)
class World(RecordingCluster):
    """The Flagd `flags` in `shop`, whose objects are in the cache as soon as they are applied."""

    options: Options = OPTIONS
    gateways: bool = True
    refused: Mapping[str, Setback] = field(default_factory=dict)
    """By what `writes` would have."""
    exposure: ExposureRules = field(default_factory=ExposureRules)
    unwatched: dict[ObjectKey, dict[str, Any]] = field(default_factory=dict)
    """Objects without our label."""

    def __post_init__(self) -> None:
        super().__init__((FLAGDS,))
        self.failing |= self.refused
        self.objects.learn(source())
        known = KnownObjects(self.objects, ())
        self.reconciler = FlagdReconciler(self.objects, self, known, self.options, self.exposure)
        self.status: Mapping[str, Any] = {}

    async def look(self, **spec: Any) -> Settled:
        """Reconcile, and keep the status."""
        resource = replace(flagd(**spec), status=self.status)
        settled = (await take_turn(self.reconciler, resource, NOW)).settled
        self.status = settled.status
        return settled

    def rolled_out(self, pods: int = 1, **status: Any) -> None:
        """What the Deployment's controller says."""
        counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        found = self.the("Deployment", "flags")
        given = {**dict.fromkeys(counts, pods), "observedGeneration": found.generation, **status}
        self.set_status(found, given)

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        del api_version
        return self.unwatched.get(ObjectKey(kind, namespace, name))

    async def serves(self, api_version: str, plural: str) -> bool:
        assert (api_version, plural) in {(each.api_version, each.plural) for each in WORKLOADS}
        return self.gateways
