"""(l) On Kubernetes: creating pods that ask for an evaluator, 100 a second, beside pods of webhooks that do
little, on the same API server, and beside pods of none; and what our webhook costs by itself.

    python -m benchmarks.admission

A real API server and `flagstaff controller` as its service account (tests/cluster). Pods are created as dry
runs, so that nothing but admission differs. The empty webhook is our own listener in a process of its own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import os
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trustme

from benchmarks import validation
from benchmarks.cluster import memory, plane
from benchmarks.results import keep, median, percentile
from controller.migration.migrated_objects import GivenObjects
from controller.pods.installation import Options
from controller.pods.pod_injection import inject
from evaluator.http.limits import Limits
from evaluator.http.listener import Listener
from evaluator.http.messages import Response
from evaluator.http.routes import Routes
from evaluator.http.sockets import TlsFiles
from tests.cluster.admission import AdmissionProcess, authorities, install_rights, install_webhooks
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.plugin import ROOT
from tests.cluster.replica import run_replica
from tests.worlds.flags import flags
from tests.worlds.objects import configuration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from evaluator.http.messages import Request
    from tests.cluster.plane import Plane

RATE = 100
SECONDS = 10
ROUNDS = 3
CALLERS = 32
ASKS = {"openfeature.dev/enabled": "true", "flagstaff.dev/flagset": "checkout"}
WAYS = {
    "no webhook": {},
    "empty webhook": {"benchmark/empty": "true"},
    "webhook that adds a label": {"benchmark/empty": "label"},
    "webhook that adds what ours adds, known beforehand": {"benchmark/empty": "same"},
    "ours": ASKS,
}
LABELS = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
PLACEHOLDER = "{token volume}"
ONE_BY_ONE = 200
DIRECT = 4000
CONNECTIONS = 4


def main() -> None:
    """Each way in turn, several rounds, so that what else the machine does hits all of them."""
    with plane() as (cluster, _, folder), run_admission(cluster, folder) as process:
        # Before the webhook is installed, it has neither certificates nor been asked.
        unused = memory(process)
        space = Namespace(cluster, "shop")
        space.apply(configuration("checkout", flagSpec=json.loads(flags(banner="on"))))
        install_webhooks(cluster, process.admission)
        within(partial(is_admitted, cluster, ASKS))
        keep(f"{DIRECT} reviews, sent to our admission port", [asked_directly(cluster, process, unused)])
        keep(validation.TITLE, validation.measure_validation(cluster, process))
        with empty_webhook(cluster, folder):
            taken: dict[str, list[float]] = {name: [] for name in WAYS}
            for name, annotations in WAYS.items():
                within(partial(is_admitted, cluster, annotations))
                taken[name] = []
            keep(
                f"admission of {ONE_BY_ONE} pods, one by one",
                rows({name: one_by_one(cluster, annotations) for name, annotations in WAYS.items()}),
            )
            for _ in range(ROUNDS):
                for name, annotations in WAYS.items():
                    taken[name] += measure_creates(cluster, annotations)
    keep(f"admission of {RATE} pods a second", rows(taken))


@contextlib.contextmanager
def run_admission(cluster: Plane, folder: Path) -> Iterator[AdmissionProcess]:
    """Admission, which the API server does not ask yet."""
    install_rights(cluster)
    with run_replica(AdmissionProcess(cluster, folder / "admission")) as process:
        yield process


def rows(taken: dict[str, list[float]]) -> list[dict[str, Any]]:
    """One of each way, compared with the empty webhook."""
    base = taken["empty webhook"]
    return [
        {
            "way": name,
            "pods": len(times),
            "p50 ms": median(times) * 1e3,
            "p99 ms": percentile(times, 0.99) * 1e3,
            "p50 to empty": median(times) / median(base),
            "p99 to empty": percentile(times, 0.99) / percentile(base, 0.99),
        }
        for name, times in taken.items()
    ]


def pod(annotations: dict[str, str]) -> dict[str, Any]:
    containers = [{"name": "app", "image": "app:1"}]
    meta = {"name": "app", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers}}


class Caller(threading.local):
    """A connection of each thread's own."""

    def __init__(self, cluster: Plane) -> None:
        trust = ssl.create_default_context(cafile=str(cluster.authority))
        trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
        host, _, port = cluster.url.removeprefix("https://").partition(":")
        self._connection = http.client.HTTPSConnection(host, int(port), context=trust, timeout=30)
        self._headers = {"Authorization": f"Bearer {cluster.token}", "Content-Type": "application/json"}

    def create(self, body: bytes) -> bool:
        """Whether the API server would take this pod."""
        path = "/api/v1/namespaces/shop/pods?dryRun=All"
        self._connection.request("POST", path, body, self._headers)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status == 201


def is_admitted(cluster: Plane, annotations: dict[str, str]) -> bool:
    return Caller(cluster).create(json.dumps(pod(annotations)).encode())


def one_by_one(cluster: Plane, annotations: dict[str, str]) -> list[float]:
    """Seconds of each: what admission takes where nothing waits for anything."""
    body, caller, taken = json.dumps(pod(annotations)).encode(), Caller(cluster), []
    for _ in range(ONE_BY_ONE):
        began = time.perf_counter()
        assert caller.create(body)
        taken.append(time.perf_counter() - began)
    return taken


