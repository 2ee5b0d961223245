"""What a proxy knows of a flag set's members."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from controller.delivery.members import count
from controller.proxy.receipts.members import FORGOTTEN, REMEMBERED, SILENT, Membership
from controller.proxy.receipts.standing import MemberIdentity, Report
from controller.proxy.receipts.status import receipt_status

DIGEST, OLD = "sha256:new", "sha256:old"


class Pods:
    def __init__(self, *there: str) -> None:
        self.there: set[str] | None = set(there)
        self.gone: set[str] = set()

    def exists(self, uid: str) -> bool | None:
        return None if self.there is None else uid in self.there

    def ended(self, uid: str) -> bool:
        return uid in self.gone


def pod(name: str, **fields: Any) -> MemberIdentity:
    return MemberIdentity("shop", name, f"uid-{name}", f"i-{name}", verified=True, **fields)


def membership(*names: str, pods: Pods | None = None) -> Membership:
    """Members that serve what is delivered since 100."""
    made = Membership(pods or Pods(*(f"uid-{name}" for name in names)))
    made.deliver(DIGEST, 100.0, 100.5)
    for name in names:
        made.hear(pod(name), Report(1000, DIGEST, "main@sha1:1", 100.25, replaced=True), 101.0)
    return made


def wait(known: Membership, seconds: float) -> None:
    for _ in range(int(seconds)):
        known.tick(1.0)


def goodbyes(known: Membership) -> list[bytes]:
    kinds = product((False, True), repeat=2)
    return [each for kind in kinds for each in known.left(claimed=kind[0], lately=kind[1])]


def names(known: Membership) -> list[str]:
    return [each.who.name for each in known.laggards()]


def test_the_sender_of_a_receipt_is_a_member() -> None:
    assert (len(membership("a", "b")), names(membership("a", "b"))) == (2, [])


def test_one_that_serves_another_digest_lags_since_the_change_was_delivered() -> None:
    known = membership("a", "b")
    known.deliver("sha256:newest", 200.0, 200.5)
    assert [(each.who.name, each.since) for each in known.laggards()] == [
        ("shop/a", 200.5), ("shop/b", 200.5),
    ]  # fmt: skip


def test_one_that_serves_nothing_yet_lags_since_it_joined() -> None:
    known = membership()
    known.hear(pod("a"), Report(1), 150.0)
    assert [(each.digest, each.since) for each in known.laggards()] == [("", 150.0)]


def test_a_silent_member_lags_since_its_last_report() -> None:
    known = membership("a", "b")
    wait(known, SILENT - 1)
    known.hear(pod("b"), Report(1000, DIGEST, "main@sha1:1", 100.25), 115.0)
    known.tick(1.0)
    assert [(each.who.name, each.silent, each.since) for each in known.laggards()] == [
        ("shop/a", True, 101.0)
    ]


def test_a_member_that_reports_again_lags_no_more() -> None:
    known = membership("a")
    wait(known, SILENT)
    known.hear(pod("a"), Report(1000, DIGEST, "main@sha1:1", 100.25), 130.0)
    assert names(known) == []


def test_a_proxy_that_was_paused_counts_no_member_as_silent() -> None:
    known = membership("a")
    known.tick(3600.0)
    assert names(known) == []


@pytest.mark.parametrize(
    ("who", "there", "members"),
    [
        pytest.param(pod("a"), {"uid-a"}, 1, id="a pod that is there stays"),
        pytest.param(pod("a"), None, 1, id="a pod of which nothing is known now stays"),
        pytest.param(pod("a"), set(), 0, id="a pod that nobody knows goes"),
        pytest.param(MemberIdentity("", "", "", "i-1"), {"uid-a"}, 0, id="a process outside pods goes"),
        pytest.param(MemberIdentity("shop", "a", "", "i-1"), set(), 0, id="a pod without a uid goes"),
    ],
)
def test_after_five_minutes_of_silence(who: MemberIdentity, there: set[str] | None, members: int) -> None:
    pods = Pods()
    pods.there = there
    known = membership(pods=pods)
    known.hear(who, Report(1), 101.0)
    wait(known, FORGOTTEN)
    assert len(known) == members


def test_a_goodbye_ends_a_membership() -> None:
    known = membership("a", "b")
    known.leave(pod("a"), 1000, 102.0)
    assert [each.who.name for each in known.standings()] == ["shop/b"]


def test_a_goodbye_from_an_earlier_connection_ends_nothing() -> None:
    known = membership("a")
    known.leave(pod("a"), 999, 102.0)
    assert len(known) == 1


def test_a_receipt_that_was_overtaken_by_the_goodbye_changes_nothing() -> None:
    known = membership("a")
    known.leave(pod("a"), 1000, 102.0)
    known.hear(pod("a"), Report(1000, DIGEST), 102.0)
    assert len(known) == 0


def test_a_new_process_in_the_same_pod_is_the_same_member() -> None:
    known = membership("a")
    known.leave(pod("a"), 1000, 102.0)
    known.hear(pod("a"), Report(2000, DIGEST), 103.0)
    assert (len(known), goodbyes(known)) == (1, [])


@pytest.mark.parametrize(("there", "left"), [(set(), 0), ({"uid-a"}, 1)], ids=["gone", "there"])
def test_a_goodbye_is_remembered_while_the_pod_is_there(there: set[str], left: int) -> None:
    pods = Pods("uid-a")
    known = membership("a", pods=pods)
    known.leave(pod("a"), 1000, 102.0)
    pods.there = there
    wait(known, REMEMBERED)
    assert len(goodbyes(known)) == left


def test_a_deleted_pod_is_no_member() -> None:
    known = membership("a", "b")
    known.pod_gone("uid-a")
    assert [each.who.name for each in known.standings()] == ["shop/b"]


def test_a_report_that_comes_after_its_pod_is_gone_makes_no_member() -> None:
    pods = Pods("uid-b")
    known = membership("a", "b", pods=pods)
    pods.gone.add("uid-a")
    known.pod_gone("uid-a")
    known.hear(pod("a"), Report(1000, DIGEST), 102.0)
    assert [each.who.name for each in known.standings()] == ["shop/b"]


def test_an_earlier_connection_does_not_bring_back_what_was_served_then() -> None:
    known = membership("a")
    known.hear(pod("a"), Report(999, OLD), 102.0)
    assert names(known) == []


def test_a_claim_does_not_displace_a_member_that_is_vouched_for() -> None:
    known = membership("a")
    known.hear(FORGED, Report(9999, OLD), 102.0)
    known.leave(FORGED, 9999, 102.0)
    assert (len(known), names(known)) == (1, [])


FORGED = MemberIdentity("shop", "a", "uid-a", "forger")
LATER = 2**60


@pytest.mark.parametrize("goodbye", [False, True], ids=["report", "goodbye"])
def test_a_claim_that_came_first_does_not_exclude_a_verified_member(goodbye: bool) -> None:
    known = membership()
    known.hear(FORGED, Report(LATER, OLD), 101.0)
    if goodbye:
        known.leave(FORGED, LATER, 101.0)
    known.hear(pod("a"), Report(1000, DIGEST), 102.0)
    assert [(each.who.verified, each.lagging) for each in known.standings()] == [(True, False)]


def test_a_claim_does_not_say_goodbye_for_a_silent_member_that_is_vouched_for() -> None:
    known = membership("a")
    wait(known, SILENT)
    known.leave(FORGED, LATER, 120.0)
    assert names(known) == ["shop/a"]


@pytest.mark.parametrize(
    ("who", "late"), [(pod("a"), 9000), (MemberIdentity("shop", "a", "uid-a", "i"), LATER)]
)
def test_a_clock_that_was_set_back_keeps_a_member_out_only_until_it_is_silent(
    who: MemberIdentity, late: int
) -> None:
    known = membership()
    known.hear(who, Report(late, OLD), 101.0)
    known.hear(who, Report(8000, DIGEST), 102.0)
    assert names(known) == ["shop/a"]
    wait(known, SILENT)
    known.hear(who, Report(8000, DIGEST), 117.0)
    assert names(known) == []


def test_a_clock_set_back_after_a_goodbye_does_not_exclude_a_member_for_long() -> None:
    known = membership("a")
    known.leave(pod("a"), 1000, 102.0)
    wait(known, SILENT)
    known.hear(pod("a"), Report(500, DIGEST), 118.0)
    assert (len(known), goodbyes(known)) == (1, [])


def test_a_clock_that_is_ahead_counts_as_ours_and_changes_nothing_with_each_report() -> None:
    known = membership()
    known.hear(pod("a"), Report(LATER, DIGEST), 101.0)
    before = known.version
    known.hear(pod("a"), Report(LATER, DIGEST), 106.0)
    assert known.version == before
    known.hear(pod("a"), Report(107_000, OLD), 107.0)
    assert names(known) == ["shop/a"]


@pytest.mark.parametrize("goodbye", [False, True], ids=["report", "goodbye"])
@pytest.mark.parametrize("first", [False, True], ids=["the claim's proxy last", "first"])
def test_a_claim_at_another_proxy_displaces_no_verified_member(goodbye: bool, first: bool) -> None:
    vouching, other = membership("a"), membership()
    other.hear(FORGED, Report(LATER, OLD), 101.0)
    if goodbye:
        other.leave(FORGED, LATER, 101.0)
    summed = count(
        [receipt_status(each) for each in ((other, vouching) if first else (vouching, other))], DIGEST
    )
    assert (summed.served, summed.total, summed.laggards) == (1, 1, ())


def test_a_member_that_reports_to_one_proxy_is_silent_at_none_whatever_its_clock_says() -> None:
    one, other = membership("a"), membership()
    wait(one, SILENT)
    other.hear(pod("a"), Report(500, DIGEST), 120.0)
    summed = count([receipt_status(one), receipt_status(other)], DIGEST)
    assert (summed.served, summed.silent, summed.laggards) == (1, 0, ())


def test_nothing_changes_while_members_say_the_same() -> None:
    known = membership("a", "b")
    before = known.version
    for second in range(100, 200):
        known.tick(1.0)
        for name in ("a", "b"):
            known.hear(pod(name), Report(1000, DIGEST, "main@sha1:1", 100.27, True), float(second))
    assert known.version == before


def test_latency_is_from_observed_to_served_of_members_that_had_another_before() -> None:
    known = membership("a")
    known.hear(pod("b"), Report(1, DIGEST, served_at=900.0), 901.0)
    assert list(known.latency().values()) == [1]
    assert count([receipt_status(known)], DIGEST).p50 == "260ms"


def test_a_receipt_without_latencies_has_no_such_field_since_null_is_refused() -> None:
    nobody, somebody = membership(), membership("a")
    assert "latency" not in receipt_status(nobody).model_dump(by_alias=True, exclude_none=True)
    assert list(
        receipt_status(somebody).model_dump(by_alias=True, exclude_none=True)["latency"].values()
    ) == [1]


def test_a_member_counts_at_the_proxy_to_which_it_connected_last() -> None:
    one, other = membership("a", "b"), membership("c")
    other.hear(pod("a"), Report(2000, OLD), 102.0)
    wait(one, SILENT)
    summed = count([receipt_status(one), receipt_status(other)], DIGEST)
    assert (summed.served, summed.total, summed.silent) == (1, 3, 1)
    assert [each.name for each in summed.laggards] == ["shop/b", "shop/a"]


def test_a_member_that_said_goodbye_at_one_proxy_counts_at_none() -> None:
    one, other = membership("a"), membership()
    other.hear(pod("a"), Report(2000, DIGEST), 102.0)
    other.leave(pod("a"), 2000, 102.0)
    assert count([receipt_status(one), receipt_status(other)], DIGEST).total == 0


@pytest.mark.parametrize(
    "back",
    [
        pytest.param(pod("a"), id="a clock that was set back"),
        pytest.param(MemberIdentity("shop", "a", "uid-a", "i"), id="a claim"),
    ],
)
def test_a_goodbye_elsewhere_does_not_exclude_a_member_that_goes_on_reporting(back: MemberIdentity) -> None:
    one, other = membership("a"), membership()
    one.leave(pod("a"), 1000, 102.0)
    other.hear(back, Report(998, DIGEST), 103.0)
    assert count([receipt_status(one), receipt_status(other)], DIGEST).total == 0
    before = one.version
    wait(one, SILENT)
    summed = count([receipt_status(one), receipt_status(other)], DIGEST)
    assert (summed.served, summed.total, one.version > before) == (1, 1, True)


def test_a_goodbye_of_long_ago_still_ends_one_that_is_silent_elsewhere() -> None:
    one, other = membership("a"), membership("a")
    one.hear(pod("a"), Report(2000, DIGEST), 102.0)
    one.leave(pod("a"), 2000, 102.0)
    for each in (one, other):
        wait(each, REMEMBERED)
    assert count([receipt_status(one), receipt_status(other)], DIGEST).total == 0


def test_claims_of_one_pod_are_one_member_in_whichever_namespace_they_say_it_is() -> None:
    known = membership("a")
    for number in range(3):
        known.hear(MemberIdentity(f"ns{number}", "x", "uid-a", f"f{number}"), Report(1), 102.0)
    assert [each.who.verified for each in known.standings()] == [True]


def test_where_a_proxy_is_behind_its_members_are_named_all_the_same() -> None:
    ahead, behind = membership("a", "b"), membership("c", "d")
    ahead.deliver("sha256:newest", 200.0, 200.5)
    for name in "ab":
        ahead.hear(pod(name), Report(1000, "sha256:newest", "main@sha1:2"), 201.0)
    summed = count([receipt_status(ahead), receipt_status(behind)], "sha256:newest")
    assert (summed.served, summed.total) == (2, 4)
    assert {(each.name, each.serves) for each in summed.laggards} == {
        ("shop/c", "main@sha1:1"), ("shop/d", "main@sha1:1"),
    }  # fmt: skip


def test_the_members_named_without_a_laggard_stay_the_same_while_they_serve_it() -> None:
    known = membership(*(f"p{number}" for number in range(50)))
    before = receipt_status(known)
    for number in reversed(range(50)):
        known.hear(pod(f"p{number}"), Report(1000, DIGEST, "main@sha1:1", 100.25), 105.0)
    assert receipt_status(known) == before
    assert (len(before.others), before.laggards) == (20, ())


def test_a_receipt_names_a_few_and_counts_all() -> None:
    known = membership()
    for number in range(100):
        known.hear(pod(f"p{number}"), Report(1, f"sha256:{number}"), 101.0)
    status = receipt_status(known)
    summed = count([status], DIGEST)
    assert (len(status.laggards), len(status.groups), summed.total, summed.served) == (20, 64, 100, 0)


def test_ten_thousand_members_fit_into_an_object() -> None:
    known = membership(*(f"checkout-{number:05}" for number in range(10_000)))
    status = receipt_status(known)
    assert count([status], DIGEST).served == 10_000
    assert len(status.model_dump_json()) < 200_000


def test_members_may_come_while_a_thread_reads_them() -> None:
    known = membership("a", "b")
    standings = known.standings()
    assert next(standings).who.pod == "a"
    known.hear(pod("c"), Report(1000, DIGEST), 101.0)
    assert [each.who.pod for each in standings] == ["b"]
