from __future__ import annotations

import pytest

from evaluator.flags.catalog import UnknownSourceError
from evaluator.flags.model import REVISION_KEY, FlagSet
from evaluator.resolving.resolution import FlagType
from evaluator.resolving.resolve import resolve
from evaluator.store.snapshot import Snapshot
from evaluator.store.store import Content, Health, Report, ServedSource, Staleness, Store
from tests.stores import confirm, fail, swap
from tests.worlds.evaluator import NOW, flag, flag_set


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
    held = swap(store, version(1), now=NOW)
    swap(store, version(2), now=NOW)
    assert (value(held, "a"), value(held, "b")) == (1, 1)
    assert store.snapshot is not None
    assert (value(store.snapshot, "a"), value(store.snapshot, "b")) == (2, 2)


def test_a_swap_names_revision_digest_and_time() -> None:
    snapshot = swap(Store(), version(1, "main@sha1:1"), now=NOW)
    assert (snapshot.revision, snapshot.served_since) == ("main@sha1:1", NOW)
    assert snapshot.digest.startswith("sha256:")


@pytest.mark.parametrize(
    ("following", "count"),
    [(version(1), 1), (version(2), 2), (version(1, "r2"), 2)],
    ids=["the same", "other flags", "another revision"],
)
def test_subscribers_are_notified_of_differences(following: FlagSet, count: int) -> None:
    store, seen = Store(), list[Snapshot]()
    store.subscribe(seen.append)
    first = swap(store, version(1), now=NOW)
    second = swap(store, following, now=NOW + 1)
    assert len(seen) == count
    assert (second is first) is (count == 1)


def test_a_subscriber_that_fails_affects_no_other(caplog: pytest.LogCaptureFixture) -> None:
    store, seen = Store(), list[Snapshot]()

    def fail(_: Snapshot) -> None:
        raise ValueError("mine alone")

    store.subscribe(fail)
    store.subscribe(seen.append)
    assert [swap(store, version(1), now=NOW)] == seen
    assert "a subscriber failed" in caplog.text


def test_an_unsubscribed_listener_is_notified_no_more() -> None:
    store, seen = Store(), list[Snapshot]()
    unsubscribe = store.subscribe(seen.append)
    swap(store, version(1), now=NOW)
    unsubscribe()
    unsubscribe()
    swap(store, version(2), now=NOW)
    assert len(seen) == 1


def test_a_subscriber_reads_the_new_snapshot_from_the_store() -> None:
    store, seen = Store(), list[bool]()
    store.subscribe(lambda snapshot: seen.append(store.snapshot is snapshot))
    swap(store, version(1), now=NOW)
    assert seen == [True]


def test_a_stale_store_ages_until_the_next_success() -> None:
    store = Store()
    swap(store, version(1), now=NOW)
    fail(store, "the source is gone", NOW - 3600)
    assert store.age(NOW) == 3600
    assert store.longest_staleness is not None
    confirm(store, NOW)
    assert store.age(NOW) == 0


def test_a_success_ends_staleness() -> None:
    store = Store()
    fail(store, "the source is gone", NOW)
    swap(store, version(1), now=NOW)
    assert store.longest_staleness is None


def test_staleness_said_again_has_the_new_reason_and_the_first_moment() -> None:
    store = Store()
    swap(store, version(1), now=NOW)
    for seconds in (10, 20):
        fail(store, f"no answer for {seconds} s", NOW + seconds)
    assert store.longest_staleness == Staleness("no answer for 20 s", NOW)
    assert store.age(NOW + 20) == 20


def test_a_digest_that_the_caller_has_is_taken_as_it_is() -> None:
    assert swap(Store(), version(1), now=NOW, content="sha256:known").digest == "sha256:known"


def two(low: FlagSet | None, high: FlagSet | None) -> Store:
    """A store of two sources, as they hold these sets."""
    store = Store(sources=("low", "high"))
    for name, flags in (("low", low), ("high", high)):
        if flags is not None:
            swap(store, flags, now=NOW, source=name)
    return store


def test_a_view_is_one_snapshot_from_swap_to_swap() -> None:
    store = two(version(1), version(2))
    view = store.view("source", "low")
    assert view is not None
    assert view is store.view("source", "low")
    assert value(view, "a") == 1
    swap(store, version(3), now=NOW, source="low")
    following = store.view("source", "low")
    assert following is not None
    assert (value(view, "a"), value(following, "a")) == (1, 3)


