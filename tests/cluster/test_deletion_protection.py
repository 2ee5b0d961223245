"""deploy/components/deletion-protection on a real API server: who may delete flags that evaluators serve."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.controllers import SYSTEM
from tests.cluster.fleets import wait_served
from tests.cluster.golden import check, mask
from tests.cluster.patience import within
from tests.cluster.plugin import ROOT
from tests.worlds.flags import flags
from tests.worlds.objects import configuration

if TYPE_CHECKING:
    from tests.cluster.pods import PodProcess
    from tests.cluster.spines import Spine

pytestmark = pytest.mark.timeout(180)

POLICY: Final = ROOT / "deploy/components/deletion-protection/deletion-protection.yaml"
PROTECTED: Final = "flagstaff.dev/protect=served"
ALLOWED: Final = "flagstaff.dev/allow-deletion=true"
DRY: Final = "--dry-run=server"
ACCOUNTS: Final = "system:serviceaccount"
CONTROLLER: Final = f"{ACCOUNTS}:{SYSTEM}:flagstaff-controller"


@pytest.fixture
def protected(spine: Spine, fleet: list[PodProcess]) -> Spine:
    """A namespace with the label, whose flags three evaluators serve."""
    assert len(fleet) == 3
    wait_served(spine, "3/3", "flagset")
    spine.plane.kubectl("apply", "-f", str(POLICY))
    spine.plane.kubectl("label", "namespace", spine.name, PROTECTED)
    within(lambda: "forbidden" in delete(spine, "ffc", DRY))
    return spine


def delete(spine: Spine, kind: str, *words: str, name: str = "flags") -> str:
    """What kubectl prints."""
    return spine.kubectl("delete", kind, name, "--wait=false", *words, check=False)


def test_flags_that_evaluators_serve_are_deleted_only_with_the_annotation(protected: Spine) -> None:
    # Of a FeatureFlag that is written by hand the status has the same count.
    refusals = [delete(protected, kind, DRY) for kind in ("ffc", "flagset")]
    check("deletion-refused", lambda: mask("\n".join(refusals), protected.name))
    assert "forbidden" in protected.kubectl("delete", "ffc", "--all", DRY, check=False)
    assert "deleted" in delete(protected, "flagsource", DRY)
    for kind in ("ffc", "flagset"):
        protected.kubectl("annotate", kind, "flags", ALLOWED)
        assert "deleted" in delete(protected, kind)
    protected.wait_gone("flagset")


@pytest.mark.long
def test_flags_that_nobody_serves_or_that_stay_are_deleted_without_it(protected: Spine) -> None:
    protected.apply(configuration("unused", flagSpec=json.loads(flags(banner="on"))))
    protected.wait_ready("ffc", "unused")
    assert "deleted" in delete(protected, "ffc", name="unused")
    protected.patch("flagset", {"spec": {"prune": False}})
    assert "deleted" in delete(protected, "flagset", DRY)
    protected.plane.kubectl("label", "namespace", protected.name, f"{PROTECTED.partition('=')[0]}-")
    within(lambda: "deleted" in delete(protected, "ffc", DRY))


@pytest.mark.long
@pytest.mark.parametrize(
    "account",
    [
        f"{ACCOUNTS}:kube-system:namespace-controller",
        f"{ACCOUNTS}:kube-system:generic-garbage-collector",
        "system:kube-controller-manager",
        CONTROLLER,
    ],
)
def test_what_cleans_up_deletes_without_it(protected: Spine, account: str) -> None:
    words = ("--as", account, "--as-group", "system:masters", DRY)
    assert "deleted" in delete(protected, "ffc", *words)


@pytest.mark.long
def test_a_flag_set_prunes_as_the_service_account_of_its_namespace(protected: Spine) -> None:
    def as_account(namespace: str) -> str:
        account = f"{ACCOUNTS}:{namespace}:deployer"
        return delete(protected, "ffc", "--as", account, "--as-group", "system:masters", DRY)

    assert "deleted" in as_account(protected.name)
    assert "forbidden" in as_account("elsewhere")
    words = ("--as", f"{ACCOUNTS}:{protected.name}:deployer", "--as-group", "system:masters", DRY)
    assert "forbidden" in delete(protected, "flagset", *words)


@pytest.mark.long
def test_flags_that_a_workload_carries_no_longer_stay_while_they_are_served(protected: Spine) -> None:
    words = ("--as", CONTROLLER, "--as-group", "system:masters", DRY)
    protected.kubectl("label", "ffc", "flags", "flagstaff.dev/direct-set=Deployment")
    assert "forbidden" in delete(protected, "ffc", *words)
