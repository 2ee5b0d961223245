"""`make dev-cluster`: a control plane, the controller, admission, the proxy, three evaluators, the page, and
the example as a Git repository, until Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.cluster.admission import admission
from tests.cluster.assets import PLANE, find
from tests.cluster.controllers import FLAGSTAFF, controller
from tests.cluster.fleets import NAMES, followed_source
from tests.cluster.pages import OwnPage
from tests.cluster.plane import Plane, run_plane
from tests.cluster.plugin import ROOT, install
from tests.cluster.pods import pods
from tests.cluster.proxies import proxy
from tests.cluster.replica import run_replica
from tests.git_http import git_server
from tests.go import build
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.admission import AdmissionProcess
    from tests.cluster.controllers import ControllerProcess
    from tests.cluster.pods import PodProcess
    from tests.cluster.proxies import ProxyProcess

FOLDER: Final = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".dev-cluster"
EXAMPLE: Final = ROOT / "examples" / "gitops-repo"
DIRECT_SET: Final = ROOT / "examples" / "direct-set" / "deployment.yaml"
INJECTED: Final = ROOT / "examples" / "injection" / "pod.yaml"
NAMESPACE: Final = "shop"
FLAG_SET: Final = "checkout-production"


def main() -> int:
    """Start everything, say what to try, wait for Ctrl-C."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    assets = find() or build(PLANE)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    with contextlib.ExitStack() as stack:
        say("starting etcd, kube-apiserver and kube-controller-manager")
        plane = stack.enter_context(run_plane(assets, FOLDER / "plane"))
        prepare(plane)
        link_tools(plane)
        server = stack.enter_context(git_server(FOLDER))
        copy_example()
        say("starting the proxy, the controller and admission, each as its own service account")
        delivering = stack.enter_context(proxy(plane, FOLDER / "proxy"))
        words = ("--proxy-address", delivering.target, "--direct-sets")
        process = stack.enter_context(
            controller(plane, FOLDER / "controller", *words, "--allow-local-providers")
        )
        admitting = stack.enter_context(admission(plane, FOLDER / "admission", *words))
        # There is no node, so `flagstaff check` would miss what runs beside the cluster.
        plane.kubectl("scale", "-n", "flagstaff-system", "deployment/flagstaff-admission", "--replicas=0")
        follow(plane, f"{server.url}/repository/.git")
        say("starting three evaluators that follow the proxy")
        source = followed_source(delivering.target, NAMESPACE, FLAG_SET)
        fleet = stack.enter_context(pods(plane, NAMESPACE, source, FOLDER / "pods", *NAMES))
        serve(plane, len(fleet))
        explain(plane, process, admitting, delivering, fleet)
        stack.enter_context(page_of(plane, delivering))
        print("ready", flush=True)
        stop.wait()
        say("stopping")
    # What failed on the way here left its logs.
    shutil.rmtree(FOLDER, ignore_errors=True)
    return 0


def prepare(plane: Plane) -> None:
    """What the processes need of the cluster."""
    install(plane)
    plane.kubectl("apply", "-f", str(ROOT / "deploy/components/rights-policies/rights-policies.yaml"))
    plane.kubectl("apply", "-f", str(ROOT / "deploy/components/direct-sets/binding.yaml"))


@contextlib.contextmanager
def page_of(plane: Plane, delivering: ProxyProcess) -> Iterator[None]:
    """The page for as long as the block lasts; prints where a browser finds it."""
    own = OwnPage(plane.kubeconfig, FOLDER / "page", "--proxies", f"127.0.0.1:{delivering.management}")
    with run_replica(own):
        name, port, _ = own.opened_file()
        print(f"The page of this cluster is at http://{name}:{port}/ui\n")
        yield


def say(line: str) -> None:
    """One step."""
    print(f"==> {line}", file=sys.stderr, flush=True)


def link_tools(plane: Plane) -> None:
    """The kubeconfig and kubectl where a person finds them."""
    shutil.copy(plane.kubeconfig, FOLDER / "kubeconfig")
    (FOLDER / "bin").mkdir()
    (FOLDER / "bin" / "kubectl").symlink_to(plane.assets / "kubectl")


def copy_example() -> None:
    """The example as a repository of its own, with a first commit."""
    repository = Repository(FOLDER / "repository")
    shutil.copytree(EXAMPLE, repository.path, dirs_exist_ok=True)
    repository.commit("Flags of the checkout")


