"""Every two features together: what users of real evaluators get, and what is told of it.

`pairs.txt` has a line for each; FLAGSTAFF_REWRITE=1 writes it anew: read the difference.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controller.delivery.reach import ReachTarget, reach
from controller.delivery.set_state import Reach
from evaluator.resolving.resolve import resolve
from tests.unit.controller.delivery import watcher_renderers
from tests.unit.controller.delivery.renderers import RENDERERS
from tests.worlds.delivery import NOW
from tests.worlds.pairs import APART, FEATURES, name_of, pairs, world_of

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = Path(__file__).parent / "pairs.txt"
USERS = 1_000
MEETING = [pair for pair in pairs() if pair not in APART]
TOLD = {
    "held flag": "newest version is held",
    "deletion guard": "it would remove 5 of 6 flags",
    "override": 'FlagOverride checkout.banner: flag "banner" is "off" until',
    "remote provider": "1 flag of https://flags.example.com/v1 at 7",
    "suspended": "controller changes nothing about it while it is suspended",
}
"""What the page tells of a feature, in its views together, whatever the other one is."""


@cache
def percents(pair: frozenset[str]) -> Mapping[tuple[str, str], float]:
    """Percent of users who get `on`, by the way in which an evaluator reads the set, and the flag."""
    now, shares = int(NOW.timestamp()), {}
    for way, flags in world_of(pair).evaluators().items():
        for key in flags.flag_set.flags:
            got = [
                resolve(flags, key, None, {"targetingKey": f"user-{n}"}, now).variant for n in range(USERS)
            ]
            shares[way, key] = got.count("on") * 100 / USERS
    return shares


def wanted_percent(pair: frozenset[str], key: str) -> float:
    """Percent of users who are to get `on`, by what the features mean."""
    if key != "banner":
        return 0 if key == "pay" else 100
    if pair & {"override", "deletion guard", "disabled"}:
        return 0
    return 10 if "rollout" in pair else 100


@pytest.mark.parametrize("pair", MEETING, ids=name_of)
def test_users_get_what_the_two_features_mean(pair: frozenset[str]) -> None:
    shares = percents(pair)
    assert {key for _, key in shares} == {
        "banner", "pay", *(["remote"] if "remote provider" in pair else []),
        *(["kill"] if "standing order" in pair else []),
    }  # fmt: skip
    for (_, key), share in shares.items():
        percent = wanted_percent(pair, key)
        assert share == pytest.approx(percent, abs=4 if percent == 10 else 0)


@pytest.mark.parametrize("pair", MEETING, ids=name_of)
def test_it_is_told_who_gets_it(pair: frozenset[str]) -> None:
    world = world_of(pair)
    state = world.state
    views = ("page: flags", "page: delivery", "page: pending")
    page = "\n".join(RENDERERS[view](world)[1] for view in views)
    for feature in pair & TOLD.keys():
        assert TOLD[feature] in page
    if "rollout" in pair and not pair & {"deletion guard", "disabled"}:
        verb = "would get" if "override" in pair else "get"
        assert f"FlagRollout checkout: step 1/2, 10% of users {verb} the new definition of banner" in page
    level = reach(state, ReachTarget(state.newest.revision)).level
    everybody = all(share == wanted_percent(frozenset(), key) for (_, key), share in percents(pair).items())
    if level is Reach.SERVED_BY_ALL:
        assert everybody or "disabled" in pair
    if not everybody and "disabled" not in pair:
        assert RENDERERS["wait --for everybody"](world)[0] != 0
        assert not watcher_renderers.commit_status(world)[1].startswith("success")


def test_the_table_has_what_is_told_and_served_of_each_pair() -> None:
    lines = []
    for pair in pairs():
        if pair in APART:
            lines.append(f"{name_of(pair)}: do not meet: {APART[pair]}")
            continue
        world = world_of(pair)
        shares = ", ".join(f"{way} {key} {share:g}%" for (way, key), share in percents(pair).items())
        code, told = RENDERERS["wait --for everybody"](world)
        status = watcher_renderers.commit_status(world)[1].partition(":")[0] or "none"
        lines.append(
            f"{name_of(pair)}: {shares}; exit {code}: {told.splitlines()[0]}; commit status {status}"
        )
    text = "\n".join(lines) + "\n"
    if os.environ.get("FLAGSTAFF_REWRITE"):
        FILE.write_text(text)
    assert text == FILE.read_text()


def test_every_two_features_are_in_the_table_once() -> None:
    count = len(FEATURES)
    assert len(set(pairs())) == count * (count - 1) // 2
    assert set(APART) <= set(pairs())
