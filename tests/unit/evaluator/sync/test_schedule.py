from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.sync.config import InvalidSourceError, Provider, SourceConfig
from evaluator.sync.schedule import Schedule, fnv32a


def schedule(*, random: float = 0.5, interval: float = 5.0, cron: str = "", seed: str = "") -> Schedule:
    config = SourceConfig("http://h/f", Provider.HTTP, interval=interval, cron=cron, interval_seed=seed)
    return Schedule(config, lambda: random)


@pytest.mark.parametrize(("random", "seconds"), [(0.0, 4.5), (0.5, 5.0), (1.0, 5.5)])
def test_an_interval_is_kept_give_or_take_a_tenth(random: float, seconds: float) -> None:
    assert schedule(random=random).pause(1_000.0) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("content", "value"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)]
)
def test_the_hash_is_the_published_one(content: bytes, value: int) -> None:
    assert fnv32a(content) == value


@given(st.floats(min_value=0, max_value=2e9), st.integers(min_value=1, max_value=3600), st.text(min_size=1))
def test_with_a_seed_looks_fall_on_the_clock_shifted_by_its_hash(
    now: float, interval: int, seed: str
) -> None:
    pause = schedule(interval=interval, seed=seed).pause(now)
    offset = (now + pause - fnv32a(seed.encode())) % interval
    assert 0 < pause <= interval
    assert min(offset, interval - offset) < 1e-3


@pytest.mark.parametrize(
    ("cron", "seconds"),
    [("* * * * *", 30), ("*/5 * * * *", 150), ("0 0 * * *", 43_050), ("0 0 1 1 *", 86_400)],
)
def test_a_cron_expression_says_the_next_look_in_utc(cron: str, seconds: float) -> None:
    moment = datetime(2026, 6, 1, 12, 2, 30, tzinfo=UTC)
    assert schedule(cron=cron).pause(moment.timestamp()) == seconds


@pytest.mark.parametrize("cron", ["", "* * *", "every day", "0 0 30 2 *"][1:])
def test_what_is_no_cron_expression_is_refused(cron: str) -> None:
    with pytest.raises(InvalidSourceError, match="cron"):
        schedule(cron=cron)
