"""Metrics of a rollout, checked as the controller does it, over objects and Secrets in memory."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from controller.api.fields import read
from controller.api.flagrollout import Metric
from controller.api.meta import ObjectKey, Resource
from controller.app.reconcilers import ROLLOUT_REQUESTS_AT_ONCE
from controller.rollouts.metric_checks import MetricChecks
from controller.rollouts.metric_servers import AllowedServers
from controller.rollouts.rollout_ports import MeasuredStep
from controller.runtime.cache import Cache
from controller.runtime.hosts import Hosts
from controller.runtime.http_client import HttpClient
from controller.runtime.limits import Places
from tests.worlds.objects import manifest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from controller.api.rollout_status import MetricStatus

NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
STEP: Final = MeasuredStep(
    rollout=ObjectKey("FlagRollout", "shop", "checkout"),
    target="checkout-production",
    flags=("new-checkout", "checkout/v2"),
    variant="on",
    candidate="sha256:0a1b",
    share=10.0,
    served_since=NOW - timedelta(hours=1),
)
ANY_HOST: Final = Hosts(denied=(), kind="rollout")


@dataclass
class MetricWorld:
    """Templates, Secrets, and the step that is checked."""

    client: HttpClient
    allow_local: bool = True
    step: MeasuredStep = STEP
    now: datetime = NOW
    objects: Cache = field(default_factory=Cache)
    secrets: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    counted: list[str] = field(default_factory=list)

    @property
    def servers(self) -> AllowedServers:
        """The servers that may be asked, with the Secrets."""

        async def secret(_namespace: str, name: str) -> Mapping[str, bytes] | None:
            return self.secrets.get(name)

        return AllowedServers(self.client, secret, self.allow_local)

    def template(self, provider: dict[str, Any], query: str, name: str = "errors", **spec: Any) -> None:
        """Create a MetricTemplate, or write it anew."""
        given = {"provider": provider, "query": query, **spec}
        self.put(manifest("MetricTemplate", name, given, namespace="shop"))

    def put(self, manifest: dict[str, Any]) -> None:
        """Create an object, or write it anew."""
        self.objects.put(Resource.of(manifest))

    async def check(
        self, *before: MetricStatus, seconds: float = 10.0, step: Any = None, **metric: Any
    ) -> MetricStatus:
        """Check one metric of template `errors`; a threshold of at most 0.5 where none is given."""
        checked = metric_of(**metric)
        present = self.step if step is None else replace(self.step, **step)
        checks = MetricChecks(self.objects, self.servers, self.counted.append)
        (status,) = await checks.measure(present, (checked,), before, self.now, seconds)
        return status


def metric_of(**spec: Any) -> Metric:
    """A metric of a FlagRollout."""
    base: dict[str, Any] = {"name": "errors"}
    if spec.get("type") != "guardrail":
        base["templateRef"] = {"name": "errors"}
    if spec.get("type", "threshold") == "threshold":
        base["thresholdRange"] = {"max": 0.5}
    return read(Metric, {**base, **spec})


@contextlib.asynccontextmanager
async def metric_world(hosts: Hosts | None = ANY_HOST, **settings: Any) -> AsyncIterator[MetricWorld]:
    """A world whose client may ask these hosts."""
    client = HttpClient(hosts, Places(ROLLOUT_REQUESTS_AT_ONCE, ROLLOUT_REQUESTS_AT_ONCE))
    try:
        yield MetricWorld(client, **settings)
    finally:
        await client.close()
