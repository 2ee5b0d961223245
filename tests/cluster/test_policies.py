"""Policies of a repository and FlagPolicies hold and refuse revisions, on a real API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.cluster.controllers import SYSTEM
from tests.cluster.objects import Namespace
from tests.worlds.flags import flags
from tests.worlds.objects import condition, flag_set, flag_source, manifest

if TYPE_CHECKING:
    from tests.cluster.spines import Spine

HELD = "name: steady\naction: Hold\nvalidations: [{expression: 'plan.most < 1', message: in small steps}]\n"


def policy(message: str, name: str = "closed", **spec: Any) -> dict[str, Any]:
    validation = {"expression": "author == 'nobody'", "message": message}
    return manifest("FlagPolicy", name, {"action": "Deny", "validations": [validation], **spec})


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


def test_policy_of_the_controller_s_namespace_judges_a_tenant_that_cannot_remove_it(
    spine: Spine, neighbour: Namespace
) -> None:
    neighbour.apply(flag_source(spine.url), flag_set())
    neighbour.wait_ready("flagset")
    spine.kubectl("create", "rolebinding", "tenant", "--clusterrole=cluster-admin", "--user=tenant")
    platform = Namespace(spine.plane, SYSTEM)
    platform.apply(policy("the platform team says no", name=spine.name, namespaces=[spine.name]))
    try:
        spine.push(flags__json=flags(banner="off"))
        neighbour.poke("flagsource")
        refused = spine.wait_reason("flagset", "BuildFailed")
        words = f"policy {SYSTEM}/{spine.name} (Deny)"
        assert words in condition(refused, "Ready")["message"]
        neighbour.wait("ffc", lambda _: neighbour.served_variants() == {"banner": "off"})
        tenant = ("--as=tenant", "flagpolicies", "--all")
        assert "No resources found" in spine.kubectl("delete", *tenant, check=False)
        assert "Forbidden" in platform.kubectl("delete", *tenant, check=False)
        again = spine.push("again", flags__json=flags(banner="off", other="on"))
        still = spine.wait("flagset", lambda each: each["status"]["lastAttemptedRevision"].endswith(again))
        assert words in condition(still, "Ready")["message"]
        assert spine.served_variants() == {"banner": "on"}
    finally:
        platform.kubectl("delete", "flagpolicy", spine.name)
    spine.wait_applied(again)