def measure_creates(cluster: Plane, annotations: dict[str, str]) -> list[float]:
    """Seconds of each, counted from the moment at which it was due: who is late is not let off."""
    body, caller = json.dumps(pod(annotations)).encode(), Caller(cluster)
    began = time.perf_counter() + 0.1

    def one(number: int) -> float:
        due = began + number / RATE
        time.sleep(max(0.0, due - time.perf_counter()))
        assert caller.create(body)
        return time.perf_counter() - due

    with ThreadPoolExecutor(CALLERS) as pool:
        taken = [*pool.map(one, range(RATE * SECONDS))]
    # The first second opens connections.
    return taken[RATE:]


def asked_directly(cluster: Plane, process: AdmissionProcess, unused: float) -> dict[str, Any]:
    """What the replica spends on reviews, the API server having no part in it: seconds of its processor, so
    that neither the client nor what else the machine does counts; and memory, which was `unused` MB before
    the webhook was installed.
    """
    trust = ssl.create_default_context(cadata=authorities(cluster).decode())
    # With all that the API server fills in before it asks.
    found = Namespace(cluster, "shop").api.ask("POST", "/api/v1/namespaces/shop/pods?dryRun=All", pod({}))
    found |= {"metadata": {**found["metadata"], "annotations": ASKS}}
    asked = {"uid": "u", "namespace": "shop", "operation": "CREATE", "object": found}
    body = json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    ).encode()
    spent, began = processor_seconds(process), time.perf_counter()

    def some(count: int) -> None:
        connection = http.client.HTTPSConnection("127.0.0.1", process.admission, context=trust, timeout=30)
        with contextlib.closing(connection):
            for _ in range(count):
                connection.request("POST", "/inject", body, {"Content-Type": "application/json"})
                assert b'"patch":' in connection.getresponse().read()

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(some, [DIRECT // CONNECTIONS] * CONNECTIONS))
    spent = processor_seconds(process) - spent
    return {
        "pods": DIRECT,
        "pods a second": DIRECT / (time.perf_counter() - began),
        "pods a second of one core": DIRECT / spent,
        "memory MB": memory(process),
        "memory MB of the webhook": memory(process) - unused,
    }


def processor_seconds(process: AdmissionProcess) -> float:
    """So far, in user and system mode, of all its threads."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def empty_webhook(cluster: Plane, folder: Path) -> Iterator[None]:
    """One that lets every pod through as it is, asked about those with its annotation."""
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "empty.pem")
    command = [sys.executable, "-m", "benchmarks.admission", str(folder / "empty.pem")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        found = "object.metadata.annotations"
        asks = {"name": "asks", "expression": f"has({found}) && 'benchmark/empty' in {found}"}
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        webhook = {
            "name": "empty.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {
                "url": f"https://127.0.0.1:{port}/",
                "caBundle": base64.b64encode(authority.cert_pem.bytes()).decode(),
            },
            "rules": [rule],
            "matchConditions": [asks],
        }  # fmt: skip
        configured = {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "empty"}, "webhooks": [webhook],
        }  # fmt: skip
        cluster.kubectl("apply", "-f", "-", given=json.dumps(configured))
        yield
    finally:
        process.terminate()
        process.wait()


def encode_patch(patch: str) -> str:
    return base64.b64encode(patch.encode()).decode()


def token_volume(found: dict[str, Any]) -> str:
    """The volume that the API server adds to each pod, with a name of its own."""
    names: list[str] = [each["name"] for each in found["spec"]["volumes"]]
    return next(name for name in names if name.startswith("kube-api-access-"))


def ours(found: dict[str, Any]) -> str:
    """What injection does to this pod, with a placeholder for the name that differs between pods."""
    known = GivenObjects(
        [{"metadata": {"name": "checkout", "namespace": "shop"}, "kind": "FlagSet"}], "shop", whole=False
    )
    changes = inject({**found, "metadata": {"annotations": ASKS}}, "shop", Options(), known)
    assert changes is not None
    return json.dumps(changes.patch).replace(token_volume(found), PLACEHOLDER)


async def serve(certificate: str) -> None:
    """Print the port, and answer for ever."""
    patches = {"label": json.dumps(LABELS)}

    def allow(request: Request) -> Response:
        asked = json.loads(request.body)["request"]
        response: dict[str, Any] = {"uid": asked["uid"], "allowed": True}
        way = asked["object"]["metadata"]["annotations"]["benchmark/empty"]
        if way == "same" and way not in patches:
            patches[way] = ours(asked["object"])
        if way in patches:
            patch = patches[way].replace(PLACEHOLDER, token_volume(asked["object"]))
            response |= {"patchType": "JSONPatch", "patch": encode_patch(patch)}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        return Response(200, json.dumps(review).encode(), (("content-type", "application/json"),))

    tls = TlsFiles(Path(certificate), Path(certificate), None)
    listener = Listener(Routes(http={("POST", "/"): allow}), Limits(), name="empty")
    print(await listener.start("127.0.0.1", 0, tls=tls), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    run: Callable[[], None] = partial(asyncio.run, serve(sys.argv[1])) if len(sys.argv) > 1 else main
    run()
