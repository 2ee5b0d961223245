"""A controller that is killed at one step of its work: the next leader continues there, and nothing
half is ever served.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

import grpc
import pytest
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from tests.cluster.controllers import ControllerProcess
from tests.cluster.patience import within
from tests.cluster.plugin import ROOT
from tests.cluster.proxies import ProxyProcess, proxy
from tests.cluster.replica import run_replica
from tests.cluster.spines import spine_in
from tests.worlds.flags import flags

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.plane import Plane

pytestmark = pytest.mark.slow

_APPLY: Final = "controller.kube.client:Cluster.apply"
STEPS: Final = {
    "the source is resolved": "controller.sources.git_backend:GitBackend.resolve:after",
    "the files are fetched": "controller.sources.git_backend:GitBackend.fetch:after",
    "the artifact is to be stored": "controller.artifacts.storage:Storage.put:before",
    "the artifact is stored": "controller.artifacts.storage:Storage.put:after",
    "the source's status is to be written": "controller.kube.client:Cluster.write_status:before:FlagSource",
    "the source's status is written": "controller.kube.client:Cluster.write_status:after:FlagSource",
    "the artifact is read": "controller.flagsets.fetch:ArtifactReader.read:after",
    "the set is to be applied": f"{_APPLY}:before",
    "the set is applied": f"{_APPLY}:after",
    "the set's status is to be written": "controller.kube.client:Cluster.write_status:before:FlagSet",
    "the set's status is written": "controller.kube.client:Cluster.write_status:after:FlagSet",
    "the verdict is written": "controller.kube.client:Cluster.write_status:after:FeatureFlagConfiguration",
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_a_controller_that_is_killed_at_a_step_is_taken_up_there(
    spare: Plane, spare_namespace: str, tmp_path: Path, step: str
) -> None:
    process = ControllerProcess(spare, tmp_path / "a", "--no-leader-election")
    with spine_in(spare, spare_namespace, tmp_path) as spine, run_replica(process):
        spine.wait_ready("flagset")
        process.end(signal.SIGKILL)
        commit = spine.push("banner off", flags__json=flags(banner="off"))
        die_at(process, step)
        assert spine.whole()
        process.start()
        found = spine.wait_applied(commit)
        assert spine.served_variants() == {"banner": "off"}
        assert [each["revision"] for each in found["status"]["history"]].count(f"main@sha1:{commit}") == 1


@pytest.mark.parametrize(
    "step",
    [f"{_APPLY}:after:FlagShard", f"{_APPLY}:before:FeatureFlagConfiguration"],
    ids=["after the first shard", "after the last shard"],
)
def test_a_set_whose_shards_are_half_written_is_served_as_it_was_and_then_whole(
    spare: Plane, spare_namespace: str, tmp_path: Path, step: str
) -> None:
    process = ControllerProcess(spare, tmp_path / "a", "--no-leader-election")
    with (
        spine_in(spare, spare_namespace, tmp_path) as spine,
        proxy(spare, tmp_path / "proxy") as delivering,
        run_replica(process),
    ):
        spine.wait_applied(spine.push(flags__json=many("before")))
        within(lambda: fetch_variants(delivering, spare_namespace) == ["before"] * 5_000)
        process.end(signal.SIGKILL)
        commit = spine.push(flags__json=many("after"))
        die_at(process, step)
        assert fetch_variants(delivering, spare_namespace) == ["before"] * 5_000
        process.start()
        spine.wait_applied(commit)
        within(lambda: fetch_variants(delivering, spare_namespace) == ["after"] * 5_000)


def die_at(process: ControllerProcess, step: str) -> None:
    """Run the controller until it is killed at the step."""
    command = process.command
    dying = [sys.executable, "-m", "tests.cluster.dying", step, *command[1:]]
    process.command = ["env", f"PYTHONPATH={ROOT}", *dying]
    process.start()
    assert process.wait() == -signal.SIGKILL
    process.command = command


def many(variant: str) -> str:
    """A set that is larger than an object may be."""
    shape = {"state": "ENABLED", "variants": {variant: "x" * 400}, "defaultVariant": variant}
    return json.dumps({"flags": {f"flag-{number:04}": shape for number in range(5_000)}})


def fetch_variants(delivering: ProxyProcess, namespace: str) -> list[str]:
    """The default variants of all flags that the proxy sends, of any set that it ever sends: never a part."""
    request = sync_pb2.FetchAllFlagsRequest(selector=f"{namespace}/flags")
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(delivering.target, options) as channel:
        stub: Any = sync_pb2_grpc.FlagSyncServiceStub(channel)
        message = stub.FetchAllFlags(request, timeout=60)
    return [each["defaultVariant"] for each in json.loads(message.flag_configuration)["flags"].values()]
