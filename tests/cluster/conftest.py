"""What cluster tests share."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.assets import find
from tests.cluster.fleets import NAMES, followed_source, wait_served
from tests.cluster.objects import Namespace
from tests.cluster.plane import Plane, run_plane
from tests.cluster.plugin import install, namespace_on
from tests.cluster.pods import PodProcess, pods
from tests.cluster.proxies import ProxyProcess, proxy
from tests.cluster.spines import Spine, spine_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.plugin import ControllerPorts


@pytest.fixture
def space(cluster: Plane, controller_ports: ControllerPorts, namespace: str) -> Namespace:
    """A namespace that the run's controller works in."""
    assert controller_ports.management
    return Namespace(cluster, namespace)


@pytest.fixture
def neighbour(cluster: Plane) -> Iterator[Namespace]:
    """A second namespace of the test's own."""
    with namespace_on(cluster) as name:
        yield Namespace(cluster, name)


@pytest.fixture
def spine(
    cluster: Plane, controller_ports: ControllerPorts, namespace: str, tmp_path: Path
) -> Iterator[Spine]:
    """The whole way, ready."""
    assert controller_ports.management
    with spine_in(cluster, namespace, tmp_path) as found:
        found.wait_ready("flagset")
        yield found


@pytest.fixture
def delivering(cluster: Plane, tmp_path: Path) -> Iterator[ProxyProcess]:
    """A proxy of the test's own."""
    with proxy(cluster, tmp_path / "proxy") as process:
        yield process


@pytest.fixture
def fleet(
    cluster: Plane, spine: Spine, delivering: ProxyProcess, tmp_path: Path
) -> Iterator[list[PodProcess]]:
    """Three evaluators that follow the spine's flag set, and are counted."""
    source = followed_source(delivering.target, spine.name)
    with pods(cluster, spine.name, source, tmp_path / "pods", *NAMES) as started:
        wait_served(spine, "3/3")
        yield started


@pytest.fixture(scope="module")
def spare(cluster: Plane) -> Iterator[Plane]:
    """A plane without a controller, for tests that break it or run controllers of their own."""
    assert cluster.kubeconfig.exists()
    assets = find()
    assert assets is not None
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="flagstaff-spare-"))
        plane = stack.enter_context(run_plane(assets, Path(folder)))
        install(plane)
        yield plane


@pytest.fixture
def spare_namespace(spare: Plane) -> Iterator[str]:
    """A namespace on the spare plane."""
    with namespace_on(spare) as name:
        yield name