def follow(plane: Plane, url: str) -> None:
    """Apply the example's FlagSource and FlagSets, on our repository and at a pace for people who watch."""
    manifest = (EXAMPLE / "clusters" / "demo" / "flags.yaml").read_text()
    manifest = manifest.replace("https://git.example.com/shop/flags.git", url)
    manifest = manifest.replace("interval: 1m #", "interval: 2s #")
    plane.kubectl("create", "namespace", NAMESPACE)
    plane.kubectl("apply", "-n", NAMESPACE, "-f", "-", given=manifest)
    plane.kubectl(
        "wait", "-n", NAMESPACE, "--for=condition=Ready", "--timeout=60s",
        "flagsource/checkout", "flagset/checkout-staging", "flagset/checkout-production",
    )  # fmt: skip


def serve(plane: Plane, evaluators: int) -> None:
    """Wait until all of them do, and are counted."""
    plane.kubectl(
        "wait", "-n", NAMESPACE, f"--for=jsonpath={{.status.served}}={evaluators}/{evaluators}",
        "--timeout=60s", f"ffc/{FLAG_SET}",
    )  # fmt: skip


def explain(
    plane: Plane,
    process: ControllerProcess,
    admitting: AdmissionProcess,
    delivering: ProxyProcess,
    fleet: list[PodProcess],
) -> None:
    """What to try."""
    print(plane.kubectl("get", "-n", NAMESPACE, "flagstaff"))
    here = Path(os.path.relpath(FOLDER))
    config = shlex.quote(str((FOLDER / "kubeconfig").resolve()))
    kubectl = f"{here / 'bin/kubectl'} -n {NAMESPACE}"
    flagstaff = os.path.relpath(FLAGSTAFF)
    flags = here / "repository/flags/base/checkout.yaml"
    repository = shlex.quote(str(here / "repository"))
    first = fleet[0]
    evaluators = ", ".join(f"{each.name} 127.0.0.1:{each.port('management')}" for each in fleet)
    asked = f"http://127.0.0.1:{first.port('ofrep')}/ofrep/v1/evaluate/flags/banner-text"
    print(
        f"""Try, in another terminal:

    export KUBECONFIG={config}
    {flagstaff} check
    {kubectl} get flagstaff
    {kubectl} describe flagset {FLAG_SET}
    {kubectl} get ffc
    {kubectl} apply -f {os.path.relpath(INJECTED)} -o yaml
    {kubectl} apply -f {os.path.relpath(DIRECT_SET)} -o yaml
    {kubectl} wait --for=create --timeout=30s ffc/storefront
    {kubectl} run ordered --image=app:1 --annotations=openfeature.dev/standing-orders=checkout-staging -o yaml
    sed -i 's/defaultVariant: plain/defaultVariant: christmas/' {flags}
    git -C {repository} commit -qam 'Christmas banner'
    {flagstaff} wait flagset/{FLAG_SET} -n {NAMESPACE} --revision $(git -C {repository} rev-parse HEAD)
    {flagstaff} fleet -n {NAMESPACE}
    {flagstaff} fleet --to 127.0.0.1:{delivering.management}
    {flagstaff} flags --to 127.0.0.1:{first.port("management")}
    {flagstaff} explain banner-text --to 127.0.0.1:{first.port("management")}
    curl -s {asked} -d '{{}}'
    kill -STOP {first.evaluator.process.pid}
    {kubectl} get ffc -w

Management ports (/metrics, /readyz; flags and explain take an evaluator's):
  controller 127.0.0.1:{process.management}, admission 127.0.0.1:{admitting.management}, proxy
  127.0.0.1:{delivering.management}, evaluators {evaluators}
FlagReceivers listen on http://127.0.0.1:{process.receiver}, artifacts are on 127.0.0.1:{process.artifacts}.

What is applied is a pod with two annotations; what comes back has its evaluator. Then comes a Deployment that
carries its flags, which become the ffc of its name, and a pod with a standing order, whose evaluator asks the
proxy for what is ordered for it. The last but one freezes
{first.name}, which is named a laggard after 15 s (describe ffc {FLAG_SET}); kill -CONT brings it back.
The logs are {os.path.relpath(process.log)}, {os.path.relpath(admitting.log)} and
{os.path.relpath(delivering.log)}.
Ctrl-C takes all of it down.
""",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
