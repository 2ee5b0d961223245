"""Who is counted and who is not, and what is said of it: on a real API server, with real processes."""

from __future__ import annotations

import json
import signal
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.cluster.controllers import SYSTEM
from tests.cluster.fleets import flagstaff, followed_source, wait, wait_served
from tests.cluster.patience import within
from tests.cluster.pods import pods
from tests.cluster.proxies import ProxyProcess, proxy
from tests.worlds.flags import flags

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.plane import Plane
    from tests.cluster.plugin import ControllerPorts
    from tests.cluster.pods import PodProcess
    from tests.cluster.spines import Spine

pytestmark = pytest.mark.timeout(180)


@pytest.mark.long
def test_a_commit_that_changed_no_flag_is_served_where_its_flags_are(
    spine: Spine, fleet: list[PodProcess]
) -> None:
    assert len(fleet) == 3
    first = spine.get("flagset")["status"]["lastAppliedRevision"]
    commit = spine.push(readme__md="about flags")
    code, text = wait(spine, "ffc/flags", commit)
    assert (code, f"3 of 3 evaluators serve {first}" in text) == (0, True)
    assert wait(spine, "flagset/flags", first)[0] == 0


@pytest.mark.long
def test_a_commit_that_breaks_a_flag_is_never_served_though_the_set_stays_as_it_was(
    spine: Spine, fleet: list[PodProcess]
) -> None:
    assert len(fleet) == 3
    wait_served(spine, "3/3")
    broken = flags(banner="on").replace('"defaultVariant": "on"', '"defaultVariant": "gone"')
    commit = spine.push(flags__json=broken)
    for what in ("ffc/flags", "flagset/flags"):
        code, text = wait(spine, what, commit, "--timeout", "2m")
        assert (code, "Still serving the previous definition of: banner" in text) == (1, True)
        assert "not within" not in text


@pytest.mark.long
def test_waiting_fails_without_evaluators_unless_none_are_required(spine: Spine) -> None:
    commit = spine.push(flags__json=flags(banner="off"))
    code, text = wait(spine, "flagset/flags", commit, "--timeout", "3s")
    assert (code, "nobody reports who serves" in text) == (1, True)
    assert wait(spine, "flagset/flags", commit, "--allow-none")[0] == 0
    code, text = wait(spine, "ffc/missing", commit, "--timeout", "1s")
    assert (code, "is not in namespace" in text) == (1, True)


def test_the_fleet_is_shown_by_the_cluster_and_by_a_proxy(
    spine: Spine, fleet: list[PodProcess], delivering: ProxyProcess
) -> None:
    assert len(fleet) == 3
    code, text = flagstaff(spine.plane, "fleet", "-n", spine.name)
    assert (code, "3/3" in text) == (0, True)
    code, text = flagstaff(spine.plane, "fleet", "--to", f"127.0.0.1:{delivering.management}")
    assert (code, text.count("  ok  ")) == (0, 3)
    assert f"{spine.name}/checkout-1 (claimed)  node-1" in text


def test_metrics_of_proxy_and_controller_show_who_serves_it_and_how_long_that_was(
    spine: Spine, fleet: list[PodProcess], delivering: ProxyProcess, controller_ports: ControllerPorts
) -> None:
    commit = spine.push(flags__json=flags(banner="off"))
    assert wait(spine, "ffc/flags", commit)[0] == 0
    series = 'flagstaff_proxy_members{state="served"}', "flagstaff_proxy_served_after_seconds_count"
    assert [delivering.metric(each) for each in series] == [len(fleet), len(fleet)]
    assert delivering.metric("flagstaff_proxy_receipt_writes_total") > 0
    with urllib.request.urlopen(f"http://127.0.0.1:{controller_ports.management}/metrics") as answer:
        metrics = answer.read().decode()
    labels = f'{{name="flags",namespace="{spine.name}",state="served"}}'
    assert f"flagstaff_evaluators{labels} 3.0" in metrics


@pytest.mark.slow
def test_a_proxy_that_is_killed_leaves_nothing_behind_and_nobody_uncounted(
    cluster: Plane, spine: Spine, tmp_path: Path
) -> None:
    with (
        proxy(cluster, tmp_path / "proxy", name="one") as one,
        proxy(cluster, tmp_path / "proxy", name="two") as two,
    ):
        sources = [followed_source(each.target, spine.name) for each in (one, two)]
        with (
            pods(cluster, spine.name, sources[0], tmp_path / "pods", "a", "b"),
            pods(cluster, spine.name, sources[1], tmp_path / "pods", "c"),
        ):
            wait_served(spine, "3/3")
            one.end(signal.SIGKILL)
            wait_served(spine, "1/1")
            within(lambda: len(spine.all("flagreceipt")) == 1)
            commit = spine.push(flags__json=flags(banner="off"))
            assert wait(spine, "flagset/flags", commit)[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flagreceipt", "lease"])
def test_a_deleted_receipt_is_written_again_though_nothing_else_changes(
    spine: Spine, fleet: list[PodProcess], kind: str
) -> None:
    assert len(fleet) == 3
    (receipt,) = spine.all("flagreceipt")
    if kind == "lease":
        lease = f"flagstaff-proxy-{receipt['spec']['proxy']}"
        spine.plane.kubectl("delete", "lease", lease, "-n", SYSTEM)
    spine.delete("flagreceipt", receipt["metadata"]["name"])

    def again() -> bool:
        found = [each["metadata"]["uid"] for each in spine.all("flagreceipt")]
        return bool(found) and found != [receipt["metadata"]["uid"]]

    within(again, patience=90.0)
    wait_served(spine, "3/3")


@pytest.mark.slow
def test_idle_nothing_is_written(spine: Spine, fleet: list[PodProcess]) -> None:
    assert len(fleet) == 3
    wait_served(spine, "3/3", "flagset")
    before = json.dumps([spine.all(kind) for kind in ("ffc", "flagset", "flagreceipt")])
    with pytest.raises(AssertionError):
        within(
            lambda: before != json.dumps([spine.all(each) for each in ("ffc", "flagset", "flagreceipt")]),
            patience=12.0,
        )  # fmt: skip
