"""A commit on which a test of a flag fails is held by its FlagSet, and released by the next one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cluster.listener import run_listener
from tests.worlds.flags import flags
from tests.worlds.objects import condition, flag_set, manifest, secret

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
    assert held["status"]["problems"][0]["flag"] == "banner"
    assert held["status"]["problems"][0]["message"].startswith(words)
    assert any(words in each["message"] for each in spine.events() if each["reason"] == "PartiallyApplied")
    spine.wait_applied(spine.push(flags__flagtest__json=banner_is("off")))
    assert spine.served_variants() == {"banner": "off", "other": "on"}


def test_a_failing_test_is_told_by_an_alert_and_by_the_status_of_the_commit(spine: Spine) -> None:
    words = 'the test "banner" fails: expected variant "on"; came variant "off"'
    spine.wait_applied(spine.push(flags__json=flags(banner="on")))
    with run_listener() as chat, run_listener() as server:
        statuses = {"type": "github", "address": f"{server.url}shop/flags", "secretRef": {"name": "status"}}
        sources = [{"kind": "FlagSet", "name": "*"}]
        spine.apply(
            secret("status", token="a-token"),
            manifest("FlagProvider", "chat", {"type": "generic", "address": chat.url}),
            manifest("FlagProvider", "status", statuses),
            manifest("FlagAlert", "chat", {"providerRef": {"name": "chat"}, "eventSources": sources}),
            manifest("FlagAlert", "status", {"providerRef": {"name": "status"}, "eventSources": sources}),
        )
        for name in ("chat", "status"):
            spine.wait_ready("flagalert", name)
        spine.apply(flag_set(tests={"mode": "Require"}))
        bad = spine.push(flags__json=flags(banner="off"), flags__flagtest__json=banner_is("on"))
        told = chat.wait(lambda event: event["reason"] == "PartiallyApplied")
        failure = server.wait(lambda status: status["state"] == "failure")
        good = spine.push(flags__flagtest__json=banner_is("off"))
        chat.wait(lambda event: event["reason"] == "Recovered")
        server.wait(lambda status: good in status["description"] and status["state"] != "failure")
    assert told.event["severity"] == "error"
    assert f"flags.flagtest.json:1:12: {words}" in told.event["message"]
    assert failure.path.endswith(f"/statuses/{bad}")
