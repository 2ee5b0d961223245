"""An installation of an earlier commit becomes one of this, and goes back, while an evaluator follows."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import tarfile
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.clients.asking import served_value
from tests.cluster.controllers import ControllerProcess
from tests.cluster.fleets import followed_source
from tests.cluster.patience import within
from tests.cluster.plane import Plane, free_ports, run_plane
from tests.cluster.plugin import ROOT, install, namespace_on
from tests.cluster.pods import pods
from tests.cluster.proxies import ProxyProcess
from tests.cluster.spines import Spine, spine_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.replica import Replica

EARLIER: Final = "40c7c2040cd1f679477d9e48213a500862fbf81d"
"""The last commit whose manifests were single files."""
NEWER: Final = ("--rollout-hosts", "--denied-rollout-hosts", "--denied-kubeconfig-hosts")
"""Options with a value that this commit does not know."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the earlier commit; a clone without it skips the test."""
    folder = tmp_path_factory.mktemp("earlier")
    archive = subprocess.run(["git", "archive", EARLIER], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"NO UPGRADE IS TRIED: this clone lacks the commit {EARLIER}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def apply(plane: Plane, folder: Path, *manifests: str) -> None:
    """Apply the definitions and these manifests of deploy/, as users who upgrade do."""
    files = [folder / "crds", *(folder / "deploy" / name for name in manifests)]
    plane.kubectl("apply", "--server-side", "--force-conflicts", *(f"-f={file}" for file in files))


def of(folder: Path, replica: Replica) -> None:
    """Have a replica and its helper processes run the code of the earlier commit in a folder."""
    command = ["env", f"--chdir={folder}", f"PYTHONPATH={folder}", *replica.command]
    for option in NEWER:
        if option in command:
            at = command.index(option)
            del command[at : at + 2]
    replica.command = command


@contextlib.contextmanager
def watch_values(port: int) -> Iterator[list[str]]:
    """The values of the flag `banner` of an evaluator, each change once, for as long as the block lasts."""
    values: list[str] = []
    over = threading.Event()

    def ask() -> None:
        while not over.wait(0.02):
            value = str(served_value(port, "banner"))
            if values[-1:] != [value]:
                values.append(value)

    def answers() -> bool:
        with contextlib.suppress(KeyError, OSError):
            return served_value(port, "banner") is not None
        return False

    within(answers)
    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield values
    finally:
        over.set()
        thread.join()


@dataclass(frozen=True, slots=True)
class Installation:
    """Both versions of controller and proxy, of which none is started, on a plane of the earlier version."""

    spine: Spine
    old: ControllerProcess
    new: ControllerProcess
    old_proxy: ProxyProcess
    new_proxy: ProxyProcess
    port: int
    """Where whichever proxy runs listens."""


@pytest.fixture
def installation(cluster: Plane, earlier: Path, tmp_path: Path) -> Iterator[Installation]:
    [port] = free_ports(1)
    with (
        tempfile.TemporaryDirectory(prefix="flagstaff-versions-") as home,
        run_plane(cluster.assets, Path(home)) as plane,
    ):
        install(plane)
        apply(plane, earlier, "rbac.yaml")
        with namespace_on(plane) as namespace, spine_in(plane, namespace, tmp_path) as spine:
            old, new = (
                ControllerProcess(plane, tmp_path / name, "--allow-local-providers", name=name)
                for name in ("old", "new")
            )
            old_proxy, new_proxy = (
                ProxyProcess(plane, tmp_path / name, "--sync-port", str(port), name=name)
                for name in ("a", "b")
            )
            of(earlier, old)
            of(earlier, old_proxy)
            with (
                contextlib.closing(old), contextlib.closing(new),
                contextlib.closing(old_proxy), contextlib.closing(new_proxy),
            ):  # fmt: skip
                yield Installation(spine, old, new, old_proxy, new_proxy, port)


def test_an_upgrade_and_its_rollback_lose_nothing(installation: Installation, tmp_path: Path) -> None:
    spine, old, new = installation.spine, installation.old, installation.new
    old.start()
    installation.old_proxy.start()
    old.wait_leads()
    spine.wait_ready("flagset")
    source = followed_source(f"127.0.0.1:{installation.port}", spine.name)
    with (
        pods(spine.plane, spine.name, source, tmp_path / "pods", "checkout-1") as [pod],
        watch_values(pod.port("ofrep")) as values,
    ):
        change(spine, values, "one")
        apply(spine.plane, ROOT, "base/rbac.yaml", "components/proxy/rbac.yaml")
        change(spine, values, "under newer definitions")
        new.start()
        change(spine, values, "beside a newer standby")
        old.end()
        new.wait_leads()
        change(spine, values, "from the newer controller")
        installation.old_proxy.end()
        installation.new_proxy.start()
        change(spine, values, "through the newer proxy")
        old.start()
        new.end()
        old.wait_leads()
        change(spine, values, "from the earlier controller again")
        installation.new_proxy.end()
        installation.old_proxy.start()
        change(spine, values, "through the earlier proxy again")
    assert values == [
        "True", "one", "under newer definitions", "beside a newer standby", "from the newer controller",
        "through the newer proxy", "from the earlier controller again", "through the earlier proxy again",
    ]  # fmt: skip


def change(spine: Spine, values: list[str], value: str) -> None:
    """Commit a value, and wait until the evaluator serves it."""
    flag = {"state": "ENABLED", "variants": {value: value}, "defaultVariant": value}
    spine.push(flags__json=json.dumps({"flags": {"banner": flag}}))
    within(lambda: values[-1:] == [value], lambda: values)
