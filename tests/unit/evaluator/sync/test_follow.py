from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest

from evaluator.flags.model import REVISION_KEY
from evaluator.server.state_metrics import state
from evaluator.server.syncing import StoreBackend
from evaluator.store.store import SnapshotSwapper, Store
from evaluator.sync.follower import Follower
from evaluator.sync.lastgood import LastGood
from evaluator.sync.schedule import RetryPauses, SourceTiming
from evaluator.sync.source import RENEWAL, UNCHANGED, SourceFault
from evaluator.wire.sync_messages import Payload
from tests.clock import Clock
from tests.waiting import run_beside, until
from tests.worlds.evaluator import call
from tests.worlds.sync import FakeSource, delivery, document, files, run_followers, value

if TYPE_CHECKING:
    from pathlib import Path

BAD = b'{"flags": {"a": {"state": "ENABLED", "variants": {"on": 1}, "defaultVariant": "of"}}}'
FAULTS = {
    "zero bytes": b"", "no flags": b"{}", "half a document": document("a")[:-20], "an array": b"[]",
    "flags that are text": b'{"flags": "a"}', "not UTF-8": b"\xff\xfe", "garbage": os.urandom(200),
}  # fmt: skip


def stale(source: FakeSource, store: object) -> str | None:
    found = store.status(source.name).stale  # type: ignore[attr-defined]  # a Store, from `following`
    return None if found is None else found.reason


async def test_what_a_source_delivers_is_served_and_then_its_next() -> None:
    source = FakeSource()
    async with run_followers([source]) as (store, _):
        source.say(document("a", value=1))
        await until(lambda: value(store, "a") == 1)
        source.say(document("a", value=2))
        await until(lambda: value(store, "a") == 2)
        assert store.status("fake").stale is None


@pytest.mark.parametrize("content", FAULTS.values(), ids=FAULTS.keys())
async def test_what_cannot_be_understood_changes_nothing_and_is_stale(content: bytes) -> None:
    source = FakeSource()
    async with run_followers([source]) as (store, _):
        source.say(document("a"))
        await until(lambda: value(store, "a"))
        served = store.snapshot
        source.say(content)
        await until(lambda: store.longest_staleness)
        assert served is not None
        assert store.snapshot is not None
        assert store.snapshot.flag_set.flags is served.flag_set.flags


async def test_an_empty_set_is_a_deletion() -> None:
    source = FakeSource()
    async with run_followers([source]) as (store, _):
        source.say(document("a"))
        await until(lambda: value(store, "a"))
        source.say(b'{"flags": {}}')
        await until(lambda: value(store, "a") is None)
        assert store.longest_staleness is None


async def test_a_refused_content_that_stays_is_still_stale_and_the_old_one_again_is_not() -> None:
    source = FakeSource()
    async with run_followers([source]) as (store, _):
        source.say(document("a"))
        await until(lambda: value(store, "a"))
        source.say(b"{")
        source.say(UNCHANGED)
        await until(lambda: source.idle and store.longest_staleness)
        source.say(document("a"))
        await until(lambda: store.longest_staleness is None)


async def test_a_bad_flag_keeps_its_last_good_definition_and_its_siblings_move_on() -> None:
    source = FakeSource()
    async with run_followers([source]) as (store, _):
        source.say(document("a", "b", value=1))
        await until(lambda: value(store, "b") == 1)
        flags = document("b", value=2).decode()[10:]
        source.say(BAD[:-2] + b", " + flags.removeprefix("{").encode())
        await until(lambda: value(store, "b") == 2)
        assert value(store, "a") == 1


async def test_a_problem_is_logged_once_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    source = FakeSource()
    async with run_followers([source]) as (store, _):
        source.say(BAD)
        source.say(BAD)
        source.say(document("a"))
        await until(lambda: value(store, "a"))
    logged = [record.getMessage() for record in caplog.records if "flags.json:1:" in record.message]
    assert len(logged) == 1


async def test_a_source_that_fails_or_breaks_disturbs_no_other() -> None:
    good, bad = FakeSource("good"), FakeSource("bad")
    async with run_followers([good, bad]) as (store, _):
        bad.fall(SourceFault("Down", "it is down"))
        bad.fall(RuntimeError("a bug"))
        good.say(document("a", value=1))
        await until(lambda: value(store, "a") == 1 and bad.calls == 3)
        assert store.status("good").stale is None
        assert stale(bad, store) is not None
        bad.say(document("a", value=2))
        await until(lambda: value(store, "a") == 2)
        assert store.status("bad").stale is None


