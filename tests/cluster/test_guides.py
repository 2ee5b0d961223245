"""Every command of the guides about a cluster, typed in order, on the real plane beside two evaluators."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.fleets import followed_source
from tests.cluster.pods import pods
from tests.git_http import git_server
from tests.guides import ROOT, play
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.plane import Plane
    from tests.cluster.plugin import ControllerPorts
    from tests.cluster.proxies import ProxyProcess

GUIDES: Final = sorted(path.name for path in ROOT.glob("docs/guides/on-a-cluster/*.md"))
SHORT: Final = "from-git-to-pod.md"
"""The one that every change is tested with."""
FLAG_SET: Final = "storefront"
"""The FlagSet that guides make, and that evaluators follow."""


@pytest.mark.parametrize(
    "page", [SHORT, *(pytest.param(page, marks=pytest.mark.long) for page in GUIDES if page != SHORT)]
)
def test_every_command_of_a_guide_prints_what_the_guide_says(
    page: str,
    cluster: Plane,
    controller_ports: ControllerPorts,
    namespace: str,
    delivering: ProxyProcess,
    tmp_path: Path,
) -> None:
    assert controller_ports.management
    kubeconfig, home = tmp_path / "kubeconfig", tmp_path / "home"
    shutil.copy(cluster.kubeconfig, kubeconfig)
    home.mkdir()
    repository = Repository(tmp_path / "git" / "flags.git")
    repository.git("config", "http.receivepack", "true")
    repository.git("config", "receive.denyCurrentBranch", "updateInstead")
    repository.commit("Make the repository")
    source = followed_source(delivering.target, namespace, FLAG_SET)
    names = (f"{FLAG_SET}-1", f"{FLAG_SET}-2")
    with git_server(tmp_path / "git") as server, pods(cluster, namespace, source, tmp_path / "pods", *names):
        url = f"{server.url}/flags.git/.git"
        play(
            f"docs/guides/on-a-cluster/{page}",
            home,
            elsewhere=(),
            words={"https://git.example.com/shop/flags.git": url, "shop": namespace},
            environ={"KUBECONFIG": str(kubeconfig), "PATH": f"{cluster.assets}:/usr/local/bin:/usr/bin:/bin"},
        )
