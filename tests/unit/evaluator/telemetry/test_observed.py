"""An evaluator on real ports, with a collector."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

from evaluator.resolve import resolve
from evaluator.settings import InvalidSettingError, OtelSettings, Settings
from evaluator.store import Store
from evaluator.telemetry.observed import Observed
from evaluator.wiring import serve
from tests.unit.evaluator.server import fakes
from tests.unit.evaluator.server.fakes import NOW

from .receiver import Receiver, attributes

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    opened = Receiver()
    yield opened
    opened.close()


def settings(**more: object) -> Settings:
    ports = dict.fromkeys(("port", "management_port", "sync_port", "ofrep_port"), 0)
    return Settings(host="127.0.0.1", **ports, **more)  # type: ignore[arg-type]  # of several types


def post(port: int, key: str) -> bytes:
    url = f"http://127.0.0.1:{port}/ofrep/v1/evaluate/flags/{key}"
    with urllib.request.urlopen(url, data=b"{}", timeout=20) as answer:
        return bytes(answer.read())


async def test_what_was_asked_before_the_end_is_with_the_collector_after_it(
    receiver: Receiver,
) -> None:
    store = Store()
    store.swap(fakes.flag_set(fakes.BOOLEAN), now=NOW)
    otel = OtelSettings(collector_uri=receiver.address)
    serving = await serve(store, settings(otel=otel, metrics_exporter="otel"))
    await asyncio.to_thread(post, serving.ports.ofrep, "boolean")
    await serving.stop()
    assert [attributes(span)["feature_flag.key"] for _, span in receiver.spans] == ["boolean"]
    (point,) = receiver.metrics[-1]["feature_flag.flagd.impression"].sum.data_points
    assert point.as_int == 1


def test_without_a_collector_nothing_stands_between_a_request_and_resolving() -> None:
    assert Observed(Store(), settings(), lambda: NOW).resolver is resolve


async def test_a_collector_that_cannot_be_served_opens_no_port() -> None:
    otel = OtelSettings(collector_uri="localhost:1", protocol="http/protobuf")
    with pytest.raises(InvalidSettingError, match="by gRPC only"):
        await serve(Store(), settings(otel=otel))


def test_nothing_of_the_sdk_is_imported_where_none_is_asked_for() -> None:
    program = "import sys, evaluator.wiring; print({'opentelemetry', 'grpc'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"set()\n"
