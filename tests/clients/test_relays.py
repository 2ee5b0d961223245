"""A tree of three levels: an evaluator that follows a file, relays that follow it, and a relay of a relay."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from tests.clients.evaluator import Evaluator, evaluator
from tests.clients.upstreams import replace

if TYPE_CHECKING:
    from pathlib import Path


def document(number: int, flags: int) -> str:
    one = {"state": "ENABLED", "variants": {"v": number}, "defaultVariant": "v"}
    return json.dumps({"flags": {f"flag-{each}": one for each in range(flags)}})


def number_of(message: Any) -> set[int]:
    flags = json.loads(message.flag_configuration)["flags"]
    return {flag["variants"]["v"] for flag in flags.values()}


@pytest.mark.parametrize("flags", [3, 2_000])
def test_a_change_reaches_the_leaves_of_three_levels_and_a_lost_relay_costs_them_no_flag(
    tmp_path: Path, flags: int
) -> None:
    file = tmp_path / "flags.json"
    replace(file, document(1, flags))

    def follows(upstream: dict[str, Any]) -> list[str]:
        return ["--uri", f"grpc://127.0.0.1:{upstream['sync']}"]

    with contextlib.ExitStack() as stack:

        def start(*words: str) -> Evaluator:
            return stack.enter_context(evaluator(*words, cwd=tmp_path))

        root = start("--uri", f"file:{file}")
        relay = start(*follows(root.next_event("listening")))
        leaf = start(*follows(relay.next_event("listening")))
        address = f"127.0.0.1:{leaf.next_event('listening')['sync']}"
        stub: Any = sync_pb2_grpc.FlagSyncServiceStub(stack.enter_context(grpc.insecure_channel(address)))
        stream = stub.SyncFlags(sync_pb2.SyncFlagsRequest(), timeout=60)
        assert number_of(next(stream)) == {1}
        replace(file, document(2, flags))
        assert number_of(next(stream)) == {2}
        relay.stop()
        fetched = stub.FetchAllFlags(sync_pb2.FetchAllFlagsRequest(), timeout=60)
        assert number_of(fetched) == {2}
        stream.cancel()
