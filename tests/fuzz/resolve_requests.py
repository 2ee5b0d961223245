"""Requests of flagd.evaluation in protobuf: our reader, protobuf at once and protobuf in steps agree."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from evaluator.http.deferred import at_once
from evaluator.http.messages import RpcError
from evaluator.server import protobuf
from evaluator.wire import evaluation_v1_pb2 as v1
from evaluator.wire.resolve_request import read_usual
from tests.fuzz.target import Target, Wrong, same


def resolve(content: bytes) -> None:
    """What our reader reads is what protobuf reads, and what protobuf refuses it does not read."""
    usual = read_usual(content)
    try:
        request = v1.ResolveRequest.FromString(content)
        context = protobuf.plain(request.context)
    except (DecodeError, RpcError) as error:
        if usual is not None:
            raise Wrong(f"protobuf refuses what was read: {usual!r}") from error
        return
    same(repr(at_once(protobuf.plain_in_steps(request.context))), repr(context), "read in steps")
    if usual is not None:
        expected = request.flag_key, repr(sorted(context.items()))
        same((usual[0], repr(sorted(usual[1].items()))), expected, "read by ourselves")


TARGETS = {
    "resolve": Target(
        resolve,
        (
            "\n\bboolean",
            "\x12\x0f",
            "\n\x0d\n\x04tier\x12\x05\x1a\x03gol",
            "\x12\t\x11",
            "\x12\x02 \x01",
            "\x12\x02\x08\0",
        ),
        1_024,
    )
}
