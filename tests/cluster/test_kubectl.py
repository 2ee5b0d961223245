"""What a person sees: `kubectl get` and `kubectl describe` of objects that are well, at work, and in five
kinds of trouble.
"""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.golden import check, mask
from tests.worlds.flags import flags
from tests.worlds.objects import condition, configuration, flag_set, flag_source, manifest, secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.objects import Namespace
    from tests.cluster.spines import Spine

CHECKOUT = """\
flags:
  banner:
    state: ENABLED
    variants: {plain: Hello, christmas: Merry Christmas}
    defaultVariant: %s
  new-checkout:
    state: ENABLED
    variants: {"on": true, "off": false}
    defaultVariant: %s
    targeting:
      if: [{ends_with: [{var: email}, "@example.com"]}, "on", null]
"""


def kubectl_output(space: Namespace, kind: str) -> str:
    """`kubectl get`, and `kubectl describe` of each."""
    listed = space.kubectl("get", kind)
    return mask(f"{listed}\n\n{space.kubectl('describe', kind, '--show-events=true')}", space.name)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a Git server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/flags.git"


def test_flag_sources(spine: Spine, silent: str) -> None:
    spine.delete("flagset")
    spine.wait_gone("flagset")
    credentials = {"secretRef": {"name": "git"}}
    expected = {
        "branch-missing": "ReferenceNotFound",
        "folder": "URLInvalid",
        "no-repository": "RepositoryNotFound",
        "no-secret": "AuthenticationFailed",
        "secret-incomplete": "InvalidSecret",
    }
    spine.apply(
        secret("git", username="ada"),
        flag_source(spine.url, name="branch-missing", git={"ref": {"branch": "mian"}}),
        flag_source("file:///srv/flags.git", name="folder"),
        flag_source(f"{spine.server.url}/flgas.git", name="no-repository"),
        flag_source(spine.url, name="no-secret", git={"secretRef": {"name": "git-token"}}),
        flag_source(spine.url, name="secret-incomplete", git=credentials),
        flag_source(silent, name="slow"),
    )
    for name, reason in expected.items():
        spine.wait_reason("flagsource", reason, name)
    spine.wait("flagsource", lambda it: condition(it, "Reconciling").get("status") == "True", "slow")
    check("flagsources", lambda: kubectl_output(spine, "flagsource"))


def test_flag_sets(spine: Spine) -> None:
    commit = spine.push(
        "Christmas is over",
        flags__json=json.dumps({"flags": {}}),
        **{
            "good/checkout__yaml": CHECKOUT % ("plain", '"off"'),
            "bad/checkout__yaml": CHECKOUT % ("christmas", '"on"'),
            "worse/checkout__yaml": "flags: [",
        },
    )
    spine.wait("flagsource", lambda it: commit in it["status"]["artifact"]["revision"])
    spine.delete("flagset")
    spine.apply(
        flag_set(name="healthy", paths=["good"]),
        flag_set(name="held", paths=["bad"]),
        flag_set(name="refused", paths=["bad"], failurePolicy="Atomic"),
    )
    for name in ("healthy", "held", "refused"):
        spine.wait_ready("flagset", name)
    platform = {"kind": "FlagSource", "name": "flags", "namespace": "platform"}
    others = configuration("taken", flagSpec=json.loads(flags(banner="on")))
    spine.api.apply(spine.name, others, manager="platform-team")
    spine.apply(
        flag_set(name="conflict", paths=["good"], target={"name": "taken"}),
        manifest("FlagSet", "elsewhere", {"sourceRef": platform}),
        flag_set(name="misplaced", paths=["flags/base"]),
        flag_set(name="waiting", source="not-yet"),
    )
    commit = spine.push("New checkout for all", **{"bad/checkout__yaml": CHECKOUT % ("chrismas", '"off"')})
    expected = {
        "held": "PartiallyApplied", "refused": "BuildFailed", "conflict": "OwnershipConflict",
        "elsewhere": "AccessDenied", "misplaced": "BuildFailed", "waiting": "ArtifactFailed",
    }  # fmt: skip
    for name, reason in expected.items():
        spine.wait_reason("flagset", reason, name)
    spine.wait("flagset", lambda it: commit in it["status"]["lastAppliedRevision"], "healthy")
    check("flagsets", lambda: kubectl_output(spine, "flagset"))


