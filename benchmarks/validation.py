"""Validation of objects as they are applied: reviews of growing sets, sent to the port of admission one by
one, beside what the parser alone takes for the same flags.

    python -m benchmarks.validation

`benchmarks.admission` measures it, too.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from typing import TYPE_CHECKING, Any

from benchmarks.cluster import plane
from benchmarks.results import keep, median, percentile
from evaluator.flags.merge import parse
from tests.cluster.admission import AdmissionProcess, authorities, install_rights
from tests.cluster.replica import run_replica

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.plane import Plane

TITLE = "validation of objects, sent to our admission port"
REVIEWS = 100
"""Of each size: the slowest of them is the 99th percentile."""
SIZES = {"FlagSource": 0, "50 KB of flags": 50_000, "1 MB of flags": 1_000_000}
TARGETING = {
    "if": [{"ends_with": [{"var": "email"}, "@example.com"]}, "on", {"fractional": [["on", 10], ["off", 90]]}]
}
SOURCE = {"interval": "1m", "git": {"url": "https://git.example.com/flags.git", "ref": {"branch": "main"}}}


def main() -> None:
    """On a control plane of its own."""
    with plane() as (cluster, _, folder):
        install_rights(cluster)
        with run_replica(AdmissionProcess(cluster, folder / "admission")) as process:
            keep(TITLE, measure_validation(cluster, process))


def measure_validation(cluster: Plane, process: AdmissionProcess) -> list[dict[str, Any]]:
    """One row for each object."""
    trust = ssl.create_default_context(cadata=authorities(cluster).decode())
    connection = http.client.HTTPSConnection("127.0.0.1", process.admission, context=trust, timeout=30)
    with contextlib.closing(connection):
        return [row(connection, name, size) for name, size in SIZES.items()]


def row(connection: http.client.HTTPSConnection, name: str, size: int) -> dict[str, Any]:
    """How long reviews of this object take, and how much longer than parsing its flags once."""
    document = flags(size) if size else {}
    body = json.dumps({"request": {"uid": "u", "object": wrap_document(document)}}).encode()
    content = json.dumps(document).encode()

    def review() -> None:
        connection.request("POST", "/validate", body, {"Content-Type": "application/json"})
        assert json.loads(connection.getresponse().read())["response"]["allowed"]

    times, parsing = [], []
    for number in range(REVIEWS + 1):
        took, alone = seconds(review), seconds(lambda: parse(content, file="flags.json"))
        # The first one fills caches.
        if number:
            times.append(took)
            parsing.append(alone)
    measured = {
        "object": name,
        "bytes": len(body),
        "reviews": len(times),
        "p50 ms": median(times) * 1e3,
        "p99 ms": percentile(times, 0.99) * 1e3,
    }
    return measured | ({"p50 to parsing": median(times) / median(parsing)} if size else {})


def seconds(action: Callable[[], object]) -> float:
    """What one run takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def flags(size: int) -> dict[str, Any]:
    """A document of about so many bytes, whose flags have rules."""
    flag = {
        "state": "ENABLED",
        "variants": {"on": True, "off": False},
        "defaultVariant": "off",
        "targeting": TARGETING,
    }
    count = size // len(json.dumps({"flag-00000": flag}))
    return {"flags": {f"flag-{number:05}": flag for number in range(count)}}


def wrap_document(document: dict[str, Any]) -> dict[str, Any]:
    """The object that holds the document; a FlagSource for an empty one."""
    metadata = {"name": "checkout", "namespace": "shop"}
    if not document:
        return {
            "apiVersion": "flagstaff.dev/v1beta1",
            "kind": "FlagSource",
            "metadata": metadata,
            "spec": SOURCE,
        }
    version = "core.openfeature.dev/v1beta1"
    spec = {"flagSpec": document}
    return {"apiVersion": version, "kind": "FeatureFlagConfiguration", "metadata": metadata, "spec": spec}


if __name__ == "__main__":
    main()