async def test_a_losing_duplicate_comes_back_when_the_winner_goes() -> None:
    low, high = FakeSource("low"), FakeSource("high")
    async with run_followers([low, high]) as (store, _):
        low.say(document("a", value="low"))
        high.say(document("a", value="high"))
        await until(lambda: value(store, "a") == "high")
        high.say(b'{"flags": {}}')
        await until(lambda: value(store, "a") == "low")


async def test_a_reported_fault_ends_nothing() -> None:
    source = FakeSource()
    async with run_followers([source]) as (store, _):
        source.say(SourceFault("NotFound", "gone"))
        await until(lambda: stale(source, store) == "NotFound: gone")
        source.say(document("a"))
        await until(lambda: value(store, "a"))
        assert source.calls == 1


async def test_a_stream_that_had_its_time_is_opened_again_and_nothing_is_stale() -> None:
    source = FakeSource()
    async with run_followers([source]) as (store, _):
        source.say(document("a"))
        source.fall(SourceFault(RENEWAL, "an hour has passed"))
        await until(lambda: source.calls == 2)
        assert (value(store, "a"), store.longest_staleness) == (True, None)


class Recorded(RetryPauses):
    """Never waits, and keeps count."""

    def __init__(self) -> None:
        super().__init__(lambda: 1.0)
        self.asked: list[str] = []

    def pause(self) -> float:
        self.asked.append("soon")
        return 0.0

    def reset(self, *, spread: bool = False) -> None:
        self.asked.append("reset")


@pytest.mark.parametrize(
    ("answer", "reason", "expected"),
    [
        (document("a"), "Unreachable", ["reset", "soon"]),
        (SourceFault("NotFound", "not yet there"), "Unreachable", ["reset", "soon"]),
        (None, "Unreachable", ["soon"]),
        (None, "Forbidden", ["soon"]),
    ],
)
async def test_a_source_that_answered_is_asked_as_soon_as_at_first_and_any_other_after_a_pause_that_grows(
    answer: Any, reason: str, expected: list[str]
) -> None:
    source, backoff, clock = FakeSource(), Recorded(), Clock(1_000.0)
    swapper = SnapshotSwapper(Store(sources=[source.name]), clock)
    follower = Follower(source, swapper, clock=clock, backoff=backoff, timing=SourceTiming(proven=0.0))
    if answer is not None:
        source.say(answer)
    source.fall(SourceFault(reason, "as the peer says"))
    async with run_beside(follower.run()):
        await until(lambda: source.calls == 2)
    assert backoff.asked == expected


@pytest.mark.parametrize(
    ("delivers", "reason", "expected"),
    [
        (False, "NotFound", "absent"), (True, "NotFound", "deleted"), (True, "Forbidden", "forbidden"),
        (True, "Unauthenticated", "unauthenticated"), (True, "Unreachable", "down"),
        (True, "TooLarge", "invalid"), (True, "Whatever", "failed"),
    ],
)  # fmt: skip
async def test_the_state_of_a_source_is_one_word_and_its_flags_stay(
    delivers: bool, reason: str, expected: str
) -> None:
    source = FakeSource()
    async with run_followers([source]) as (store, _):
        assert state(store.status("fake")) == "pending"
        if delivers:
            source.say(document("a"))
            await until(lambda: state(store.status("fake")) == "current")
        source.fall(SourceFault(reason, "as the peer says"))
        await until(lambda: state(store.status("fake")) == expected)
        assert value(store, "a") is (True if delivers else None)


async def test_what_could_not_be_served_is_tried_again_though_its_source_says_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = FakeSource()
    async with run_followers([source]) as (store, _):
        source.say(document("a", value=1))
        await until(lambda: value(store, "a") == 1)
        with monkeypatch.context() as patched:
            patched.setattr(Store, "prepare", lambda *_: 1 / 0)
            source.say(document("a", value=2))
            await until(lambda: stale(source, store))
        assert (value(store, "a"), stale(source, store)) == (
            1, "Failed: following it failed: ZeroDivisionError",
        )  # fmt: skip
        source.say(UNCHANGED)
        await until(lambda: value(store, "a") == 2)
        await until(lambda: stale(source, store) is None)


