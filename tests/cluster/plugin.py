"""The control plane as fixtures: one for the whole run, a namespace for each test.

The plane is started by the process that started pytest, not by one of its workers: it must last as long as
the last of them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import pytest

from tests.cluster.api import Api, Refused
from tests.cluster.assets import REQUIRED, find
from tests.cluster.controllers import controller
from tests.cluster.patience import PATIENCE, within
from tests.cluster.plane import Plane

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path(__file__).parent
_FOLDER: Final = "FLAGSTAFF_TEST_PLANE"
"""Tells the workers where the plane is, or will be; unset where there is none."""
_READY: Final = "controller.json"
"""The file of its folder with the ports of the run's controller, once that listens."""
_MISSING: Final = "CLUSTER TESTS SKIPPED: no test control plane here; `make plane` builds it"
_over = threading.Event()
_serving: list[threading.Thread] = []
_numbers = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    """Start the plane if tests that need it may be run, in the process that outlives all workers. They
    collect tests meanwhile.
    """
    if hasattr(config, "workerinput") or config.option.collectonly or not _is_wanted(config):
        return
    assets = find()
    if assets is None:
        return
    plane = Plane(assets, Path(tempfile.mkdtemp(prefix="flagstaff-plane-")))
    os.environ[_FOLDER] = str(plane.folder)
    _serving.append(threading.Thread(target=_serve, args=(plane,)))
    _serving[0].start()


def _serve(plane: Plane) -> None:
    """Until the run is over. The programs would end with this thread, as it starts them."""
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, plane.folder, ignore_errors=True)
        stack.callback(plane.stop)
        plane.start()
        install(plane)
        # One controller for the run: what it is to do in a namespace, it does for every test at once.
        plane.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy/components/flag-files/binding.yaml"))
        arguments = ("--allow-local-providers", "--flag-files")
        process = stack.enter_context(controller(plane, plane.folder / "controller", *arguments))
        ports = ControllerPorts(process.management, process.artifacts, process.receiver)
        fresh = plane.folder / f"{_READY}.new"
        fresh.write_text(json.dumps(ports))
        fresh.replace(plane.folder / _READY)
        _over.wait()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what was started."""
    if _serving and not hasattr(config, "workerinput"):
        _over.set()
        _serving.pop().join()
        del os.environ[_FOLDER]


def _is_wanted(config: pytest.Config) -> bool:
    """Whether a path that was asked for leads here."""
    for argument in config.args:
        path = Path(argument.partition("::")[0]).absolute()
        if HERE.is_relative_to(path) or path.is_relative_to(HERE):
            return True
    return False


def install(plane: Plane) -> None:
    """Our kinds and our service accounts, as users install them."""
    deploy = ROOT / "deploy"
    components = deploy / "components"
    bindings = ("delivery", "secrets-everywhere", "flagd-everywhere")
    files = (
        *(deploy / "base" / name for name in ("namespace.yaml", "rbac.yaml")),
        *(components / name / "binding.yaml" for name in bindings),
        *(components / name for name in ("proxy/rbac.yaml", "network-policies/network-policies.yaml")),
    )
    words = [f"-f={file}" for file in (ROOT / "crds", *files)]
    made = plane.kubectl("apply", "--server-side", *words, "-o", "name").split()
    # The API server's list of kinds follows their definitions later.
    head = "customresourcedefinition.apiextensions.k8s.io/"
    kinds = {each.removeprefix(head) for each in made if each.startswith(head)}
    within(lambda: kinds <= {*plane.kubectl("api-resources", "-o", "name", check=False).split()})


def without(missing: str) -> NoReturn:
    """End a test that cannot be run here for the reason `missing`."""
    if os.environ.get(REQUIRED):
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture(scope="session")
def cluster() -> Plane:
    """The control plane of this run."""
    folder = os.environ.get(_FOLDER)
    if folder is None:
        without(_MISSING)
    ready = Path(folder, _READY)
    within(lambda: ready.exists() or not ready.parent.exists(), patience=2 * PATIENCE)
    assert ready.exists(), "the control plane or its controller did not start: see the end of the run"
    assets = find()
    assert assets is not None
    return Plane.at(assets, ready.parent)


class ControllerPorts(NamedTuple):
    """Where the run's controller listens."""

    management: int
    artifacts: int
    receiver: int


@pytest.fixture(scope="session")
def controller_ports(cluster: Plane) -> ControllerPorts:
    """The controller of this run, a process of its own with just the rights of its service account."""
    return ControllerPorts(*json.loads((cluster.folder / _READY).read_text()))


@pytest.fixture
def namespace(cluster: Plane) -> Iterator[str]:
    """A namespace of the test's own; what is in it goes with it."""
    with namespace_on(cluster) as name:
        yield name


@contextlib.contextmanager
def namespace_on(cluster: Plane) -> Iterator[str]:
    """A namespace for as long as the block lasts."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    name = f"t-{worker}-{next(_numbers)}-{time.time_ns() % 10**9}"
    api = Api(cluster)
    api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    with contextlib.suppress(Refused):
        api.ask("DELETE", f"/api/v1/namespaces/{name}")
