"""What a proxy says of receipts, by a scrape."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from controller.api.meta import ObjectKey, Resource
from controller.proxy.contents import SetPart
from controller.proxy.metrics import MOST_SETS, ReceiptMetrics, served_after_histogram
from controller.proxy.receipts import ExpectedDigest, Receipts
from evaluator.http.messages import Call, Code, RpcError
from evaluator.wire.delivery import REPORT
from evaluator.wire.delivery_pb2 import Member, ReportRequest

if TYPE_CHECKING:
    from controller.delivery.claims import Place
    from controller.proxy.receipts import MemberClaims


@dataclass
class ScrapedReceipts:
    """Every name is a flag set; each delivers `digest`, which was observed at 990."""

    now: float = 1000.0
    digest: str = "sha256:new"
    writes: int = 0
    most_sets: int = MOST_SETS
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.receipts = Receipts(
            parts=self.parts, expected=self.expected_digest, caller=lambda _: None, pods=self,
            clock=lambda: self.now, served_after=served_after_histogram(self.registry).observe,
        )  # fmt: skip
        self.registry.register(ReceiptMetrics(self.receipts, lambda: self.writes, most_sets=self.most_sets))

    def parts(self, selector: str, _: Call, claims: MemberClaims) -> list[SetPart]:
        if selector == "forbidden":
            raise RpcError(Code.PERMISSION_DENIED, "no")
        return [SetPart(("shop", selector), claims.digest, claims.revision)]

    def expected_digest(self, place: Place) -> ExpectedDigest:
        return ExpectedDigest(
            Resource(ObjectKey("FeatureFlagConfiguration", *place), "u", 1, "1"), self.digest, 990.0
        )

    def has_ended(self, _: str) -> bool:
        return False

    def report(self, pod: str, name: str = "flags", **fields: Any) -> None:
        member = Member(instance=pod, namespace="shop", pod=pod, pod_uid=pod)
        fields = {"member": member, "selector": name, "digest": self.digest, **fields}
        message = ReportRequest(**fields).SerializeToString()
        self.receipts.report(Call(REPORT, (), "peer"), message)

    def scrape(self) -> dict[str, float]:
        text = generate_latest(self.registry).decode()
        return {
            f"{sample.name.removeprefix('flagstaff_proxy_')}{[*sample.labels.values()]}": sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def values(self, *names: str) -> list[float | None]:
        found = self.scrape()
        return [found.get(name) for name in names]


@pytest.fixture
def world() -> ScrapedReceipts:
    return ScrapedReceipts()


def test_members_are_counted_by_flag_set_and_state(world: ScrapedReceipts) -> None:
    world.report("a")
    world.report("b", digest="sha256:old")
    world.report("c", "other")
    world.receipts.follow(("shop", "flags"), Call(REPORT, (), "peer"))
    states = ("served", "lagging", "delivered")
    assert world.values(*(f"set_members['flags', 'shop', '{each}']" for each in states)) == [1, 1, 1]
    assert world.values("set_members['other', 'shop', 'lagging']") == [0]
    assert world.values(*(f"members['{each}']" for each in states)) == [2, 1, 1]


def test_one_that_is_silent_lags(world: ScrapedReceipts) -> None:
    world.report("a")
    for _ in range(20):
        world.receipts.tick(1.0)
    assert world.values("members['served']", "members['lagging']") == [0, 1]


def test_series_by_flag_set_are_bounded_and_those_that_lag_come_first() -> None:
    world = ScrapedReceipts(most_sets=2)
    for number, name in enumerate(["few", "many", "many", "more", "more", "more"]):
        world.report(f"p{number}", name)
    world.report("behind", "late", digest="sha256:old")
    found = [name for name in world.scrape() if name.startswith("set_members")]
    assert found == [
        f"set_members{[name, 'shop', state]}"
        for name in ("late", "more")
        for state in ("served", "lagging", "delivered")
    ]
    assert world.values("members['served']", "members['lagging']") == [6, 1]


def test_receipts_and_writes_are_counted_and_refusals_by_reason(world: ScrapedReceipts) -> None:
    world.report("a")
    world.report("a")
    world.writes = 7
    for name, pod in (("forbidden", "a"), ("flags", ""), ("flags", "")):
        with pytest.raises(RpcError):
            world.report(pod, name)
    assert world.values(
        "receipts_total[]",
        "receipt_writes_total[]",
        "receipts_refused_total['permission_denied']",
        "receipts_refused_total['invalid_argument']",
    ) == [2, 7, 1, 2]


def test_the_time_from_observed_to_served_is_measured_once_for_each_member_that_follows(
    world: ScrapedReceipts,
) -> None:
    for pod in "ab":
        world.report(pod, digest="sha256:old")
    for _ in range(3):
        world.report("a", replaced=True, served_for_ms=9_970)
    world.report("b", replaced=True, served_for_ms=7_000)
    assert world.values(
        "served_after_seconds_count[]",
        "served_after_seconds_bucket['0.025']",
        "served_after_seconds_bucket['0.05']",
        "served_after_seconds_bucket['5.0']",
    ) == [2, 0, 1, 2]


@pytest.mark.parametrize(
    ("before", "fields"),
    [
        (None, {"replaced": True}),
        ("", {"replaced": False}),
        ("sha256:old", {"replaced": True, "digest": "sha256:other"}),
    ],
    ids=["a member of another proxy", "a first set", "something else"],
)
def test_a_member_that_did_not_follow_at_this_proxy_has_no_latency(
    world: ScrapedReceipts, before: str | None, fields: dict[str, Any]
) -> None:
    if before is not None:
        world.report("a", digest=before)
    world.report("a", **fields)
    assert world.values("served_after_seconds_count[]") == [0]
