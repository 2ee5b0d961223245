"""What a proxy knows of a flag set's members."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.delivery.fleet_members import count
from controller.proxy.members import (
    FORGOTTEN,
    SILENT,
    MemberIdentity,
    MemberReport,
    Membership,
    receipt_status,
)

DIGEST, OLD = "sha256:new", "sha256:old"
FORGED = MemberIdentity("shop", "a", "uid-a", "forger")


class Pods:
    def __init__(self) -> None:
        self.gone: set[str] = set()

    def has_ended(self, uid: str) -> bool:
        return uid in self.gone


def pod(name: str, **fields: Any) -> MemberIdentity:
    return MemberIdentity("shop", name, f"uid-{name}", f"i-{name}", verified=True, **fields)


def peer(name: str) -> str:
    return f"10.0.0.1:{name}"


def membership(*names: str, pods: Pods | None = None) -> Membership:
    """Members with a stream each that serve what is delivered since 100."""
    made = Membership(pods or Pods())
    made.set_expected(DIGEST, 100.0, 100.5)
    for name in names:
        made.stream_opened(peer(name))
        report(made, name)
    return made


def report(known: Membership, name: str, digest: str = DIGEST, now: float = 101.0, **fields: Any) -> None:
    said = {"revision": "main@sha1:1", "served_at": 100.25, "replaced": True, **fields}
    known.record_report(pod(name), MemberReport(digest, **said), peer(name), now)


def wait(known: Membership, seconds: float) -> None:
    for _ in range(int(seconds)):
        known.tick(1.0)


def there(known: Membership) -> list[str]:
    return [member.who.name for member in known.members()]


def lagging_members(known: Membership) -> list[tuple[str, bool, float]]:
    return [(m.who.name, m.silent, m.since) for m in known.members() if m.lagging]


def test_the_sender_of_a_receipt_is_a_member_that_serves_what_is_delivered() -> None:
    assert (there(membership("a", "b")), lagging_members(membership("a", "b"))) == (["shop/a", "shop/b"], [])


def test_a_member_that_serves_another_digest_lags_since_the_change_was_delivered() -> None:
    known = membership("a")
    known.set_expected("sha256:newest", 200.0, 200.5)
    assert lagging_members(known) == [("shop/a", False, 200.5)]


def test_a_member_that_serves_nothing_yet_lags_since_it_joined() -> None:
    known = membership()
    report(known, "a", "", now=150.0)
    assert lagging_members(known) == [("shop/a", False, 150.0)]


def test_a_silent_member_lags_since_its_last_report_until_it_reports_again() -> None:
    known = membership("a", "b")
    wait(known, SILENT - 1)
    report(known, "b", now=115.0)
    known.tick(1.0)
    assert lagging_members(known) == [("shop/a", True, 101.0)]
    report(known, "a", now=130.0)
    assert lagging_members(known) == []


@given(pauses=st.lists(st.sampled_from([5.0, 10.0, 30.0, 60.0]), min_size=1, max_size=8))
def test_a_member_is_silent_once_it_is_late_by_half_the_pause_that_it_was_told(pauses: list[float]) -> None:
    known = membership()
    known.stream_opened(peer("a"))
    for number, pause in enumerate(pauses):
        known.record_report(pod(str(number)), MemberReport(DIGEST), peer("a"), 101.0, pause)
    late = [max(SILENT, 1.5 * pause) for pause in pauses]
    for second in range(1, 100):
        known.tick(1.0)
        silent = {f"shop/{number}" for number, after in enumerate(late) if second >= after}
        assert {name for name, _, _ in lagging_members(known)} == silent


def test_a_proxy_that_was_paused_counts_no_member_as_silent() -> None:
    known = membership("a")
    known.tick(3600.0)
    assert lagging_members(known) == []


def test_a_member_without_a_stream_is_silent_for_five_minutes_and_then_gone() -> None:
    known = membership()
    report(known, "a")
    wait(known, FORGOTTEN - 1)
    assert lagging_members(known) == [("shop/a", True, 101.0)]
    known.tick(1.0)
    assert there(known) == []


def test_a_new_process_in_the_same_pod_is_the_same_member() -> None:
    known = membership("a")
    later = MemberIdentity("shop", "a", "uid-a", "another", verified=True)
    known.record_report(later, MemberReport(DIGEST), peer("b"), 103.0)
    assert there(known) == ["shop/a"]


@pytest.mark.parametrize("silent", [False, True])
def test_a_claim_displaces_a_verified_member_only_once_that_is_silent(silent: bool) -> None:
    known = membership("a")
    wait(known, SILENT if silent else 0)
    known.record_report(FORGED, MemberReport(OLD), peer("x"), 102.0)
    assert [(m.who.verified, m.report.digest) for m in known.members()] == [
        (not silent, OLD if silent else DIGEST)
    ]


def test_a_claim_that_came_first_does_not_exclude_a_verified_member() -> None:
    known = membership()
    known.record_report(FORGED, MemberReport(OLD), peer("x"), 101.0)
    report(known, "a")
    assert [(m.who.verified, m.lagging) for m in known.members()] == [(True, False)]


def test_claims_of_one_pod_are_one_member_in_whichever_namespace_they_say_it_is() -> None:
    known = membership("a")
    for number in range(3):
        claim = MemberIdentity(f"ns{number}", "x", "uid-a", f"f{number}")
        known.record_report(claim, MemberReport(), peer("x"), 102.0)
    assert there(known) == ["shop/a"]


def test_nothing_changes_while_members_say_the_same() -> None:
    known = membership("a", "b")
    before, status = known.version, receipt_status(known)
    for second in range(100, 200):
        known.tick(1.0)
        for name in ("a", "b"):
            report(known, name, served_at=100.25 + second / 1000, now=float(second))
    assert (known.version, receipt_status(known)) == (before, status)


def test_members_may_come_while_a_thread_reads_them() -> None:
    known = membership("a", "b")
    members = known.members()
    assert next(members).who.pod == "a"
    report(known, "c")
    assert [member.who.pod for member in members] == ["b"]


def test_the_slowest_that_followed_is_reported_and_no_other() -> None:
    known = membership("a", "b")
    report(known, "late", served_at=103.5)
    report(known, "new", replaced=False, served_at=900.0)
    report(known, "other", OLD, served_at=900.0)
    assert receipt_status(known).slowest_ms == 3500
    nobody = receipt_status(membership()).model_dump(by_alias=True, exclude_none=True)
    assert "slowestMs" not in nobody


def test_members_of_all_proxies_add_up() -> None:
    one, other = membership("a", "b"), membership("c")
    wait(one, SILENT)
    report(one, "a")
    report(other, "d", OLD)
    summed = count([receipt_status(one), receipt_status(other)], DIGEST)
    assert (summed.served, summed.total, summed.silent, summed.lagging) == (2, 4, 1, 2)
    assert [laggard.name for laggard in summed.laggards] == ["shop/b", "shop/d"]


def test_members_of_a_proxy_that_is_behind_lag_and_those_that_are_ahead_of_it_do_not() -> None:
    behind = membership("a", "b")
    report(behind, "b", "sha256:newest")
    summed = count([receipt_status(behind)], "sha256:newest")
    assert (summed.served, summed.total) == (1, 2)
    assert [laggard.name for laggard in summed.laggards] == ["shop/a"]


def test_members_whose_last_good_set_is_not_saved_are_counted_and_named() -> None:
    known = membership("a", "b")
    report(known, "b", unsaved="No space left on device")
    summed = count([receipt_status(known)], DIGEST)
    assert (summed.served, summed.unsaved) == (2, 1)
    assert [(m.name, m.message) for m in summed.unsaved_members] == [("shop/b", "No space left on device")]


def test_a_receipt_names_twenty_and_counts_all() -> None:
    known = membership()
    for number in range(100):
        report(known, f"p{number}", f"sha256:{number}", unsaved="full")
    status = receipt_status(known)
    summed = count([status], DIGEST)
    assert (len(status.laggards), len(status.groups), len(status.unsaved_members)) == (20, 64, 20)
    assert (summed.total, summed.served, summed.unsaved) == (100, 0, 100)


def test_ten_thousand_members_fit_into_an_object() -> None:
    known = membership(*(f"checkout-{number:05}" for number in range(10_000)))
    assert count([receipt_status(known)], DIGEST).served == 10_000
    assert len(receipt_status(known).model_dump_json()) < 10_000


def test_a_member_that_is_not_sent_the_set_lags_with_the_reason_although_it_serves_the_newest() -> None:
    known = membership("a", "b")
    report(known, "b", now=120.0, reason="OrderNotGranted")
    report(known, "b", now=130.0, reason="OrderNotGranted")
    assert known.counts() == (1, 1)
    assert lagging_members(known) == [("shop/b", False, 120.0)]
    status = receipt_status(known)
    assert [laggard.reason for laggard in status.laggards] == ["OrderNotGranted"]
    counted = count([status], DIGEST)
    assert (counted.served, counted.total) == (1, 2)
    assert [laggard.reason for laggard in counted.laggards] == ["OrderNotGranted"]
    report(known, "b", now=140.0)
    assert known.counts() == (2, 0)


def test_hidden_overrides_are_counted_by_flag_and_by_the_set_that_hides_them() -> None:
    known = membership("a", "b", "c")
    for name in ("a", "b"):
        report(known, name, hidden=(("x", "FlagSet/shop/own"), ("x", "FlagSet/shop/own")))
    report(known, "c", hidden=(("x", "FlagSet/shop/other"), ("y", "FlagSet/shop/own")))
    counted = [(hidden.flag, hidden.by, hidden.count) for hidden in receipt_status(known).hidden]
    assert counted == [
        ("x", "FlagSet/shop/own", 2),
        ("x", "FlagSet/shop/other", 1),
        ("y", "FlagSet/shop/own", 1),
    ]