def test_one_source_is_one_snapshot_however_it_is_selected() -> None:
    store = Store(sources=("flags.json",))
    snapshot = swap(store, version(1), now=NOW)
    assert store.view("source", "flags.json") is store.view("flagSetId", "") is snapshot
    assert store.view("source", "other.json") is store.view("flagSetId", "shop") is None


@pytest.mark.parametrize("prepares", [True, False], ids=["prepared", "made when asked for"])
def test_prepared_or_not_the_same_is_served(prepares: bool) -> None:
    store = two(version(1), version(2))
    store.view("source", "low")
    report = Report("high", NOW, Content(None))
    store.apply(report, store.prepare(store.catalog_after(report)) if prepares else None, now=NOW)
    assert store.snapshot is not None
    assert value(store.snapshot, "a") == 1
    assert store.snapshot.digest == store.catalog.digest


def test_what_is_prepared_is_compiled() -> None:
    store = two(version(1), version(2))
    store.view("source", "low")
    prepared = store.prepare(store.catalog.with_source("low", version(3)))
    compiled = {view: len(each.compiled.compiled) for view, each in prepared.snapshots.items()}
    assert compiled == {None: 2, ("source", "low"): 2}


def test_what_all_sources_withdraw_is_served_as_nothing() -> None:
    store, seen = two(version(1), None), list[int]()
    store.subscribe(lambda snapshot: seen.append(len(snapshot.flag_set.flags)))
    store.apply(Report("low", NOW, Content(None)), now=NOW)
    assert seen == [0]


def test_a_catalog_of_no_flag_set_is_not_served_at_first() -> None:
    store = Store()
    assert store.apply(Report("", NOW, Content(None)), now=NOW) is None
    assert store.view("flagSetId", "") is None


def test_each_source_has_its_own_status() -> None:
    store = two(None, version(1, "main@sha1:1"))
    confirm(store, NOW, "high")
    fail(store, "never answered", NOW - 5, "low")
    low, high = store.statuses
    assert low == ServedSource("low", stale=Staleness("never answered", NOW - 5))
    assert (high.revision, high.flags, high.last_success) == ("main@sha1:1", 2, NOW)
    assert high.digest == store.catalog.digest_of("high")


def test_the_store_is_as_stale_as_its_stalest_source() -> None:
    store = two(version(1), version(2))
    for name, since in (("low", NOW - 9), ("high", NOW - 5)):
        confirm(store, since, name)
        fail(store, name, since, name)
    assert store.longest_staleness == Staleness("low", NOW - 9)
    assert store.age(NOW) == 9


def test_what_comes_from_disk_is_so_until_its_source_answers() -> None:
    store = Store()
    swap(store, version(1), now=NOW)
    store.apply(Report("", NOW - 3600, from_disk=True), now=NOW)
    assert (store.statuses[0].from_disk, store.age(NOW)) == (True, 3600)
    confirm(store, NOW)
    assert (store.statuses[0].from_disk, store.age(NOW)) == (False, 0)


def test_a_source_that_is_not_known_is_refused() -> None:
    with pytest.raises(UnknownSourceError, match="'other'"):
        confirm(two(None, None), NOW, "other")
    with pytest.raises(UnknownSourceError, match="'other'"):
        two(None, None).status("other")


def test_staleness_is_repeated_to_clients_that_keep_answers_and_is_no_change() -> None:
    store, changed, restated = Store(), list[Snapshot](), list[Snapshot]()
    store.subscribe(changed.append)
    store.subscribe(changed.append, restated.append)
    first = swap(store, version(1), now=NOW)
    fail(store, "gone", NOW + 5)
    second = store.snapshot
    assert second is not None
    assert (changed, restated, store.swaps.count) == ([first, first], [second], 1)
    assert (second.digest, second.served_since) == (first.digest, NOW)
    found = resolve(second.compiled, "a", FlagType.INTEGER, {}, int(NOW))
    assert found.metadata["flagstaff.dev/stale"] is True


def test_since_when_a_source_is_stale_is_an_instant_in_utc() -> None:
    assert Health().stale_since is None
    assert Health(stale=Staleness("gone", 1_767_323_045.9)).stale_since == "2026-01-02T03:04:05Z"


def test_the_context_of_a_source_changes_with_its_flags_and_is_a_change_of_its_own() -> None:
    store, seen = Store(sources=("low", "high")), list[dict[str, object]]()
    store.subscribe(lambda _: seen.append(dict(store.context)))
    for name, context in (("low", {"a": 1, "b": 1}), ("high", {"b": 2}), ("high", {"b": 2}), ("high", {})):
        store.apply(Report(name, NOW, Content(version(1), context=context)), now=NOW)
    assert seen == [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 1}]
