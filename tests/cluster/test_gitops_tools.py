"""What Argo CD, Flux and kubectl conclude from our objects, and what an apply every second costs."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests import argocd
from tests.cluster.fleets import wait
from tests.cluster.patience import within
from tests.worlds.flags import flags

if TYPE_CHECKING:
    from typing import Any

    from tests.cluster.pods import PodProcess
    from tests.cluster.spines import Spine

pytestmark = pytest.mark.timeout(240)


def health(resource: dict[str, Any]) -> str:
    status: str = argocd.run("health.lua", resource)["status"]
    return status


def conclusions(spine: Spine, kind: str) -> tuple[str, str]:
    """(Argo CD's health, kstatus's status) of the spine's object of a kind."""
    resource = spine.get(kind)
    return health(resource), argocd.status_of(resource)


def has_concluded(spine: Spine, kind: str, wanted: tuple[str, str]) -> bool:
    return conclusions(spine, kind) == wanted


KINDS: Final = ("flagsource", "flagset", "ffc")


def test_healthy_objects_are_healthy_for_argo_cd_flux_and_kubectl_wait(spine: Spine) -> None:
    spine.wait_ready("flagset")
    for kind in KINDS:
        within(partial(has_concluded, spine, kind, ("Healthy", "Current")), partial(spine.get, kind))
        name = spine.get(kind)["metadata"]["name"]
        waited = ("wait", f"{kind}/{name}", "-n", spine.name, "--for=condition=Ready", "--timeout=30s")
        assert "condition met" in spine.plane.kubectl(*waited)


def test_a_broken_commit_is_degraded_and_a_suspended_set_is_suspended(spine: Spine) -> None:
    spine.wait_ready("flagset")
    spine.push(flags__json=flags(banner="on").replace('"defaultVariant": "on"', '"defaultVariant": "gone"'))
    within(lambda: health(spine.get("flagset")) == "Degraded", lambda: spine.get("flagset"))
    assert argocd.status_of(spine.get("flagset")) in ("InProgress", "Failed")
    patch = json.dumps({"spec": {"suspend": True}})
    name = spine.get("flagset")["metadata"]["name"]
    spine.plane.kubectl("patch", "flagset", name, "-n", spine.name, "--type=merge", "-p", patch)
    assert health(spine.get("flagset")) == "Suspended"


@pytest.mark.long
def test_an_apply_every_second_causes_no_write_of_ours(spine: Spine, fleet: list[PodProcess]) -> None:
    assert fleet
    commit = spine.push(flags__json=flags(banner="off"))
    assert wait(spine, "ffc/flags", commit)[0] == 0
    manifests = []
    for kind in ("flagsource", "flagset"):
        resource = spine.get(kind)
        meta = {"name": resource["metadata"]["name"], "namespace": spine.name}
        manifests.append({key: resource[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": meta})
    applied = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})

    def versions() -> list[str]:
        return [spine.get(kind)["metadata"]["resourceVersion"] for kind in KINDS]

    arguments = (
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=argocd-controller",
        "-f",
        "-",
    )
    spine.plane.kubectl(*arguments, given=applied)
    within(lambda: [conclusions(spine, kind)[0] for kind in KINDS] == ["Healthy"] * 3)
    # The count of evaluators may still settle.
    time.sleep(3)
    before = versions()
    for _ in range(8):
        spine.plane.kubectl(*arguments, given=applied)
        time.sleep(1)
    assert versions() == before
