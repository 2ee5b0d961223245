"""A list of a hundred thousand users, and a flag of another set, from a commit to an evaluator's answer."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

from tests.cluster.fleets import followed_source, wait_served
from tests.cluster.patience import within
from tests.cluster.pods import pods
from tests.worlds.flags import flags
from tests.worlds.objects import flag_set

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.proxies import ProxyProcess
    from tests.cluster.spines import Spine

USERS = [f"6f1c2d3e-0000-4000-8000-{number:012}" for number in range(100_000)]


def definitions(rule: Any, **sections: Any) -> str:
    shape = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
    return json.dumps({"flags": {"pay": {**shape, "targeting": {"if": [rule, "on"]}}}, **sections})


def segment(*users: str) -> dict[str, str]:
    shared = {"beta": {"in": [{"var": "targetingKey"}, {"file": "beta.segment.csv", "column": "id"}]}}
    text = definitions({"$ref": "beta"}, **{"$evaluators": shared})
    return {"flags.json": text, "beta.segment.csv": "\n".join(["id", *users])}


def variant(port: int, user: str) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/ofrep/v1/evaluate/flags/pay",
        json.dumps({"context": {"targetingKey": user}}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)["variant"]


def test_a_hundred_thousand_users_of_a_file_are_served_and_one_more_moves_few_shards(
    spine: Spine, delivering: ProxyProcess, tmp_path: Path
) -> None:
    spine.wait_applied(spine.push(**segment(*USERS)))
    before = {each["name"] for each in spine.get("ffc")["spec"]["shards"]}
    source = followed_source(delivering.target, spine.name)
    with pods(spine.plane, spine.name, source, tmp_path / "pods", "web-1") as (pod,):
        wait_served(spine, "1/1")
        port = pod.port("ofrep")
        assert [variant(port, user) for user in (USERS[0], USERS[-1], "new")] == ["on", "on", "off"]
        spine.wait_applied(spine.push(**segment(*USERS[:50_000], "new", *USERS[50_000:])))
        within(lambda: variant(port, "new") == "on")
        after = {each["name"] for each in spine.get("ffc")["spec"]["shards"]}
        assert 0 < len(after - before) <= 3
        spine.wait_applied(spine.push(**{"beta.segment.csv": "id\n"}))
        held = spine.get("flagset")["status"]["held"]
        assert ([each["name"] for each in held], variant(port, "new")) == (["pay"], "on")


def test_a_flag_of_the_set_that_another_depends_on_is_written_out_and_kept_once_it_is_deleted(
    spine: Spine,
) -> None:
    spine.apply(flag_set(name="paying", paths=["pay"], dependsOn=[{"name": "flags"}]))
    spine.push(**{"pay/pay.json": definitions({"flag": ["banner", "on"]})})
    rule = {"if": [True, "on"]}
    spine.wait("ffc", lambda found: targeting(found) == rule, "paying")
    spine.push(flags__json=flags(banner="off"))
    spine.wait("ffc", lambda found: targeting(found) == {"if": [False, "on"]}, "paying")
    spine.push(flags__json=flags(other="on"))
    held = spine.wait_reason("flagset", "PartiallyApplied", "paying")
    assert "banner" in held["status"]["problems"][0]["message"]
    assert targeting(spine.get("ffc", "paying")) == {"if": [False, "on"]}


def targeting(found: dict[str, Any]) -> Any:
    flag: dict[str, Any] = found.get("spec", {}).get("flagSpec", {}).get("flags", {}).get("pay", {})
    return flag.get("targeting")
