"""From a push to `SERVED 3/3`, and who is named when it is not: on a real API server, with real processes."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.controllers import FLAGSTAFF
from tests.cluster.objects import condition, flags
from tests.cluster.pods import pods
from tests.cluster.proxies import ProxyProcess, proxy, within

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane
    from tests.cluster.pods import PodProcess
    from tests.cluster.spines import Spine

NAMES = ("checkout-1", "checkout-2", "checkout-3")
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def delivering(cluster: Plane, tmp_path: Path) -> Iterator[ProxyProcess]:
    with proxy(cluster, tmp_path / "proxy") as process:
        yield process


@pytest.fixture
def fleet(
    cluster: Plane, spine: Spine, delivering: ProxyProcess, tmp_path: Path
) -> Iterator[list[PodProcess]]:
    source = {
        "uri": delivering.target, "selector": f"{spine.name}/flags", "provider": "grpc",
    }  # fmt: skip
    with pods(cluster, spine.name, source, tmp_path / "pods", *NAMES) as started:
        served(spine, "3/3")
        yield started


def served(spine: Spine, text: str, kind: str = "ffc") -> dict[str, Any]:
    return spine.wait(kind, lambda found: found["status"].get("served") == text)


def flagstaff(plane: Plane, *words: str) -> tuple[int, str]:
    """Exit code and all that a verb prints."""
    done = subprocess.run(
        [FLAGSTAFF, *words, "--kubeconfig", str(plane.kubeconfig)],
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def wait(spine: Spine, what: str, revision: str, *words: str) -> tuple[int, str]:
    return flagstaff(spine.plane, "wait", what, "-n", spine.name, "--revision", revision, *words)


def test_every_evaluator_is_counted_and_the_silent_one_named(
    spine: Spine, fleet: list[PodProcess]
) -> None:
    commit = spine.push(flags__json=flags(banner="off"))
    assert wait(spine, "flagset/flags", commit[:7])[0] == 0
    found = served(spine, "3/3")
    assert condition(found, "Propagated")["reason"] == "Served"
    assert found["status"]["latency"]["p99"]
    assert served(spine, "3/3", "flagset")

    frozen = fleet[1]
    frozen.send(signal.SIGSTOP)
    found = served(spine, "2/3")
    assert [each["name"] for each in found["status"]["laggards"]] == [f"{spine.name}/checkout-2"]
    said = condition(found, "Propagated")
    assert (said["status"], said["reason"]) == ("False", "Lagging")
    assert f"{spine.name}/checkout-2 (silent, last served main@sha1:{commit})" in said["message"]
    assert f"{spine.name}/checkout-2" in spine.kubectl("describe", "ffc", "flags")
    assert condition(found, "Ready")["status"] == "True"

    behind = spine.push(flags__json=flags(banner="on"))
    code, text = wait(spine, "ffc/flags", f"main@sha1:{behind}", "--timeout", "5s")
    assert (code, f"{spine.name}/checkout-2 on node-1: silent since" in text) == (1, True)
    assert wait(spine, "ffc/flags", behind, "--percent", "60")[0] == 0

    frozen.send(signal.SIGCONT)
    served(spine, "3/3")

    fleet[2].send(signal.SIGKILL)
    fleet[2].delete()
    found = served(spine, "2/2")
    assert "laggards" not in found["status"]
    columns = spine.kubectl("get", "ffc", "flags").splitlines()[0].split()
    assert columns[:6] == ["NAME", "READY", "REVISION", "FLAGS", "SERVED", "AGE"]


def test_a_commit_that_changed_no_flag_is_served_where_its_flags_are(
    spine: Spine, fleet: list[PodProcess]
) -> None:
    assert len(fleet) == 3
    first = spine.get("flagset")["status"]["lastAppliedRevision"]
    commit = spine.push(readme__md="about flags")
    code, text = wait(spine, "ffc/flags", commit)
    assert (code, f"3 of 3 evaluators serve {first}" in text) == (0, True)
    assert wait(spine, "flagset/flags", first)[0] == 0


def test_nobody_is_no_success_unless_that_is_enough(spine: Spine) -> None:
    commit = spine.push(flags__json=flags(banner="off"))
    code, text = wait(spine, "flagset/flags", commit, "--timeout", "3s")
    assert (code, "no evaluator that sends receipts is subscribed" in text) == (1, True)
    assert wait(spine, "flagset/flags", commit, "--allow-none")[0] == 0
    code, text = wait(spine, "ffc/missing", commit, "--timeout", "1s")
    assert (code, "there is no such FeatureFlagConfiguration yet" in text) == (1, True)


def test_the_fleet_is_shown_by_the_cluster_and_by_a_proxy(
    spine: Spine, fleet: list[PodProcess], delivering: ProxyProcess
) -> None:
    assert len(fleet) == 3
    code, text = flagstaff(spine.plane, "fleet", "-n", spine.name)
    assert (code, "3/3" in text) == (0, True)
    code, text = flagstaff(spine.plane, "fleet", "--to", f"127.0.0.1:{delivering.management}")
    assert (code, text.count("  ok  ")) == (0, 3)
    assert f"{spine.name}/checkout-1 (claimed)  node-1" in text


def test_a_proxy_that_is_killed_leaves_nothing_behind_and_nobody_uncounted(
    cluster: Plane, spine: Spine, tmp_path: Path
) -> None:
    with (
        proxy(cluster, tmp_path / "proxy", name="one") as one,
        proxy(cluster, tmp_path / "proxy", name="two") as two,
    ):
        sources = [
            {"uri": each.target, "selector": f"{spine.name}/flags", "provider": "grpc"}
            for each in (one, two)
        ]
        with (
            pods(cluster, spine.name, sources[0], tmp_path / "pods", "a", "b"),
            pods(cluster, spine.name, sources[1], tmp_path / "pods", "c"),
        ):
            served(spine, "3/3")
            one.end(signal.SIGKILL)
            served(spine, "1/1")
            within(lambda: len(spine.all("flagreceipt")) == 1)
            commit = spine.push(flags__json=flags(banner="off"))
            assert wait(spine, "flagset/flags", commit)[0] == 0


def test_idle_nothing_is_written(spine: Spine, fleet: list[PodProcess]) -> None:
    assert len(fleet) == 3
    served(spine, "3/3", "flagset")
    before = json.dumps([spine.all(kind) for kind in ("ffc", "flagset", "flagreceipt")])
    with pytest.raises(AssertionError):
        spine.wait_until(
            lambda: before != json.dumps([spine.all(each) for each in ("ffc", "flagset", "flagreceipt")]),
            patience=12.0,
        )  # fmt: skip
