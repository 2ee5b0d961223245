"""The service that receipts are sent to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from controller.proxy.receipt_service import fleet
from controller.proxy.users import Caller
from evaluator.http.messages import Code, RpcError
from evaluator.wire.delivery import LEAVE, MARK, REPORT
from evaluator.wire.delivery_pb2 import LeaveRequest, Member
from tests.worlds.proxy import PLACE, ReceiptScene, call, report

if TYPE_CHECKING:
    from controller.delivery.claims import Place
    from controller.proxy.receipts import Receipts

TOKEN = Caller("shop", "checkout-1", "uid-1", verified=True)


@pytest.fixture
def world() -> ReceiptScene:
    return ReceiptScene()


@pytest.fixture
def receipts(world: ReceiptScene) -> Receipts:
    return world.receipts()


def counts_of(receipts: Receipts) -> list[tuple[Place, int, int]]:
    return [(each.place, each.served, each.served + each.lagging) for each in receipts.counts()]


def test_a_receipt_makes_a_member(receipts: Receipts, world: ReceiptScene) -> None:
    report(receipts)
    assert counts_of(receipts) == [(PLACE, 1, 1)]
    assert world.changed == [PLACE]


def goodbye(receipts: Receipts) -> None:
    member = Member(namespace="shop", pod="checkout-1", pod_uid="u-checkout-1")
    request = LeaveRequest(member=member, selector="shop/flags")
    receipts.routes().unary[LEAVE](call(LEAVE), request.SerializeToString())


def test_a_goodbye_ends_it(receipts: Receipts) -> None:
    report(receipts)
    goodbye(receipts)
    assert counts_of(receipts) == [(PLACE, 0, 0)]


def test_a_receipt_of_what_is_not_there_is_taken_and_means_nothing(receipts: Receipts) -> None:
    report(receipts, selector="shop/other")
    assert counts_of(receipts) == []


def test_one_for_what_the_caller_may_not_read_is_refused(receipts: Receipts) -> None:
    with pytest.raises(RpcError) as refused:
        report(receipts, selector="forbidden")
    assert (refused.value.code, counts_of(receipts)) == (Code.PERMISSION_DENIED, [])


def test_the_token_decides_the_identity_whatever_the_message_claims(
    receipts: Receipts, world: ReceiptScene
) -> None:
    world.caller = TOKEN
    report(receipts, pod="somebody-else")
    member = fleet(receipts)["flagSets"][0]["members"][0]
    assert (member["name"], member["verified"]) == ("shop/checkout-1", True)


@pytest.mark.parametrize("token", [None, replace(TOKEN, verified=False), replace(TOKEN, pod="")])
def test_without_a_token_of_a_pod_it_is_a_claim(
    receipts: Receipts, world: ReceiptScene, token: Caller | None
) -> None:
    world.caller = token
    report(receipts)
    assert fleet(receipts)["flagSets"][0]["members"][0]["verified"] is False


@pytest.mark.parametrize(
    "fields",
    [
        {"digest": "x" * 81}, {"digest": "a\nb"}, {"revision": "a\0b"},
        {"member": Member(instance="x" * 254)}, {"member": Member(pod="a\nb")},
        {"member": Member(namespace="shop")}, {"member": None},
    ],
    ids=str,
)  # fmt: skip
def test_what_no_evaluator_would_say_is_refused(receipts: Receipts, fields: Any) -> None:
    with pytest.raises(RpcError) as refused:
        report(receipts, **fields)
    assert (refused.value.code, counts_of(receipts)) == (Code.INVALID_ARGUMENT, [])


@pytest.mark.parametrize("path", [REPORT, LEAVE])
def test_a_malformed_message_is_refused(receipts: Receipts, path: str) -> None:
    with pytest.raises(RpcError, match="malformed"):
        receipts.routes().unary[path](call(path), b"\xff")


def test_a_heartbeat_changes_nothing(receipts: Receipts, world: ReceiptScene) -> None:
    report(receipts)
    world.now, world.changed = 1005.0, []
    report(receipts, served_for_ms=14_030)
    assert world.changed == []


def test_members_are_asked_to_report_less_often_where_there_are_many(receipts: Receipts) -> None:
    assert report(receipts).next_ms == 5000
    receipts.reports_per_second = 10
    for number in range(70):
        report(receipts, pod=f"p{number}")
    assert report(receipts).next_ms == 7100
    receipts.reports_per_second = 1
    assert report(receipts).next_ms == 71_000
    for number in range(80):
        report(receipts, pod=f"p{number}")
    assert report(receipts).next_ms == 75_000


def test_reports_of_deleted_pods_take_no_place_of_members(receipts: Receipts) -> None:
    receipts.most_claimed = 2
    for _ in range(5):
        report(receipts, pod="ended")
        receipts.tick(1.0)
    report(receipts, pod="a")
    report(receipts, pod="b")
    assert counts_of(receipts) == [(PLACE, 2, 2)]


def test_claims_are_bounded_and_neither_members_nor_tokens_are_refused(
    receipts: Receipts, world: ReceiptScene
) -> None:
    receipts.most_claimed = 1
    report(receipts)
    for _ in range(2):
        with pytest.raises(RpcError, match=r"too many members without a token$"):
            report(receipts, pod="another")
        receipts.tick(1.0)
    report(receipts)
    world.caller = TOKEN
    report(receipts, pod="another")
    assert counts_of(receipts) == [(PLACE, 2, 2)]


def test_one_address_makes_so_many_claims_and_leaves_room_for_others(receipts: Receipts) -> None:
    receipts.most_per_host = 1
    report(receipts, peer="10.0.0.1:1")
    with pytest.raises(RpcError, match="from this address"):
        report(receipts, pod="another", peer="10.0.0.1:2")
    report(receipts, pod="third", peer="10.0.0.2:1")
    assert counts_of(receipts) == [(PLACE, 2, 2)]


def test_streams_that_send_no_receipts_are_counted_apart(receipts: Receipts) -> None:
    ends = [receipts.follow(PLACE, call()), receipts.follow(PLACE, call())]
    receipts.follow(PLACE, call(**{MARK: "1"}))
    ends[0]()
    subscribers = receipts.subscribers(PLACE)
    assert subscribers is not None
    assert (subscribers.status().delivered, counts_of(receipts)) == (1, [(PLACE, 0, 0)])


def test_a_set_without_subscribers_is_forgotten(receipts: Receipts) -> None:
    end = receipts.follow(PLACE, call())
    receipts.tick(1.0)
    end()
    receipts.tick(1.0)
    assert receipts.places() == []


def test_a_process_whose_token_became_known_is_one_member(receipts: Receipts, world: ReceiptScene) -> None:
    report(receipts, pod="", member=Member(instance="i"))
    world.caller = TOKEN
    report(receipts, member=Member(instance="i"))
    assert [each["name"] for each in fleet(receipts)["flagSets"][0]["members"]] == ["shop/checkout-1"]
