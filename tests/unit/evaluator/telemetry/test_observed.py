"""An evaluator on real ports, with a collector."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.request
from typing import Any

import grpc
import pytest
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2_grpc as sync_grpc

from evaluator.settings import InvalidSettingError, OtelSettings, Settings
from evaluator.store.store import Store
from evaluator.telemetry.observed import Observed
from evaluator.wiring import serve
from tests.rollout_sets import NEW, rolled_out
from tests.stores import swap
from tests.unit.evaluator.telemetry.receiver import Receiver, attributes
from tests.worlds import evaluator as fakes
from tests.worlds.evaluator import NOW

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = (("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01"),)


def settings(**more: object) -> Settings:
    ports = dict.fromkeys(("port", "management_port", "sync_port", "ofrep_port"), 0)
    return Settings(host="127.0.0.1", **ports, **more)  # type: ignore[arg-type]  # of several types


def post(port: int, key: str) -> bytes:
    url = f"http://127.0.0.1:{port}/ofrep/v1/evaluate/flags/{key}"
    with urllib.request.urlopen(url, data=b"{}", timeout=20) as answer:
        return bytes(answer.read())


async def test_what_was_asked_before_the_end_is_with_the_collector_after_it(receiver: Receiver) -> None:
    store = Store()
    swap(store, fakes.flag_set(fakes.BOOLEAN), now=NOW)
    otel = OtelSettings(collector_uri=receiver.address)
    serving = await serve(store, settings(otel=otel, metrics_exporter="otel"))
    await asyncio.to_thread(post, serving.ports.ofrep, "boolean")
    await serving.stop()
    assert [attributes(span)["feature_flag.key"] for _, span in receiver.spans] == ["boolean"]
    (point,) = receiver.metrics[-1]["feature_flag.flagd.impression"].sum.data_points
    assert point.as_int == 1


async def test_what_is_counted_by_arm_has_the_names_of_opentelemetry(receiver: Receiver) -> None:
    store = Store()
    swap(store, rolled_out(100), now=NOW)
    otel = OtelSettings(collector_uri=receiver.address)
    serving = await serve(store, settings(otel=otel, metrics_exporter="otel"))
    await asyncio.to_thread(post, serving.ports.ofrep, NEW.key)
    await serving.stop()
    (point,) = receiver.metrics[-1]["feature_flag.evaluations"].sum.data_points
    counted = attributes(point)
    assert (point.as_int, counted["arm"], counted["feature_flag.result.variant"]) == (1, "excluded", "off")
    assert counted["feature_flag.result.reason"] == "TARGETING_MATCH"


async def sync(port: int) -> None:
    """One call of each method, the stream cancelled after its first message."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = sync_grpc.FlagSyncServiceStub(channel)
        stream = stub.SyncFlags(sync_pb2.SyncFlagsRequest(), metadata=PARENT)
        await stream.read()
        stream.cancel()
        await stub.FetchAllFlags(sync_pb2.FetchAllFlagsRequest())
        await stub.GetMetadata(sync_pb2.GetMetadataRequest())


async def test_the_sync_port_has_flagds_spans_and_metrics(receiver: Receiver) -> None:
    store = Store(sources=("repo",))
    otel = OtelSettings(collector_uri=receiver.address)
    serving = await serve(store, settings(otel=otel, metrics_exporter="otel"))
    for _ in range(2):
        swap(store, fakes.flag_set(fakes.BOOLEAN), now=NOW)
    await sync(serving.ports.sync)
    await serving.stop()
    spans = {span.name.rpartition("/")[2]: (scope, span) for scope, span in receiver.spans}
    assert len(spans) == len(receiver.spans) == 4
    scope, new = spans["flagSync"]
    assert (scope, attributes(new)) == ("jsonEvaluator", {"feature_flag.source": "repo"})
    codes = {name: attributes(span).get("rpc.grpc.status_code") for name, (_, span) in spans.items()}
    assert codes == {"flagSync": None, "SyncFlags": 1, "FetchAllFlags": 0, "GetMetadata": 0}
    assert spans["SyncFlags"][1].trace_id.hex() == TRACE
    duration = receiver.metrics[-1]["rpc.server.duration"]
    assert (duration.unit, len(duration.histogram.data_points)) == ("ms", 3)


def test_without_a_collector_evaluations_are_only_counted() -> None:
    observed = Observed(Store(), settings(), lambda: NOW)
    assert observed.observers == [observed.metrics.count]


async def test_a_collector_that_cannot_be_served_opens_no_port() -> None:
    otel = OtelSettings(collector_uri="localhost:1", protocol="http/protobuf")
    with pytest.raises(InvalidSettingError, match="by gRPC only"):
        await serve(Store(), settings(otel=otel))


def test_nothing_of_the_sdk_is_imported_where_none_is_asked_for() -> None:
    program = "import sys, evaluator.wiring; print({'opentelemetry', 'grpc'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"set()\n"
