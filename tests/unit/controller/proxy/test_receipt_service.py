"""Receipts, what is delivered and who may read it, joined as in a proxy."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.flagreceipt import OBSERVED_AT
from controller.proxy.access import KNOWN_REFUSED, REFUSED_SECONDS, TOKEN_SECONDS, VERDICT_SECONDS
from controller.proxy.receipt_service import fleet
from evaluator.http.messages import Call, Code, RpcError
from evaluator.wire.delivery import LEAVE, REPORT
from evaluator.wire.delivery_pb2 import LeaveRequest, Member, ReportRequest
from tests.worlds.proxy import Scene, flags

if TYPE_CHECKING:
    from controller.proxy.receipts import Receipts

PLACE = ("shop", "flags")


def report(scene: Scene, digest: str, token: str = "", pod: str = "a", selector: str = "shop/flags") -> None:
    headers = (("authorization", f"Bearer {token}"),) if token else ()
    member = Member(instance=f"i-{pod}", namespace="shop", pod=pod, pod_uid=f"u-{pod}")
    request = ReportRequest(member=member, selector=selector, digest=digest)
    scene.routes.unary[REPORT](Call(REPORT, headers, "peer"), request.SerializeToString())


def goodbye(scene: Scene, _digest: str, token: str, selector: str = "shop/flags") -> None:
    member = Member(instance="i-a", namespace="shop", pod="a", pod_uid="u-a")
    request = LeaveRequest(member=member, selector=selector)
    call = Call(LEAVE, (("authorization", f"Bearer {token}"),), "peer")
    scene.routes.unary[LEAVE](call, request.SerializeToString())


def receipts(scene: Scene) -> Receipts:
    return scene.proxy.receipts


def counts(scene: Scene) -> list[tuple[Any, int, int]]:
    found = receipts(scene).counts()
    return [(each.place, each.served, each.served + each.lagging) for each in found]


def digest(scene: Scene) -> str:
    expected = scene.proxy.receipt_service.expected_digest(PLACE)
    assert expected is not None
    return expected.digest


async def test_what_is_delivered_is_what_members_should_serve() -> None:
    scene = Scene()
    scene.learn("shop/flags", flags("one"))
    scene.open("shop/flags")
    report(scene, digest(scene))
    assert counts(scene) == [(PLACE, 1, 1)]
    scene.learn("shop/flags", flags("two"))
    receipts(scene).tick(1.0)
    assert counts(scene) == [(PLACE, 0, 1)]


@pytest.mark.parametrize(
    ("stamp", "moment"),
    [
        ("2026-01-01T00:00:00.250Z", 1767225600.25), ("2026-01-01T00:00:00.250", None), ("yesterday", None),
        (None, None),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("in_tokyo")
async def test_the_object_says_when_a_change_was_observed(stamp: str | None, moment: float | None) -> None:
    scene = Scene()
    scene.learn("shop/flags", flags("one"), annotations={} if stamp is None else {OBSERVED_AT: stamp})
    expected = scene.proxy.receipt_service.expected_digest(PLACE)
    assert expected is not None
    assert expected.observed_at == moment


async def test_streams_without_the_mark_are_counted_apart_until_they_end() -> None:
    scene = Scene()
    scene.learn("shop/flags", flags("one"))
    stream = scene.open("shop/flags")
    subscribers = receipts(scene).subscribers(PLACE)
    assert subscribers is not None
    assert (subscribers.streams, subscribers.empty) == (1, False)
    stream.hang_up()
    assert subscribers.streams == 0


async def test_a_deleted_object_has_no_digest_and_its_members_serve_something_else() -> None:
    scene = Scene()
    scene.learn("shop/flags", flags("one"))
    scene.open("shop/flags")
    report(scene, digest(scene))
    scene.forget("shop/flags")
    receipts(scene).tick(1.0)
    assert counts(scene) == [(PLACE, 0, 1)]
    assert scene.proxy.receipt_service.expected_digest(PLACE) is None


@pytest.mark.parametrize("token", ["", "nobodys", "reads-but-is-no-pod", "may-not-read"])
async def test_where_tokens_are_enforced_only_pods_that_may_read_send_receipts(token: str) -> None:
    scene = Scene("enforce")
    scene.learn("shop/flags", flags("one"))
    scene.reviews.rights = {"reads-but-is-no-pod": {PLACE}, "may-not-read": set()}
    for _ in range(3):
        with pytest.raises(RpcError):
            report(scene, "", token)
        await scene.rest()
    with pytest.raises(RpcError) as refused:
        report(scene, "", token)
    assert (refused.value.code, counts(scene)) == (Code.PERMISSION_DENIED, [])


@pytest.mark.parametrize("say", [report, goodbye])
async def test_while_a_new_token_is_reviewed_its_bearer_is_asked_to_try_again(say: Any) -> None:
    scene = Scene("warn")
    scene.learn("shop/flags", flags("one"))
    scene.open("shop/flags")
    report(scene, digest(scene))
    scene.reviews.rights = {"ann": {PLACE}}
    with pytest.raises(RpcError) as pending:
        say(scene, "sha256:another", "ann")
    assert (pending.value.code, counts(scene)) == (Code.UNAVAILABLE, [(PLACE, 1, 1)])
    await scene.rest()
    say(scene, "sha256:another", "ann")
    assert counts(scene) != [(PLACE, 1, 1)]


@pytest.mark.parametrize(("auth", "token"), [("warn", "nobodys"), ("off", "not-reviewed-yet")])
async def test_a_token_that_says_nothing_makes_a_claim(auth: str, token: str) -> None:
    scene = Scene(auth)
    scene.learn("shop/flags", flags("one"))
    scene.open("shop/flags")
    await scene.access.user("nobodys", "10.0.0.1")
    report(scene, digest(scene), token)
    assert fleet(receipts(scene))["flagSets"][0]["members"][0]["verified"] is False


async def by_id() -> Scene:
    """A pod that may read follows by flagSetId, where tokens are enforced, and has reported."""
    scene = Scene("enforce")
    scene.learn("shop/flags", flags("one", flagSetId="web"))
    scene.reviews.rights = {"pod-a": {PLACE}}
    scene.open(BY_ID, "pod-a")
    await scene.rest()
    report(scene, digest(scene), "pod-a", selector=BY_ID)
    return scene


BY_ID = "flagSetId=web"
WAYS = [(report, (0, 1)), (goodbye, (0, 0))]


@pytest.mark.parametrize(("say", "after"), WAYS, ids=["report", "goodbye"])
async def test_by_a_flag_set_id_a_report_counts_also_once_its_token_is_due_for_a_review(
    say: Any, after: tuple[int, int]
) -> None:
    scene = await by_id()
    scene.now += TOKEN_SECONDS
    await scene.report(partial(say, scene, "sha256:another", "pod-a", selector=BY_ID))
    assert [each[1:] for each in counts(scene)] == [after]
    await scene.rest()
    assert scene.reviews.asked.count(("pod-a",)) == 2


@pytest.mark.parametrize("token", ["", "nobodys"])
async def test_by_a_flag_set_id_too_a_report_without_a_token_of_a_pod_is_refused(token: str) -> None:
    scene = await by_id()
    with pytest.raises(RpcError) as refused:
        await scene.report(partial(report, scene, "", token, selector=BY_ID))
    assert refused.value.code == Code.PERMISSION_DENIED


async def test_while_it_is_asked_what_a_pod_may_read_its_report_is_of_what_it_was_sent() -> None:
    scene = await by_id()
    scene.now += VERDICT_SECONDS
    scene.learn("shop/a", flags("two", flagSetId="web"), creationTimestamp="2025-01-01T00:00:00Z")
    report(scene, "sha256:another", "pod-a", selector=BY_ID)
    assert counts(scene) == [(PLACE, 0, 1)]


async def test_a_report_without_a_stream_is_asked_for_again_until_it_is_known_what_it_is_of() -> None:
    scene = await by_id()
    scene.learn("shop/other", flags("two", flagSetId="other"))
    scene.reviews.rights["pod-a"].add(("shop", "other"))
    say = partial(report, scene, "sha256:another", "pod-a", selector="flagSetId=other")
    with pytest.raises(RpcError) as pending:
        say()
    assert (pending.value.code, counts(scene)) == (Code.UNAVAILABLE, [(PLACE, 1, 1)])
    await scene.report(say)
    assert counts(scene) == [(PLACE, 1, 1), (("shop", "other"), 0, 1)]


@pytest.mark.parametrize(("later", "taken"), [(REFUSED_SECONDS, True), (KNOWN_REFUSED, False)])
async def test_a_token_that_was_refused_is_reviewed_again_beside_the_report(
    later: float, taken: bool
) -> None:
    scene = Scene("warn")
    scene.learn("shop/flags", flags("one"))
    await scene.access.user("nobodys", "10.0.0.1")
    scene.now += later
    with contextlib.nullcontext() if taken else pytest.raises(RpcError):
        report(scene, "sha256:another", "nobodys")
    await scene.rest()
    assert (len(counts(scene)), len(scene.reviews.asked)) == (taken, 2)
