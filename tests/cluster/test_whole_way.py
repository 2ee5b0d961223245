"""From `git push` to stock OpenFeature clients and `SERVED 3/3`, and who is named when it is not: every part
is real, and a process of its own.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType

from tests.cluster.fleets import wait, wait_served
from tests.cluster.hooks import Hook
from tests.cluster.patience import within
from tests.repositories import ENVIRONMENT, Repository
from tests.worlds.flags import flags
from tests.worlds.objects import condition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from openfeature.client import OpenFeatureClient

    from tests.cluster.plugin import ControllerPorts
    from tests.cluster.pods import PodProcess
    from tests.cluster.spines import Spine

pytestmark = pytest.mark.timeout(240)


class Developer:
    """Has a clone of the repository over HTTP, whose server reports each push to the receiver."""

    def __init__(self, spine: Spine, hook: Hook, folder: Path) -> None:
        # A repository with a work tree refuses a push to the branch that it shows, and HTTP takes none unless
        # it is let.
        spine.repository.git("config", "receive.denyCurrentBranch", "updateInstead")
        spine.repository.git("config", "http.receivepack", "true")
        clone = ["git", "clone", "-q", spine.url, str(folder)]
        subprocess.run(clone, env=ENVIRONMENT, check=True, capture_output=True)
        self._clone, self._hook = Repository(folder), hook

    def push(self, banner: str) -> str:
        """A flag's new default variant; the commit."""
        commit = self._clone.commit(f"banner {banner}", flags__json=flags(banner=banner))
        self._clone.git("push", "-q", "origin", "main")
        assert "FlagSource/" in self._hook.send(commit)
        return commit


@pytest.fixture
def developer(spine: Spine, controller_ports: ControllerPorts, tmp_path: Path) -> Developer:
    return Developer(spine, Hook(spine, controller_ports.receiver), tmp_path / "clone")


@pytest.fixture
def clients(spine: Spine, fleet: list[PodProcess]) -> Iterator[list[OpenFeatureClient]]:
    """Stock ones, each of which asks another evaluator."""
    with contextlib.ExitStack() as stack:
        found = []
        for each in fleet:
            provider = FlagdProvider(host="127.0.0.1", port=each.port("grpc"), resolver_type=ResolverType.RPC)
            domain = f"{spine.name}-{each.name}"
            api.set_provider_and_wait(provider, domain=domain)
            stack.callback(provider.shutdown)
            found.append(api.get_client(domain=domain))
        yield found


def see(clients: list[OpenFeatureClient], value: bool) -> None:
    """Wait until all of them do."""
    within(lambda: all(each.get_boolean_value("banner", not value) is value for each in clients))


def test_a_push_reaches_stock_clients_and_is_counted_and_laggards_are_named(
    spine: Spine, developer: Developer, fleet: list[PodProcess], clients: list[OpenFeatureClient]
) -> None:
    see(clients, value=True)
    commit = developer.push("off")
    see(clients, value=False)
    wait_arrived(spine, commit)

    frozen, killed = fleet[1:]
    frozen.send(signal.SIGSTOP)
    wait_named(spine, frozen.name, commit)
    behind = developer.push("on")
    see([clients[0], clients[2]], value=True)
    code, text = wait(spine, "ffc/flags", f"main@sha1:{behind}", "--timeout", "5s")
    assert (code, f"{spine.name}/{frozen.name} on node-1: silent since" in text) == (1, True)
    assert wait(spine, "ffc/flags", behind, "--percent", "60")[0] == 0

    frozen.send(signal.SIGCONT)
    see(clients, value=True)
    wait_arrived(spine, behind)

    killed.send(signal.SIGKILL)
    killed.delete()
    assert "laggards" not in wait_served(spine, "2/2")["status"]


def wait_arrived(spine: Spine, commit: str) -> None:
    """All three serve the commit, and everything says so."""
    assert wait(spine, "flagset/flags", commit[:7])[0] == 0
    found = wait_served(spine, "3/3")
    assert condition(found, "Propagated")["reason"] == "Served"
    assert found["status"]["servedWithin"]
    assert wait_served(spine, "3/3", "flagset")
    head, line = (each.split() for each in spine.kubectl("get", "ffc", "flags").splitlines())
    assert head[:5] == ["NAME", "READY", "REVISION", "FLAGS", "SERVED"]
    assert line[:5] == ["flags", "True", f"main@sha1:{commit}", "1", "3/3"]


def wait_named(spine: Spine, name: str, commit: str) -> None:
    """The one that is silent is, within 30 s, and nothing else is wrong."""
    found = wait_served(spine, "2/3")
    pod = f"{spine.name}/{name}"
    assert [each["name"] for each in found["status"]["laggards"]] == [pod]
    said = condition(found, "Propagated")
    assert (said["status"], said["reason"]) == ("False", "Lagging")
    assert f"{pod} (silent, last served main@sha1:{commit})" in said["message"]
    assert pod in spine.kubectl("describe", "ffc", "flags")
    assert condition(found, "Ready")["status"] == "True"
