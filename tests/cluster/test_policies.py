"""Policies of a repository and FlagPolicies hold and refuse revisions, on a real API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.worlds.flags import flags
from tests.worlds.objects import condition, flag_set, flag_source, manifest

if TYPE_CHECKING:
    from tests.cluster.spines import Spine

HELD = "name: steady\naction: Hold\nvalidations: [{expression: 'plan.most < 1', message: in small steps}]\n"


def policy(message: str) -> dict[str, Any]:
    validation = {"expression": "author == 'nobody'", "message": message}
    return manifest("FlagPolicy", "closed", {"action": "Deny", "validations": [validation]})


def test_a_repository_s_policy_holds_a_flag_and_a_flag_policy_refuses_the_revision(spine: Spine) -> None:
    spine.apply(flag_source(spine.url), flag_set())
    spine.wait_ready("flagset")
    assert spine.served_variants() == {"banner": "on"}
    spine.push(flags__json=flags(banner="off"), steady__flagpolicy__yaml=HELD)
    held = spine.wait_reason("flagset", "PartiallyApplied")
    assert "policy steady (Hold)" in condition(held, "Ready")["message"]
    assert spine.served_variants() == {"banner": "on"}
    spine.apply(policy("nothing changes today"))
    refused = spine.wait_reason("flagset", "BuildFailed")
    assert "nothing changes today" in condition(refused, "Ready")["message"]
    spine.kubectl("delete", "flagpolicies", "--all")
    spine.wait_reason("flagset", "PartiallyApplied")
    commit = spine.push(steady__flagpolicy__yaml=HELD.replace("plan.most < 1", "plan.most <= 100"))
    spine.wait_applied(commit)
    assert spine.served_variants() == {"banner": "off"}
