from __future__ import annotations

import asyncio
import gc
import threading
import weakref

from evaluator.flags.merge import parse
from evaluator.flags.model import FlagSet
from evaluator.host.gc_policy import GcPolicy
from evaluator.resolving.resolve import compile_flag_set, resolve
from evaluator.store.snapshot import Snapshot
from evaluator.store.store import Content, Fault, Report, SnapshotSwapper, Store, free_one_by_one
from tests.unit.evaluator.store.test_store import value, version
from tests.worlds.evaluator import ALL, NOW, flag, flag_set


def report_of(flag_set: FlagSet, digest: str | None = None) -> Report:
    return Report("", NOW, Content(flag_set, digest))


async def test_a_set_that_is_put_is_served_compiled() -> None:
    exchange = SnapshotSwapper(Store(), lambda: NOW, GcPolicy())
    snapshot = await exchange.apply(report_of(version(1), "sha256:known"))
    assert snapshot is not None
    assert snapshot is exchange.store.snapshot
    assert (snapshot.digest, snapshot.served_since) == ("sha256:known", NOW)
    assert snapshot.compiled.compiled.keys() == {"a", "b"}


async def test_it_is_compiled_in_a_thread_and_served_on_the_loop() -> None:
    store, threads = Store(), set[threading.Thread]()
    store.subscribe(lambda _: threads.add(threading.current_thread()))
    await SnapshotSwapper(store, lambda: NOW).apply(report_of(version(1)))
    assert threads == {threading.current_thread()}


async def test_the_same_flags_again_notify_nobody() -> None:
    store, seen = Store(), list[Snapshot]()
    store.subscribe(seen.append)
    exchange = SnapshotSwapper(store, lambda: NOW)
    first = await exchange.apply(report_of(version(1)))
    assert await exchange.apply(report_of(version(1))) is first
    assert seen == [first]


async def test_sources_that_deliver_at_once_are_all_served() -> None:
    names = tuple("abcdefgh")
    exchange = SnapshotSwapper(Store(sources=names), lambda: NOW)
    sets = {name: flag_set(flag(name, {"v": 1}, "v")) for name in names}
    await asyncio.gather(*(exchange.apply(Report(name, NOW, Content(sets[name]))) for name in names))
    assert exchange.store.catalog.sets == sets
    snapshot = exchange.store.snapshot
    assert snapshot is not None
    assert snapshot.flag_set.flags.keys() == set(names)


async def test_a_reader_keeps_the_old_set_whole_while_it_is_let_go() -> None:
    exchange = SnapshotSwapper(Store(), lambda: NOW)
    held = await exchange.apply(report_of(version(1)))
    assert held is not None
    remains = exchange.store.served_objects()
    await exchange.apply(report_of(version(2)))
    free_one_by_one(remains)
    assert remains == []
    assert (value(held, "a"), value(held, "b")) == (1, 1)


def test_a_flag_set_leaves_nothing_to_the_collector() -> None:
    """Else a frozen heap would keep every set that was ever served."""
    gc.collect()
    compiled = compile_flag_set(FlagSet({one.key: one for one in ALL}))
    for context in ({}, {"tier": "gold"}):
        for key in compiled.keys_in_order:
            resolve(compiled, key, None, context, int(NOW))
    gone = weakref.ref(compiled)
    del compiled
    assert gone() is None
    assert gc.collect() == 0


def test_reading_leaves_nothing_to_the_collector() -> None:
    gc.collect()
    content = b'{"flags": {"f": {"state": "ENABLED", "variants": {"on": true}, "defaultVariant": "on"}}}'
    assert parse(content, file="flags.json").flag_set.flags.keys() == {"f"}
    assert gc.collect() == 0


async def test_what_is_served_says_that_it_is_stale_and_is_compiled_no_second_time() -> None:
    store = Store()
    exchange = SnapshotSwapper(store, lambda: NOW)
    first = await exchange.apply(report_of(FlagSet({one.key: one for one in ALL})))
    gone = Report("", NOW, fault=Fault("gone"))
    await exchange.apply(gone)
    stale = store.snapshot
    assert first is not None
    assert stale is not None
    assert stale.compiled.metadata["flagstaff.dev/stale"] is True
    assert all(stale.compiled[key].run is first.compiled[key].run for key in stale.compiled)
    await exchange.apply(gone)
    assert store.snapshot is stale
    await exchange.apply(Report("", NOW))
    assert store.snapshot is not None
    assert store.snapshot.compiled.metadata == {}


async def test_what_is_put_though_it_is_stale_says_so_from_the_first() -> None:
    store, seen = Store(), list[object]()
    store.subscribe(lambda snapshot: seen.append(dict(snapshot.flag_set.metadata)))
    report = Report("", 0.0, Content(FlagSet()), Fault("not read"), from_disk=True)
    await SnapshotSwapper(store, lambda: NOW).apply(report)
    assert seen == [{"flagstaff.dev/stale": True, "flagstaff.dev/stale-since": "1970-01-01T00:00:00Z"}]
