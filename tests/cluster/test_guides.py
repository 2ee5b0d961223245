"""Every command of the guides about a cluster, typed in order, on the real plane beside two evaluators."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Final

import pytest
import urllib3

from tests.cluster.fleets import flagstaff, followed_source
from tests.cluster.pods import pods
from tests.git_http import git_server
from tests.guides import PLAYED, ROOT, play
from tests.registry.program import run_registry
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.objects import Namespace
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


PULLED: Final = "docs/clusters-by-pull.md"
SECOND: Final = """
    $ sed -i 's/25/30/; s/75/70/' flags/overlays/production/checkout.yaml
    $ git commit -q -a -m 'Give it to more users'
    $ flagstaff push oci://registry.example.com/shop/flags:staging --path . --sign ../ci.key
    …
    $ flagstaff reconcile flagsource flags -n shop
    …
    $ ! flagstaff promote oci://registry.example.com/shop/flags:staging --to eu \\
        --verify-key ../ci.pub --after rollout/checkout --context staging -n shop --timeout 5s
    $ flagstaff promote oci://registry.example.com/shop/flags:staging --to eu --verify-key ../ci.pub
    …
    oci://registry.example.com/shop/flags:eu@sha256:…
"""
"""A second change, which the rollout holds at its first step: `--after` does not promote it."""


def contexts(plane: Plane, path: Path, namespace: str, *names: str) -> Path:
    """A kubeconfig in which each of these contexts is the namespace of the plane."""
    config = json.loads(plane.kubeconfig.read_text())
    [context] = config["contexts"]
    context["context"]["namespace"] = namespace
    path.write_text(
        json.dumps(
            {**config, "current-context": names[0], "contexts": [{**context, "name": name} for name in names]}
        )
    )
    return path


def pushed(port: int, repository: str, tag: str) -> str:
    """The digest that a tag has."""
    accepted = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
    url = f"http://127.0.0.1:{port}/v2/{repository}/manifests/{tag}"
    return urllib3.request("HEAD", url, headers=accepted).headers["docker-content-digest"]


@pytest.mark.long
@pytest.mark.timeout(240)
def test_clusters_that_pull_promote_go_back_and_outlive_the_registry(
    cluster: Plane, space: Namespace, delivering: ProxyProcess, tmp_path: Path
) -> None:
    """Every command of the page, typed in order, with a second change before the way back. Both contexts are
    of one plane.
    """
    registry, home, rest = tmp_path / "registry", tmp_path / "home", tmp_path / "rest.md"
    for folder in (registry, home):
        folder.mkdir()
    _, begin, back = (ROOT / PULLED).read_text().partition("\n## Back\n")
    rest.write_text(begin + back)
    repository = f"{space.name}/flags"
    environ = {
        "KUBECONFIG": str(contexts(cluster, tmp_path / "kubeconfig", space.name, "staging", "eu")),
        "PATH": f"{cluster.assets}:/usr/local/bin:/usr/bin:/bin",
    }
    source = followed_source(delivering.target, space.name, "checkout")
    with pods(cluster, space.name, source, tmp_path / "pods", "checkout-1"), run_registry(registry) as port:
        host = f"127.0.0.1:{port}"
        url = f"http://{host}/v2/{repository}/manifests/staging"
        head = f"curl -sI -H 'Accept: application/vnd.oci.image.manifest.v1+json' {url}"
        words = {
            # The registry of the test has no certificate.
            "--sign ../ci.key": "--sign ../ci.key --insecure",
            "--verify-key ../ci.pub": "--verify-key ../ci.pub --insecure",
            "    ref: {tag: staging}": "    insecure: true\n    ref: {tag: staging}",
            "sha256:4d1c…": f"$({head} | tr -d '\\r' | sed -n 's/^docker-content-digest: //Ip')",
            "registry.example.com": host,
            "shop": space.name,
        }
        play(
            PULLED, home, prologue=PLAYED["docs/up.md"], end="## Back", elsewhere=(), words=words,
            environ=environ,
        )  # fmt: skip
        first = pushed(port, repository, "eu")
        assert space.wait_ready("flagset", "checkout")["status"]["lastAppliedRevision"] == f"staging@{first}"
        words["sha256:77aa…"] = first
        rest.write_text(f"{SECOND}{begin}{back}")
        play(str(rest), home, prologue="cd ~/src/flags", elsewhere=(), words=words, environ=environ)
        assert pushed(port, repository, "eu") == first != (second := pushed(port, repository, "staging"))
        space.wait("flagrollout", lambda found: found["status"].get("phase") == "Progressing", "checkout")
    served = space.get("ffc", "checkout")["spec"]
    space.poke("flagsource")
    failed = space.wait_reason("flagsource", "OCIArtifactPullFailed")
    assert failed["status"]["artifact"]["revision"] == f"staging@{second}"
    code, printed = flagstaff(cluster, "rollout", "abort", "checkout", "-n", space.name)
    assert code == 0, printed
    space.wait("flagrollout", lambda found: found["status"].get("phase") == "Failed", "checkout")
    assert space.get("ffc", "checkout")["spec"] == served