async def test_a_context_that_changes_alone_is_passed_on() -> None:
    source, contexts = FakeSource(), list[object]()
    async with run_followers([source]) as (store, _):
        source.say(delivery(document("a"), region="eu"))
        await until(lambda: value(store, "a"))
        store.subscribe(lambda _: contexts.append(dict(store.context)))
        source.say(delivery(document("a"), region="us"))
        await until(lambda: contexts)
        source.say(delivery(document("a"), region="us"))
        source.say(delivery(document("a", value=2), region="us"))
        await until(lambda: value(store, "a") == 2)
    assert contexts == [{"region": "us"}] * 2


async def test_a_context_that_comes_with_the_end_of_staleness_is_sent_though_another_source_is_stale() -> (
    None
):
    sent, low, high = list[Any](), FakeSource("low"), FakeSource("high")
    async with run_followers([low, high]) as (store, _):
        high.say(delivery(document("b"), region="eu"))
        low.say(document("a"))
        await until(lambda: value(store, "a") and value(store, "b"))
        backend = StoreBackend(store, store.context)
        backend.watch(backend.topic("", call()), lambda _, now: Payload(b"", b"%d" % len(now)), sent.append)
        for source in (low, high):
            source.say(SourceFault("Unreachable", "gone"))
        await until(lambda: store.catalog.stale_sources == {"low", "high"})
        high.say(delivery(document("b"), region="eu", tier="gold"))
        await until(lambda: store.catalog.stale_sources == {"low"})
        backend.close()
    assert [(each.digest, each.quiet) for each in sent] == [
        (b"1", False), (b"1", True), (b"1", True), (b"2", False),
    ]  # fmt: skip


async def test_a_context_comes_with_its_flags_and_not_while_they_are_prepared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepare, seen = Store.prepare, list[object]()
    source = FakeSource()
    async with run_followers([source]) as (store, _):
        source.say(delivery(document("a", value=1), region="eu"))
        await until(lambda: value(store, "a") == 1)

        def slow(store: Store, catalog: Any) -> Any:
            seen.append((value(store, "a"), dict(store.context)))
            return prepare(store, catalog)

        monkeypatch.setattr(Store, "prepare", slow)
        store.subscribe(lambda _: seen.append((value(store, "a"), dict(store.context))))
        source.say(delivery(document("a", value=2), region="us"))
        await until(lambda: value(store, "a") == 2)
    assert seen == [(1, {"region": "eu"}), (2, {"region": "us"})]


async def test_a_context_whose_flags_cannot_be_served_is_not_either(monkeypatch: pytest.MonkeyPatch) -> None:
    source = FakeSource()
    async with run_followers([source]) as (store, _):
        source.say(delivery(document("a", value=1), region="eu"))
        await until(lambda: value(store, "a") == 1)
        monkeypatch.setattr(Store, "prepare", lambda *_: 1 / 0)
        source.say(delivery(document("a", value=2), region="us"))
        await until(lambda: stale(source, store))
        assert store.context == {"region": "eu"}


async def test_contexts_of_sources_are_merged_the_last_source_wins() -> None:
    low, high = FakeSource("low"), FakeSource("high")
    async with run_followers([low, high]) as (store, _):
        high.say(delivery(document("b"), tier="high"))
        await until(lambda: value(store, "b"))
        low.say(delivery(document("a"), tier="low", region="eu"))
        await until(lambda: value(store, "a"))
        assert store.context == {"tier": "high", "region": "eu"}
        high.say(delivery(document("b")))
        await until(lambda: store.context == {"tier": "low", "region": "eu"})


async def test_after_a_restart_the_last_good_set_is_served_stale_with_its_age_until_the_source_answers(
    tmp_path: Path,
) -> None:
    source = FakeSource()
    async with run_followers([source], state_dir=tmp_path / "state", clock=Clock(500.0)) as (store, _):
        source.say(delivery(document("a"), region="eu"))
        await until(lambda: files(tmp_path, "state/*.flags"))
        before = store.snapshot
    again = FakeSource()
    async with run_followers([again], state_dir=tmp_path / "state", clock=Clock(800.0)) as (store, _):
        await until(lambda: store.snapshot)
        status = store.status("fake")
        assert before is not None
        assert store.snapshot is not None
        assert store.snapshot.digest == before.digest
        assert (status.from_disk, status.last_success, store.context) == (True, 500.0, {"region": "eu"})
        assert status.stale is not None
        again.say(document("a"))
        await until(lambda: not store.status("fake").from_disk)
        assert store.longest_staleness is None


