"""A commit on which a test of a flag fails is held by its FlagSet, and released by the next one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.worlds.flags import flags
from tests.worlds.objects import condition, flag_set

if TYPE_CHECKING:
    from tests.cluster.spines import Spine


def banner_is(value: str) -> str:
    return json.dumps({"tests": [{"name": "banner", "flag": "banner", "expect": {"variant": value}}]})


def test_a_commit_with_a_failing_test_is_held_with_its_message_and_released_by_the_next(spine: Spine) -> None:
    spine.wait_applied(spine.push(flags__json=flags(banner="on")))
    spine.apply(flag_set(tests={"mode": "Require"}))
    spine.push(flags__json=flags(banner="off", other="on"), flags__flagtest__json=banner_is("on"))
    held = spine.wait_reason("flagset", "PartiallyApplied")
    assert spine.served_variants() == {"banner": "on", "other": "on"}
    words = 'the test "banner" fails: expected variant "on"; came variant "off"'
    assert f"flags.flagtest.json:1:12: {words}" in condition(held, "Ready")["message"]
    assert held["status"]["problems"][0]["file"] == "flags.flagtest.json"
    assert held["status"]["problems"][0]["message"].startswith(words)
    assert any(words in each["message"] for each in spine.events() if each["reason"] == "PartiallyApplied")
    spine.wait_applied(spine.push(flags__flagtest__json=banner_is("off")))
    assert spine.served_variants() == {"banner": "off", "other": "on"}
