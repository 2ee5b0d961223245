"""What a namespace may use of another, and as whom the controller acts for it, on a real API server."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from tests.cluster.plugin import ROOT
from tests.worlds.flags import flags
from tests.worlds.objects import condition, flag_set, flag_source, manifest, secret

if TYPE_CHECKING:
    from tests.cluster.objects import Namespace
    from tests.cluster.spines import Spine


def test_a_source_elsewhere_is_read_while_a_grant_there_lets_it(spine: Spine, neighbour: Namespace) -> None:
    reference = {"kind": "FlagSource", "name": "flags", "namespace": spine.name}
    neighbour.apply(flag_set(sourceRef=reference))
    refused = neighbour.wait_reason("flagset", "AccessDenied")
    assert condition(refused, "Stalled")["status"] == "True"
    grant = condition(refused, "Ready")["message"].partition("may apply: ")[2]
    spine.kubectl("apply", "--server-side", "-f", "-", given=grant)
    neighbour.wait_ready("flagset")
    assert neighbour.served_variants() == {"banner": "on"}
    spine.push(flags__json=flags(banner="off"))
    neighbour.wait("ffc", lambda _: neighbour.served_variants() == {"banner": "off"})
    spine.kubectl("delete", "flaggrants", "--all")
    neighbour.wait_reason("flagset", "AccessDenied")
    assert neighbour.served_variants() == {"banner": "off"}


def run_named_command(space: Namespace, kind: str, words: str) -> None:
    """Wait for the refusal with these words, run the command that it names, and ask for another look."""

    def is_refused(found: dict[str, Any]) -> bool:
        ready = condition(found, "Ready")
        return ready.get("reason") == "AccessDenied" and words in ready["message"]

    message = condition(space.wait(kind, is_refused), "Ready")["message"]
    space.kubectl(*shlex.split(message.rpartition("; kubectl ")[2]))
    space.poke(kind)


def test_a_service_account_s_rights_decide_what_is_read_and_written(spine: Spine) -> None:
    spine.kubectl(
        "apply", "--server-side", "-f", str(ROOT / "deploy/components/multi-tenant/service-accounts.yaml")
    )
    spine.kubectl("create", "serviceaccount", "tenant")
    spine.apply(secret("git", username="a", password="b"))
    tenant = f"system:serviceaccount:{spine.name}:tenant"
    spine.apply(flag_source(spine.url, git={"secretRef": {"name": "git"}}, serviceAccountName="tenant"))
    run_named_command(spine, "flagsource", "cannot impersonate")
    run_named_command(spine, "flagsource", f'User "{tenant}" cannot get resource "secrets"')
    spine.wait_ready("flagsource")
    spine.apply(flag_set(serviceAccountName="tenant"))
    commit = spine.push(flags__json=flags(banner="off"))
    run_named_command(spine, "flagset", f'User "{tenant}" cannot patch resource "featureflagconfigurations"')
    spine.wait_applied(commit)
    assert spine.served_variants() == {"banner": "off"}


def test_a_service_account_s_rights_decide_what_a_flagd_makes(spine: Spine) -> None:
    spine.kubectl(
        "apply", "--server-side", "-f", str(ROOT / "deploy/components/multi-tenant/service-accounts.yaml")
    )
    spine.kubectl("create", "serviceaccount", "tenant")
    source = manifest("FeatureFlagSource", "source", {"sources": [{"source": "checkout"}]})
    spec = {"featureFlagSource": "source", "serviceAccountName": "tenant"}
    spine.apply(source, manifest("Flagd", "flags", spec))
    tenant = f"system:serviceaccount:{spine.name}:tenant"
    run_named_command(spine, "flagd", "cannot impersonate")
    run_named_command(spine, "flagd", f'User "{tenant}" cannot get resource "deployments"')
    deployment = spine.wait("deployment", lambda it: bool(it.get("spec")), "flags")
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == "tenant"
