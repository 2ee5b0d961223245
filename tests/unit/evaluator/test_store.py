from __future__ import annotations

import pytest

from evaluator.flags.model import REVISION_KEY, FlagSet
from evaluator.resolve import FlagType, resolve
from evaluator.store import Snapshot, Staleness, Store

from .server.fakes import NOW, flag, flag_set


def version(number: int, revision: str = "r1") -> FlagSet:
    """A set whose two flags both say `number`."""
    flags = flag_set(flag("a", {"v": number}, "v"), flag("b", {"v": number}, "v"))
    return FlagSet(flags.flags, metadata={REVISION_KEY: revision})


def value(snapshot: Snapshot, key: str) -> object:
    return resolve(snapshot.compiled, key, FlagType.INTEGER, {}, int(NOW)).value


def test_nothing_is_served_before_the_first_swap() -> None:
    store = Store()
    assert (store.snapshot, store.last_success, store.age(NOW)) == (None, None, None)


def test_a_reader_that_holds_a_snapshot_sees_one_set_throughout_a_swap() -> None:
    store = Store()
    held = store.swap(version(1), now=NOW)
    store.swap(version(2), now=NOW)
    assert (value(held, "a"), value(held, "b")) == (1, 1)
    assert store.snapshot is not None
    assert (value(store.snapshot, "a"), value(store.snapshot, "b")) == (2, 2)


def test_a_swap_names_revision_digest_and_time() -> None:
    snapshot = Store().swap(version(1, "main@sha1:1"), now=NOW)
    assert (snapshot.revision, snapshot.served_since) == ("main@sha1:1", NOW)
    assert snapshot.digest.startswith("sha256:")


@pytest.mark.parametrize(
    ("following", "told"),
    [(version(1), 1), (version(2), 2), (version(1, "r2"), 2)],
    ids=["the same", "other flags", "another revision"],
)
def test_subscribers_are_told_of_what_differs(following: FlagSet, told: int) -> None:
    store, seen = Store(), list[Snapshot]()
    store.subscribe(seen.append)
    first = store.swap(version(1), now=NOW)
    second = store.swap(following, now=NOW + 1)
    assert len(seen) == told
    assert (second is first) is (told == 1)


def test_a_subscriber_that_fails_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    store, seen = Store(), list[Snapshot]()

    def fail(_: Snapshot) -> None:
        raise ValueError("mine alone")

    store.subscribe(fail)
    store.subscribe(seen.append)
    assert [store.swap(version(1), now=NOW)] == seen
    assert "a subscriber failed" in caplog.text


def test_who_unsubscribed_is_told_no_more() -> None:
    store, seen = Store(), list[Snapshot]()
    unsubscribe = store.subscribe(seen.append)
    store.swap(version(1), now=NOW)
    unsubscribe()
    unsubscribe()
    store.swap(version(2), now=NOW)
    assert len(seen) == 1


def test_a_subscriber_reads_the_new_snapshot_from_the_store() -> None:
    store, seen = Store(), list[bool]()
    store.subscribe(lambda snapshot: seen.append(store.snapshot is snapshot))
    store.swap(version(1), now=NOW)
    assert seen == [True]


def test_a_stale_store_ages_until_the_next_success() -> None:
    store = Store()
    store.swap(version(1), now=NOW)
    store.mark_stale("the source is gone", NOW - 3600)
    assert store.age(NOW) == 3600
    assert store.stale is not None
    store.mark_success(NOW)
    assert store.age(NOW) == 0


def test_a_success_ends_staleness() -> None:
    store = Store()
    store.mark_stale("the source is gone", NOW)
    store.swap(version(1), now=NOW)
    assert store.stale is None


def test_staleness_said_again_has_the_new_reason_and_the_first_moment() -> None:
    store = Store()
    store.swap(version(1), now=NOW)
    for seconds in (10, 20):
        store.mark_stale(f"no answer for {seconds} s", NOW + seconds)
    assert store.stale == Staleness("no answer for 20 s", NOW)
    assert store.age(NOW + 20) == 20


def test_a_digest_that_the_caller_has_is_taken_as_it_is() -> None:
    assert Store().swap(version(1), now=NOW, content="sha256:known").digest == "sha256:known"