@pytest.mark.parametrize("more", [{}, {"metadata": {REVISION_KEY: "r2"}}], ids=["all", "the flags"])
async def test_what_is_delivered_as_it_was_on_disk_is_the_very_set_that_is_served(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    source, again = FakeSource(), FakeSource()
    async with run_followers([source], state_dir=tmp_path / "state") as _:
        source.say(document("a"))
        await until(lambda: files(tmp_path, "state/*.flags"))
    async with run_followers([again], state_dir=tmp_path / "state") as (store, _):
        await until(lambda: store.snapshot)
        restored = store.catalog.of_source("fake")
        again.say(document("a", **more))
        await until(lambda: store.longest_staleness is None and not store.catalog.stale_sources)
        served = store.catalog.of_source("fake")
    assert restored is not None
    assert served is not None
    assert served.flags is restored.flags
    assert served.metadata == more.get("metadata", {})


async def test_what_differs_for_the_digest_alone_is_served() -> None:
    source = FakeSource()
    async with run_followers([source]) as (store, _):
        source.say(document("a", value=1))
        await until(lambda: value(store, "a") == 1)
        source.say(document("a", value=True))
        await until(lambda: value(store, "a") is True)


async def test_answers_say_since_when_their_source_is_stale_until_it_is_not(tmp_path: Path) -> None:
    def metadata(store: Store) -> dict[str, Any]:
        return {} if store.snapshot is None else dict(store.snapshot.flag_set.metadata)

    def marks(since: str) -> dict[str, Any]:
        return {"flagstaff.dev/stale": True, "flagstaff.dev/stale-since": since}

    source = FakeSource()
    async with run_followers([source], state_dir=tmp_path, clock=Clock(500.0)) as (store, _):
        source.say(document("a"))
        await until(lambda: files(tmp_path, "*.flags"))
        source.say(SourceFault("Unreachable", "it is down"))
        await until(lambda: metadata(store) == marks("1970-01-01T00:08:20Z"))
        source.say(UNCHANGED)
        await until(lambda: metadata(store) == {})
    again = FakeSource()
    async with run_followers([again], state_dir=tmp_path, clock=Clock(800.0)) as (store, _):
        await until(lambda: store.snapshot)
        assert metadata(store) == marks("1970-01-01T00:08:20Z")
        again.fall(SourceFault("Unreachable", "it is down"))
        again.say(document("b"))
        await until(lambda: value(store, "b"))
        assert metadata(store) == {}


async def test_a_damaged_last_good_set_is_set_aside_and_not_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = LastGood(tmp_path, "fake").path
    path.write_bytes(b"no such thing")
    async with run_followers([source := FakeSource()], state_dir=tmp_path) as (store, _):
        await until(lambda: source.calls)
        assert store.snapshot is None
    assert path.with_name(path.name + ".damaged").read_bytes() == b"no such thing"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_at_the_start_the_folder_is_swept_of_sources_that_are_followed_no_more(tmp_path: Path) -> None:
    paths = [LastGood(tmp_path, name).path for name in ("fake", "gone")]
    for path in paths:
        path.with_name(path.name + ".damaged").write_bytes(b"no such thing")
        os.utime(path.with_name(path.name + ".damaged"), (0, 0))
    async with run_followers([FakeSource()], state_dir=tmp_path, clock=Clock(1e9)):
        await until(lambda: len(files(tmp_path)) == 1)
    assert files(tmp_path) == [tmp_path / f"{paths[0].name}.damaged"]


async def test_a_disk_that_refuses_is_asked_again_and_serving_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    source = FakeSource()
    async with run_followers([source], state_dir=tmp_path) as (store, _):
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            source.say(document("a"))
            await until(lambda: value(store, "a"))
            await until(lambda: "No space left" in caplog.text)
            assert not files(tmp_path, "*.flags")
        await until(lambda: files(tmp_path, "*.flags"))


async def test_without_a_state_folder_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = FakeSource()
    async with run_followers([source]) as (store, _):
        source.say(document("a"))
        await until(lambda: value(store, "a"))
    assert files(tmp_path) == []


async def test_an_unchanged_set_is_stamped_again_from_time_to_time(tmp_path: Path) -> None:
    source, clock = FakeSource(), Clock(1_000.0)
    last_good = LastGood(tmp_path, "fake")
    async with run_followers([source], state_dir=tmp_path, clock=clock):
        source.say(document("a"))
        await until(last_good.path.exists)
        clock.now = 1_700.0
        source.say(UNCHANGED)
        await until(lambda: stamp(last_good) == 1_700.0)


def stamp(last_good: LastGood) -> float:
    saved = last_good.load()
    assert saved is not None
    return saved.saved_at.timestamp()
