"""What the streams of pods with standing orders are sent, as labels, annotations, grants and sets change."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2

from controller.api.kinds import FLAG_GRANT, NAMESPACE
from controller.api.meta import ObjectKey
from controller.delivery.object_bounds import ORDERS
from controller.delivery.standing_orders import DIRECT_SET, ORDER, ORDER_NAMESPACE, RECORD
from evaluator.flags import saved
from evaluator.flags.model import ComposedPart, FlagSet, State
from evaluator.http.messages import Call, Code, RpcError
from evaluator.sync.follower import Accepted, accept
from evaluator.sync.source import Delivery
from evaluator.wire.delivery import REPORT
from evaluator.wire.delivery_pb2 import Member, ReportRequest, ServedSet
from tests.worlds.proxy import FETCH, Scene, flags, large

if TYPE_CHECKING:
    from controller.api.flagreceipt import Laggard
    from tests.worlds.evaluator import FakeStream

WEB = "flagstaff.dev/orders=shop/Deployment/web"
OWNED = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": True}]


def sent_values(stream: FakeStream) -> list[dict[str, str]]:
    """For each message, the value of each flag and the set that it is of."""
    documents = [
        json.loads(sync_pb2.SyncFlagsResponse.FromString(message).flag_configuration)
        for message in stream.sent
    ]
    return [
        {
            key: f"{flag['variants']['on']} of {flag['metadata']['flagstaff.dev/flag-set']}"
            for key, flag in document["flags"].items()
        }
        for document in documents
    ]


@pytest.mark.parametrize("change", ["deleted", "injected with other orders"])
async def test_with_enforce_the_streams_of_a_pod_end_at_once_when_its_order_is_gone(change: str) -> None:
    scene = Scene("enforce")
    orders = Orders(scene)
    scene.learn("shop/base", of("hello", "1"))
    orders.namespace(**{ORDER: "base"})
    orders.pod("pod-web", WEB)
    account = "system:serviceaccount:shop:default"
    scene.reviews.rights = {account: set()}
    stream = scene.open(WEB, f"{account}#pod-web")
    await scene.rest()
    orders.pod("pod-web", WEB, "shop/more")
    assert stream.ended is None
    if change == "deleted":
        scene.informer.forget(ObjectKey("Pod", "shop", "pod-web"))
    else:
        orders.pod("pod-web", "shop/more")
    assert stream.ended == (Code.PERMISSION_DENIED, "this Pod is not one of the ordered pods any more")


def served_set(stream: FakeStream, before: FlagSet | None = None) -> FlagSet:
    """What an evaluator serves that had `before` and then received what the stream was sent."""
    for message in stream.sent:
        document = sync_pb2.SyncFlagsResponse.FromString(message).flag_configuration.encode()
        judged = accept(Delivery((("flags.json", document),)), before)
        assert isinstance(judged, Accepted)
        before = judged.flag_set
    assert before is not None
    return before


def served_values(stream: FakeStream, before: FlagSet | None = None) -> dict[str, str]:
    """The value of each flag that such an evaluator serves."""
    return {key: flag.variants["on"] for key, flag in served_set(stream, before).flags.items()}


def of(key: str, value: str, **metadata: Any) -> dict[str, Any]:
    """A document with one flag."""
    document = flags(value, **metadata)
    document["flags"] = {key: document["flags"]["hello"]}
    return document


class Orders:
    """The objects with orders, in a scene."""

    def __init__(self, scene: Scene) -> None:
        self.objects = scene.informer

    def namespace(self, name: str = "shop", **labels: str) -> None:
        self.learn("Namespace", "", name, labels=labels)

    def workload(
        self,
        name: str = "web",
        order: str = "",
        namespace: str = "",
        *,
        kind: str = "Deployment",
        **more: str,
    ) -> None:
        given = {ORDER: order, ORDER_NAMESPACE: namespace}
        annotations = {key: text for key, text in given.items() if text} | more
        self.learn(kind, "shop", name, annotations=annotations)

    def grant(self, *, to: str = "platform") -> None:
        kinds = [{"group": "core.openfeature.dev", "kind": "FeatureFlagConfiguration"}]
        spec = {"from": [{"group": "", "kind": "Pod", "namespace": "shop"}], "to": kinds}
        self.learn(FLAG_GRANT.kind, to, "pods", spec=spec)

    def pod(self, name: str, *selectors: str) -> None:
        record = json.dumps({"flagSet": ",".join(selectors)})
        self.learn("Pod", "shop", name, annotations={RECORD: record})

    def learn(self, kind: str, namespace: str, name: str, *, spec: Any = None, **meta: Any) -> None:
        body = {
            "apiVersion": "v1",
            "metadata": {"name": name, "namespace": namespace, "uid": f"u-{name}", **meta},
            "spec": spec,
        }
        self.objects.learn(kind, body)


@pytest.fixture
async def scene() -> Scene:
    return Scene()


@pytest.fixture
def orders(scene: Scene) -> Orders:
    return Orders(scene)


async def test_the_order_of_the_namespace_is_sent_and_the_workloads_wins_for_each_flag(
    scene: Scene, orders: Orders
) -> None:
    scene.learn("shop/base", {"flags": {**of("hello", "base")["flags"], **of("kill", "base")["flags"]}})
    scene.learn("shop/special", of("hello", "special"))
    orders.namespace(**{ORDER: "base"})
    stream = scene.open(WEB)
    orders.workload(order="special")
    await scene.rest()
    origin = "FeatureFlagConfiguration"
    assert sent_values(stream) == [
        {"hello": f"base of {origin}/base", "kill": f"base of {origin}/base"},
        {"hello": f"special of {origin}/special", "kill": f"base of {origin}/base"},
    ]


async def test_a_changed_label_and_a_changed_set_reach_open_streams(scene: Scene, orders: Orders) -> None:
    scene.learn("shop/one", of("hello", "1"))
    scene.learn("shop/two", of("hello", "2"))
    orders.namespace(**{ORDER: "one"})
    stream, other = scene.open(WEB), scene.open("flagstaff.dev/orders=shop")
    orders.namespace(**{ORDER: "two"})
    await scene.rest()
    scene.learn("shop/two", of("hello", "3"))
    await scene.rest()
    values = [message["hello"].partition(" ")[0] for message in sent_values(stream)]
    assert values == ["1", "2", "3"]
    assert sent_values(other) == sent_values(stream)


async def test_a_direct_set_wins_and_is_one_that_the_workload_owns(scene: Scene, orders: Orders) -> None:
    scene.learn("shop/base", of("hello", "base"))
    scene.learn("shop/web", of("hello", "stranger"))
    orders.namespace(**{ORDER: "base"})
    stream = scene.open(WEB)
    scene.learn("shop/web", of("hello", "direct"), ownerReferences=OWNED)
    await scene.rest()
    assert [message["hello"] for message in sent_values(stream)] == [
        "base of FeatureFlagConfiguration/base",
        "direct of FeatureFlagConfiguration/web",
    ]


async def test_pods_of_a_workload_with_flags_of_its_own_wait_until_these_are_there(
    scene: Scene, orders: Orders
) -> None:
    scene.learn("shop/base", of("hello", "base"))
    orders.namespace(**{ORDER: "base"})
    orders.workload(**{DIRECT_SET: "{}"})
    stream = scene.open(WEB)
    assert sent_values(stream) == []
    scene.learn("shop/web", of("bye", "direct"), ownerReferences=OWNED)
    await scene.rest()
    assert [sorted(message) for message in sent_values(stream)] == [["bye", "hello"]]
    assert scene.proxy.order_notices.take() == []


async def test_an_order_is_also_the_name_of_a_flag_set_that_writes_another_object(
    scene: Scene, orders: Orders
) -> None:
    orders.workload(order="checkout")
    stream = scene.open(WEB)
    written = {"manager": "flagstaff-flagset/shop/checkout"}
    labels = {"flagstaff.dev/flagset": "checkout"}
    scene.learn("shop/checkout-flags", of("hello", "1"), labels=labels, managedFields=[written])
    await scene.rest()
    assert sent_values(stream) == [{"hello": "1 of FlagSet/checkout"}]


async def test_an_order_of_another_namespace_needs_a_grant(scene: Scene, orders: Orders) -> None:
    scene.learn("platform/kill", of("hello", "1"))
    orders.workload(order="kill", namespace="platform")
    stream = scene.open(WEB)
    refused = scene.open(WEB, path=FETCH)
    await scene.rest()
    assert sent_values(stream) == []
    assert refused.ended is not None
    assert "no FlagGrant lets pods of shop refer to it" in str(refused.ended)
    orders.grant()
    await scene.rest()
    assert sent_values(stream) == [{"hello": "1 of FeatureFlagConfiguration/platform/kill"}]


async def test_after_a_withdrawn_grant_nothing_new_is_sent_and_new_pods_get_nothing(
    scene: Scene, orders: Orders
) -> None:
    scene.learn("platform/kill", of("hello", "1"))
    orders.workload(order="kill", namespace="platform")
    orders.grant()
    stream = scene.open(WEB)
    scene.informer.forget(ObjectKey(FLAG_GRANT.kind, "platform", "pods"))
    scene.learn("platform/kill", of("hello", "2"))
    later = scene.open(WEB)
    await scene.rest()
    assert [len(stream.sent), len(later.sent), stream.ended, later.ended] == [1, 0, None, None]


async def test_a_withdrawn_grant_freezes_that_set_and_nothing_else(scene: Scene, orders: Orders) -> None:
    scene.learn("shop/base", of("kill", "1"))
    scene.learn("platform/plat", of("hello", "1"))
    orders.namespace(**{ORDER: "base"})
    orders.workload(order="plat", namespace="platform")
    orders.grant()
    stream = scene.open(WEB)
    await scene.rest()
    scene.informer.forget(ObjectKey(FLAG_GRANT.kind, "platform", "pods"))
    scene.learn("platform/plat", of("hello", "2"))
    scene.learn("shop/base", of("kill", "2"))
    await scene.rest()
    assert served_values(stream) == {"kill": "2", "hello": "1"}
    scene.override("shop/off", "base", flag="kill", disabled=True)
    await scene.rest()
    served = served_set(stream)
    assert served.flags["kill"].state is State.DISABLED
    assert "flagstaff.dev/flag-sets" not in served.metadata
    new = scene.open(WEB)
    await scene.rest()
    assert list(served_values(new)) == ["kill"]
    orders.grant()
    await scene.rest()
    assert served_values(stream)["hello"] == "2"


async def test_a_proxy_that_does_not_know_what_was_sent_leaves_the_frozen_set_to_the_evaluator(
    scene: Scene, orders: Orders
) -> None:
    scene.learn("shop/base", of("kill", "1"))
    scene.learn("platform/plat", of("hello", "1"))
    orders.namespace(**{ORDER: "base"})
    orders.workload(order="plat", namespace="platform")
    orders.grant()
    stream = scene.open(WEB)
    await scene.rest()
    on_disk = saved.decode(
        saved.encode(saved.Saved(served_set(stream), datetime(2026, 1, 1, tzinfo=UTC)))
    ).flag_set
    restarted = Scene()
    orders = Orders(restarted)
    restarted.learn("shop/base", of("kill", "2"))
    restarted.learn("platform/plat", of("hello", "2"))
    orders.namespace(**{ORDER: "base"})
    orders.workload(order="plat", namespace="platform")
    later = restarted.open(WEB)
    await restarted.rest()
    assert served_values(later, on_disk) == {"kill": "2", "hello": "1"}
    report(restarted, later, "10.0.0.1:1", before=on_disk)
    assert counts_of(restarted) == {"base": (1, 0, 1), "plat": (0, 1, 0)}
    [laggard] = laggards_of(restarted, ("platform", "plat"))
    assert (laggard.name, laggard.reason) == ("shop/web-1", "OrderNotGranted")
    assert laggard.digest == on_disk.parts[1].digest


@pytest.mark.parametrize("broken", ["gone", "unknown", "conflict", "malformed", "undeliverable"])
async def test_with_an_order_that_cannot_be_followed_its_set_stays_and_the_others_move_on(
    scene: Scene, orders: Orders, broken: str
) -> None:
    scene.learn("shop/base", of("kill", "1"))
    scene.learn("shop/special", of("hello", "1"))
    scene.learn("shop/twin", of("hello", "2", flagSetId="kills"))
    scene.learn("shop/bad", {"flags": 1})
    orders.namespace(**{ORDER: "base"})
    orders.workload(order="special")
    stream = scene.open(WEB, host="10.0.0.1")
    await scene.rest()
    report(scene, stream, "10.0.0.1:1")
    if broken == "gone":
        scene.forget("shop/special")
    elif broken == "conflict":
        scene.learn("shop/base", of("kill", "1", flagSetId="kills"))
        orders.workload(order="twin")
    elif broken == "undeliverable":
        orders.workload(order="bad")
    else:
        orders.workload(order="specal" if broken == "unknown" else "Special!")
    await scene.rest()
    scene.learn("shop/base", of("kill", "2", **({"flagSetId": "kills"} if broken == "conflict" else {})))
    await scene.rest()
    assert served_values(stream) == {"kill": "2", "hello": "1"}
    assert stream.ended is None
    report(scene, stream, "10.0.0.1:1")
    assert counts_of(scene) == {"base": (1, 0, 1), "special": (0, 1, 0)}


async def test_a_set_of_another_namespace_that_no_order_names_counts_no_pod(
    scene: Scene, orders: Orders
) -> None:
    scene.learn("shop/base", of("kill", "1"))
    scene.learn("platform/plat", of("hello", "1"))
    orders.namespace(**{ORDER: "base"})
    orders.workload(order="other", namespace="platform")
    stream = scene.open(WEB)
    await scene.rest()
    claimed = ComposedPart("workload", "FeatureFlagConfiguration/platform/plat", "sha256:x", "main@sha1:x")
    before = FlagSet(parts=(ComposedPart("namespace", "FeatureFlagConfiguration/base"), claimed))
    report(scene, stream, "10.0.0.1:1", before=before)
    assert counts_of(scene) == {"base": (1, 0, 1)}


async def test_a_set_that_is_ordered_elsewhere_too_is_not_kept_as_it_was(
    scene: Scene, orders: Orders
) -> None:
    scene.learn("shop/base", of("kill", "1"))
    orders.namespace(**{ORDER: "base"})
    orders.workload(order="base")
    stream = scene.open(WEB)
    await scene.rest()
    orders.workload(order="unknown")
    scene.learn("shop/base", of("kill", "2"))
    await scene.rest()
    assert served_values(stream) == {"kill": "2"}


async def test_an_override_that_a_later_set_hides_says_which_set_does(scene: Scene, orders: Orders) -> None:
    scene.learn("shop/base", of("hello", "1"))
    scene.learn("shop/special", of("hello", "2"))
    orders.namespace(**{ORDER: "base"})
    orders.workload(order="special")
    stream = scene.open(WEB)
    scene.override("shop/off", "base", disabled=True)
    await scene.rest()
    report(scene, stream, "10.0.0.1:1")
    subscribers = scene.proxy.receipts.subscribers(("shop", "base"))
    assert subscribers is not None
    [hidden] = subscribers.status().hidden
    assert (hidden.flag, hidden.by, hidden.count) == ("hello", "FeatureFlagConfiguration/shop/special", 1)


async def test_a_problem_is_an_event_once_while_it_lasts(scene: Scene, orders: Orders) -> None:
    orders.workload(order="kil")
    for selector in (WEB, f"{WEB}+shop/x"):
        scene.open(selector)
    [(resource, occurrence)] = scene.proxy.order_notices.take()
    assert (str(resource.key), occurrence.reason) == ("Deployment/shop/web", "OrderUnknown")
    assert "namespace shop has no flags of FlagSet or" in occurrence.message
    assert "kil; create it, or correct the name" in occurrence.message
    assert scene.proxy.order_notices.take() == []
    scene.learn("shop/kil", of("hello", "1"))
    assert scene.proxy.order_notices.take() == []
    scene.forget("shop/kil")
    orders.namespace(**{ORDER: "nothing"})
    kinds = {resource.key.kind for resource, _ in scene.proxy.order_notices.take()}
    assert kinds == {"Deployment", NAMESPACE.kind}


async def test_beyond_the_bound_the_newest_workloads_orders_are_a_problem_until_an_older_one_has_none(
    scene: Scene, orders: Orders
) -> None:
    scene.learn("shop/base", of("hello", "base"))
    scene.learn("shop/special", of("hello", "special"))
    orders.namespace(**{ORDER: "base"})
    older = "2026-01-01T00:00:00Z"
    annotations = {ORDER: "special"}
    for number in range(ORDERS.most):
        orders.learn("Job", "shop", f"job-{number}", annotations=annotations, creationTimestamp=older)
    orders.learn(
        "Deployment", "shop", "web", annotations=annotations, creationTimestamp="2026-01-02T00:00:00Z"
    )
    stream = scene.open(WEB)
    await scene.rest()
    assert served_values(stream) == {"hello": "base"}
    [(resource, occurrence)] = scene.proxy.order_notices.take()
    assert (str(resource.key), occurrence.reason) == ("Deployment/shop/web", "TooManyOrders")
    assert f"namespace shop has {ORDERS.most} older Deployments or" in occurrence.message
    assert "remove its order" in occurrence.message
    orders.learn("Job", "shop", "job-0", creationTimestamp=older)
    await scene.rest()
    assert served_values(stream) == {"hello": "special"}


async def test_a_withdrawn_order_ends_streams_that_follow_nothing_else(scene: Scene, orders: Orders) -> None:
    scene.learn("shop/base", of("hello", "1"))
    orders.namespace(**{ORDER: "base"})
    stream, waiting = scene.open(WEB), scene.open("flagstaff.dev/orders=other")
    scene.informer.forget(ObjectKey("Namespace", "", "shop"))
    await scene.rest()
    assert stream.ended is not None
    assert stream.ended[0] is Code.NOT_FOUND
    assert waiting.ended is None


async def test_nothing_is_sent_before_all_objects_with_orders_are_listed() -> None:
    scene = Scene(order_kinds=("Namespace", "Deployment"))
    scene.learn("shop/base", of("hello", "1"))
    Orders(scene).namespace(**{ORDER: "base"})
    stream, fetched = scene.open(WEB), scene.open(WEB, path=FETCH)
    scene.informer.end_listing("Namespace", "")
    await scene.rest()
    assert (stream.sent, fetched.ended and fetched.ended[0]) == ([], Code.UNAVAILABLE)
    scene.informer.end_listing("Deployment", "")
    await scene.rest()
    assert sent_values(stream) == [{"hello": "1 of FeatureFlagConfiguration/base"}]


async def test_a_jobs_orders_are_those_of_its_cron_job(scene: Scene, orders: Orders) -> None:
    scene.learn("shop/base", of("hello", "1"))
    orders.workload("night", "base", kind="CronJob")
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "night", "uid": "u", "controller": True}
    orders.learn("Job", "shop", "night-1", ownerReferences=[owner])
    stream = scene.open("flagstaff.dev/orders=shop/Job/night-1")
    await scene.rest()
    assert sent_values(stream) == [{"hello": "1 of FeatureFlagConfiguration/base"}]


async def test_large_sets_are_composed_beside_the_loop_once_for_all_workloads(
    scene: Scene, orders: Orders
) -> None:
    scene.learn("shop/base", large("1"))
    scene.learn("shop/other", of("bye", "1"))
    orders.namespace(**{ORDER: "base"})
    orders.workload("web", "other")
    orders.workload("api", "other")
    streams = [scene.open(WEB), scene.open("flagstaff.dev/orders=shop/Deployment/api")]
    await scene.rest()
    scene.learn("shop/base", large("2"))
    await scene.rest()
    for stream in streams:
        assert [message["hello"].partition(" ")[0] for message in sent_values(stream)] == ["1", "2"]
    assert streams[0].sent == streams[1].sent


async def test_enforce_serves_the_pods_that_were_injected_with_these_orders() -> None:
    scene = Scene("enforce")
    orders = Orders(scene)
    scene.learn("shop/base", of("hello", "1"))
    orders.namespace(**{ORDER: "base"})
    orders.pod("pod-web", WEB, "shop/other")
    orders.pod("pod-api", "flagstaff.dev/orders=shop/Deployment/api")
    account, stranger = "system:serviceaccount:shop:default", "system:serviceaccount:evil:default"
    scene.reviews.rights = {account: set(), stranger: set()}
    own = scene.open(WEB, f"{account}#pod-web")
    refused = [
        scene.open(WEB, f"{account}#pod-api"),
        scene.open(WEB, account),
        scene.open(WEB, f"{stranger}#pod-web"),
    ]
    unknown = scene.open(WEB, f"{account}#pod-new")
    await scene.rest()
    assert sent_values(own) == [{"hello": "1 of FeatureFlagConfiguration/base"}]
    assert [stream.ended and stream.ended[0] for stream in refused] == [Code.PERMISSION_DENIED] * 3
    assert unknown.ended is not None
    assert unknown.ended[0] is Code.UNAVAILABLE


def report(
    scene: Scene, stream: FakeStream, peer: str, token: str = "", before: FlagSet | None = None
) -> None:
    """Report that the evaluator serves what it was sent, and keeps of `before` what it is to keep."""
    served = served_set(stream, before)
    request = ReportRequest(
        member=Member(instance="i", namespace="shop", pod="web-1", pod_uid="u-web-1"),
        selector=WEB, digest=str(served.metadata["flagstaff.dev/digest"]), served_for_ms=1,
        sets=[
            ServedSet(order=part.order, flag_set=part.origin, digest=part.digest, revision=part.revision)
            for part in served.parts if part.origin
        ],
    )  # fmt: skip
    headers = (("authorization", f"Bearer {token}"),) if token else ()
    scene.routes.unary[REPORT](Call(REPORT, headers, peer), request.SerializeToString())


def laggards_of(scene: Scene, place: tuple[str, str]) -> tuple[Laggard, ...]:
    subscribers = scene.proxy.receipts.subscribers(place)
    assert subscribers is not None
    return subscribers.status().laggards


def counts_of(scene: Scene) -> dict[str, tuple[int, int, int]]:
    """(served, lagging, streams without receipts) by flag set."""
    return {
        counts.place[1]: (counts.served, counts.lagging, counts.delivered)
        for counts in scene.proxy.receipts.counts()
    }


async def test_an_evaluator_is_counted_for_each_of_the_sets_that_it_follows(
    scene: Scene, orders: Orders
) -> None:
    for name in ("base", "special", "other"):
        scene.learn(f"shop/{name}", of(name, "1"))
    orders.namespace(**{ORDER: "base"})
    orders.workload(order="special")
    stream = scene.open(WEB, host="10.0.0.1")
    await scene.rest()
    report(scene, stream, "10.0.0.1:1")
    assert counts_of(scene) == {"base": (1, 0, 1), "special": (1, 0, 1)}
    scene.learn("shop/special", of("special", "2"))
    await scene.rest()
    scene.proxy.receipts.tick(0.1)
    assert counts_of(scene) == {"base": (1, 0, 1), "special": (0, 1, 1)}
    orders.workload(order="other")
    await scene.rest()
    report(scene, stream, "10.0.0.1:1")
    scene.proxy.receipts.tick(0.1)
    assert counts_of(scene) == {"base": (1, 0, 1), "other": (1, 0, 1)}


async def test_a_receipt_of_a_pod_with_other_orders_is_refused_with_enforce() -> None:
    scene = Scene("enforce")
    orders = Orders(scene)
    scene.learn("shop/base", of("hello", "1"))
    orders.namespace(**{ORDER: "base"})
    orders.pod("pod-web", WEB)
    orders.pod("pod-api", "flagstaff.dev/orders=shop/Deployment/api")
    account = "system:serviceaccount:shop:default"
    scene.reviews.rights = {account: set()}
    stream = scene.open(WEB, f"{account}#pod-web")
    await scene.rest()
    await scene.report(lambda: report(scene, stream, "10.0.0.1:1", f"{account}#pod-web"))
    assert counts_of(scene)["base"][0] == 1
    with pytest.raises(RpcError) as refusal:
        await scene.report(lambda: report(scene, stream, "10.0.0.2:1", f"{account}#pod-api"))
    assert refusal.value.code is Code.PERMISSION_DENIED


async def test_a_malformed_selector_is_refused_with_the_syntax(scene: Scene) -> None:
    stream = scene.open("flagstaff.dev/orders=shop/deployment")
    assert stream.ended is not None
    assert stream.ended[0] is Code.INVALID_ARGUMENT
    assert "flagstaff.dev/orders=NAMESPACE[/KIND/NAME]" in str(stream.ended)


async def test_a_closed_stream_leaves_nothing_behind(scene: Scene, orders: Orders) -> None:
    scene.learn("shop/base", of("hello", "1"))
    orders.namespace(**{ORDER: "base"})
    stream = scene.open(WEB)
    stream.hang_up()
    ordered = scene.proxy.deliveries.ordered
    assert ordered.in_namespace("") == []
    scene.learn("shop/base", of("hello", "2"))
    again = scene.open(WEB)
    await scene.rest()
    assert [message["hello"].partition(" ")[0] for message in sent_values(again)] == ["2"]