@pytest.mark.parametrize("kind", ["FeatureFlagConfiguration", "FeatureFlag"])
def test_what_delivers_flags(space: Namespace, kind: str) -> None:
    good = json.loads(flags(banner="on"))["flags"]["banner"]
    trouble: dict[str, dict[str, Any]] = {
        "no-variant": {"flagSpec": {"flags": {"banner": {**good, "defaultVariant": "of"}}}},
        "two-problems": {
            "flagSpec": {
                "flags": {
                    "banner": {**good, "state": "ON"},
                    "cart": {**good, "variants": {"on": True, "off": "no"}},
                }
            }
        },
        "empty-rule": {"flagSpec": {"flags": {"banner": {**good, "targeting": {"iff": [1]}}}}},
        "lost-reference": {"flagSpec": {"flags": {"banner": {**good, "targeting": {"$ref": "staff"}}}}},
        "no-variants": {"flagSpec": {"flags": {"banner": {"state": "ENABLED"}}}},
        "odd-default": {"flagSpec": {"flags": {"banner": {**good, "defaultVariant": ""}}}},
        "empty-reference": {"flagSpec": {"flags": {"banner": good}, "$evaluators": {"staff": {}}}},
        "healthy": {"flagSpec": {"flags": {"banner": good}, "metadata": {"flagSetId": space.name}}},
    }
    bad = {**good, "defaultVariant": "of"}
    trouble["variants-gone"] = {"flagSpec": {"flags": {"banner": {**good, "variants": {}}}}}
    trouble["two-errors"] = {"flagSpec": {"flags": {"banner": bad, "cart": bad}}}
    if kind == "FeatureFlag":
        trouble["empty"] = {}
    if kind == "FeatureFlagConfiguration":
        trouble["half-there"] = {"shards": [{"name": "part-1", "digest": "sha256:0"}]}
        trouble["text"] = {"featureFlagSpec": '{"flags": {"banner": '}
        trouble["number"] = {"featureFlagSpec": 7}
        trouble["list"] = {"featureFlagSpec": "[1]"}
    for name, spec in trouble.items():
        space.apply(configuration(name, **spec) | {"kind": kind})
    for name in trouble:
        space.wait(kind, lambda it: condition(it, "Ready"), name)
    check(kind.lower(), lambda: kubectl_output(space, kind.lower()))


def test_flag_receivers(space: Namespace) -> None:
    def receiver(name: str, token: str, **spec: Any) -> dict[str, Any]:
        listed = [{"name": "flags"}]
        spec = {"type": "github", "secretRef": {"name": token}, "resources": listed, **spec}
        return manifest("FlagReceiver", name, spec)

    mistakes = {
        "blank": {"token": ""},
        "capital": {"Token": "a-shared-token"},
        "line-break": {"token": "\n"},
        "no-token": {"password": "in another key"},
        "only-previous": {"previousToken": "a-shared-token"},
    }
    space.apply(
        secret("hook", token="a-token-that-both-share"),
        receiver("healthy", "hook"),
        receiver("no-secret", "hok"),
        receiver("suspended", "hook", suspend=True),
    )
    for name, content in mistakes.items():
        space.apply(secret(name, **content), receiver(name, name))
    space.wait_ready("flagreceiver", "healthy")
    for name in ("no-secret", *mistakes):
        space.wait_reason("flagreceiver", "TokenNotFound", name)
    check("flagreceivers", lambda: kubectl_output(space, "flagreceiver"))


@pytest.mark.parametrize("kind", ["flagsource", "flagset", "featureflagconfiguration"])
def test_kubectl_wait_returns_when_it_is_ready(spine: Spine, kind: str) -> None:
    spine.kubectl("wait", "--for=condition=Ready", f"{kind}/flags", "--timeout=20s")


def test_everything_of_ours_is_one_category(spine: Spine) -> None:
    listed = spine.kubectl("get", "flagstaff")
    assert [line.split()[0] for line in listed.splitlines() if "/" in line] == [
        "featureflagconfiguration.core.openfeature.dev/flags",
        "flagset.flagstaff.dev/flags",
        "flagsource.flagstaff.dev/flags",
    ]


def kstatus(found: dict[str, Any]) -> str:
    """As Flux's and Argo CD's health checks compute it (sigs.k8s.io/cli-utils/pkg/kstatus, the generic
    rules).
    """
    meta, status = found["metadata"], found.get("status", {})
    if "deletionTimestamp" in meta:
        return "Terminating"
    if status.get("observedGeneration", meta["generation"]) != meta["generation"]:
        return "InProgress"
    if condition(found, "Reconciling").get("status") == "True":
        return "InProgress"
    if condition(found, "Stalled").get("status") == "True":
        return "Failed"
    ready = condition(found, "Ready").get("status")
    return "Current" if ready in {None, "True"} else "InProgress"


def test_health_checks_agree_with_ready(spine: Spine) -> None:
    for kind in ("flagsource", "flagset", "ffc"):
        assert kstatus(spine.wait_ready(kind)) == "Current"
    spine.push(flags__json=flags(banner="nonsense"))
    assert kstatus(spine.wait_reason("flagset", "PartiallyApplied")) == "Failed"
    spine.server.redirect_to = "http://127.0.0.1:1"
    spine.poke("flagsource")
    found = spine.wait("flagsource", lambda it: condition(it, "Ready")["status"] == "False")
    assert kstatus(found) == "InProgress"
    spine.apply(flag_set(name="waiting", source="not-yet"))
    assert kstatus(spine.wait_reason("flagset", "ArtifactFailed", "waiting")) == "InProgress"
