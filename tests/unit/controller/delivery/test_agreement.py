"""All front ends tell the same of each world, and what they tell is what users get.

`golden/WORLD.txt` is what each says; FLAGSTAFF_REWRITE=1 writes the files anew: read the difference.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controller.delivery.reach import ReachTarget, reach
from controller.delivery.set_state import Reach, Verdict
from evaluator.resolving.resolve import compile_flag_set, resolve
from tests.unit.controller.delivery import watcher_renderers
from tests.unit.controller.delivery.renderers import RENDERERS, render_all
from tests.worlds.delivery import FLAGS, NEW, NOW, WORLDS

if TYPE_CHECKING:
    from tests.worlds.delivery import World

GOLDEN = Path(__file__).parent / "golden"
USERS = 1_000
EVERYBODY = re.compile(
    r"everybody (gets|has)|served (by|to) (all|everybody)|all users (get|have)|100 ?%(?! of)", re.IGNORECASE
)
"""Words that say that everybody is served."""
HOW_FAR = re.compile(r"FlagRollout|FlagOverride|no evaluator|nobody reports")
"""Words that say who is not."""


def on(world: World, key: str) -> float:
    """Percent of users who get the variant on of an evaluator that is not behind."""
    flags = compile_flag_set(world.served_flags())
    now = int(NOW.timestamp())
    got = [resolve(flags, key, None, {"targetingKey": f"user-{n}"}, now).variant for n in range(USERS)]
    return got.count("on") * 100 / USERS


@pytest.mark.parametrize("title", WORLDS)
def test_each_front_end_says_what_its_file_has(title: str) -> None:
    file, text = GOLDEN / f"{title.replace(' ', '-').replace(',', '')}.txt", render_all(WORLDS[title])
    if os.environ.get("FLAGSTAFF_REWRITE"):
        file.write_text(text)
    assert text == file.read_text()


def test_there_is_no_file_without_a_world() -> None:
    titles = {f"{title.replace(' ', '-').replace(',', '')}.txt" for title in WORLDS}
    assert {file.name for file in GOLDEN.iterdir()} == titles


@pytest.mark.parametrize("name", RENDERERS)
@pytest.mark.parametrize("title", WORLDS)
def test_nobody_says_that_everybody_is_served_before_that_is_so(title: str, name: str) -> None:
    world = WORLDS[title]
    level = reach(world.state, ReachTarget(world.revision)).level
    code, text = RENDERERS[name](world)
    if level is not Reach.SERVED_BY_ALL:
        assert not EVERYBODY.search(text)
        assert code != 0 or HOW_FAR.search(text)


@pytest.mark.parametrize("title", WORLDS)
def test_a_git_server_and_argo_cd_are_told_success_only_once_every_user_is_served(title: str) -> None:
    world = WORLDS[title]
    state = world.state
    # A FlagSet is judged by what it has tried, whatever its source has since.
    tried = state.applied if state.newest.verdict is Verdict.BUILDING else state.newest.revision
    level = reach(state, ReachTarget(tried)).level
    if level is Reach.SERVED_BY_ALL or not state.served.total:
        return
    assert not watcher_renderers.commit_status(world)[1].startswith("success")
    health = watcher_renderers.argo_health(world)[1].splitlines()
    healthy = {line.partition(":")[0] for line in health if ": Healthy: " in line}
    about = {key.kind for key in (state.writer, state.key) if key is not None}
    assert not about <= healthy


@pytest.mark.parametrize("title", [title for title, world in WORLDS.items() if world.target is not None])
def test_who_is_told_to_get_a_flag_is_who_gets_it(title: str) -> None:
    world = WORLDS[title]
    state = world.state
    new = {"banner"} if state.revision == NEW and not state.held else set()
    overridden = {layer.flag: layer for layer in state.overrides}
    candidates = {key: layer for layer in state.candidates for key in layer.flags}
    for key in FLAGS:
        share = on(world, key)
        layer = candidates.get(key)
        if key in overridden and not overridden[key].audience:
            assert share == (100 if overridden[key].variant == "on" else 0)
        elif layer is None:
            disabled = world.desired_flags().flags[key].state.value == "DISABLED"
            assert share == (100 if key in new and not disabled else 0)
        elif layer.users == "some" and layer.share.endswith("%"):
            assert share == pytest.approx(float(layer.share[:-1]), abs=4)
        else:
            assert share == {"nobody": 0, "some": 0, "everybody": 100}[layer.users]


@pytest.mark.parametrize("title", [title for title, world in WORLDS.items() if world.where == "local"])
@pytest.mark.parametrize("name", ["describe", "up", *(name for name in RENDERERS if name.startswith("page"))])
def test_local_mode_is_told_no_command_of_a_cluster(title: str, name: str) -> None:
    _, text = RENDERERS[name](WORLDS[title])
    assert "To do:" in text or name != "describe"
    assert not re.search(r"kubectl|flagstaff (rollout|override|resume|suspend)|-n shop", text)
