"""An override ends in an evaluator that nobody tells of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from evaluator.flags.accept import Progress, effective
from evaluator.flags.canonical import digest
from evaluator.flags.merge import parse
from evaluator.flags.model import DIGEST_KEY
from evaluator.flags.overrides import Override
from evaluator.resolving.resolve import resolve
from evaluator.sync.source import SourceFault
from evaluator.wire.sync_messages import encode
from tests.clock import Clock
from tests.waiting import until
from tests.worlds.sync import FakeSource, files, run_followers

if TYPE_CHECKING:
    from pathlib import Path

    from evaluator.store.store import Store

EXPIRES = 1_001
FLAG = {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "on"}


def desired_document(metadata: dict[str, Any] | None = None) -> bytes:
    return json.dumps({"flags": {"a": FLAG}, "metadata": metadata or {}}).encode()


def overridden(variant: str | None, expires: int = EXPIRES) -> bytes:
    flag_set = parse(desired_document({DIGEST_KEY: "sha256:of-the-override"}), file="flags.json").flag_set
    override = Override("off", "a", variant, "INC-1", expires)
    return encode(effective(flag_set, Progress(overrides=(override,))))


def answer(store: Store, now: int) -> tuple[object, str]:
    assert store.snapshot is not None
    resolution = resolve(store.snapshot.compiled, "a", None, {}, now)
    return resolution.variant, str(resolution.reason)


@pytest.mark.parametrize(
    ("variant", "before"), [("off", ("off", "TARGETING_MATCH")), (None, (None, "DISABLED"))]
)
async def test_at_its_expiry_the_definition_is_served_and_subscribers_are_told(
    variant: str | None, before: tuple[object, str]
) -> None:
    source, clock, digests = FakeSource(), Clock(1_000.0), []
    async with run_followers([source], clock=clock) as (store, _):
        store.subscribe(lambda snapshot: digests.append(snapshot.digest))
        source.say(overridden(variant))
        await until(lambda: store.known)
        assert answer(store, EXPIRES - 1) == before
        clock.now = EXPIRES
        await until(lambda: answer(store, EXPIRES) == ("on", "STATIC"))
        assert len(digests) == 2
        assert digests[-1] == digest(parse(desired_document(), file="flags.json").flag_set)
        assert store.snapshot is not None
        assert DIGEST_KEY not in store.snapshot.flag_set.metadata


async def test_at_its_expiry_a_stale_source_stays_stale() -> None:
    source, clock = FakeSource(), Clock(1_000.0)
    async with run_followers([source], clock=clock) as (store, _):
        source.say(overridden(None))
        source.say(SourceFault("Down", "the proxy is gone"))
        await until(lambda: store.status("fake").stale)
        before = store.status("fake")
        clock.now = EXPIRES
        await until(lambda: answer(store, EXPIRES) == ("on", "STATIC"))
        after = store.status("fake")
        assert (after.stale, after.last_success) == (before.stale, before.last_success)


async def test_an_override_that_is_extended_ends_at_its_new_expiry() -> None:
    source, clock = FakeSource(), Clock(1_000.0)
    async with run_followers([source], clock=clock) as (store, _):
        source.say(overridden(None))
        source.say(overridden(None, 5_000))
        await until(lambda: source.idle)
        clock.now = EXPIRES
        source.say(overridden("off", 5_000))
        await until(lambda: answer(store, EXPIRES)[0] == "off")
        clock.now = 5_000
        source.say(desired_document())
        await until(lambda: answer(store, 5_000) == ("on", "STATIC"))


async def test_an_override_that_ended_before_it_came_is_never_served() -> None:
    source, clock = FakeSource(), Clock(EXPIRES)
    async with run_followers([source], clock=clock) as (store, _):
        source.say(overridden(None))
        await until(lambda: store.known)
        assert answer(store, EXPIRES) == ("on", "STATIC")


async def test_an_override_ends_in_the_last_good_set_of_a_restarted_evaluator(tmp_path: Path) -> None:
    source, clock = FakeSource(), Clock(1_000.0)
    async with run_followers([source], state_dir=tmp_path, clock=clock) as (store, _):
        source.say(overridden(None))
        await until(lambda: files(tmp_path, "*.flags"))
    clock.now = EXPIRES
    async with run_followers([FakeSource()], state_dir=tmp_path, clock=clock) as (store, _):
        assert answer(store, EXPIRES) == ("on", "STATIC")
