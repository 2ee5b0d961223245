"""Flag documents, wherever they come from: files, sync messages, the last good set on disk."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from evaluator.flags import saved
from evaluator.flags.canonical import canonical, digest
from evaluator.flags.diff import diff
from evaluator.flags.document import read_document
from evaluator.flags.merge import parse
from evaluator.flags.model import Bucketing, FlagSet
from evaluator.http.messages import RpcError
from evaluator.resolving.explain import explain
from evaluator.resolving.resolve import compile_flag_set, resolve
from evaluator.sync.follower import Accepted, accept
from evaluator.sync.grpc_source import delivery_of
from evaluator.sync.source import Delivery, SourceFault, fingerprint
from evaluator.wire import sync_pb2
from evaluator.wire.sync_messages import encode, read_selector
from tests.fuzz.target import Target, Wrong, same

if TYPE_CHECKING:
    from evaluator.flags.merge import Parsed

NOW = 1_700_000_000
CONTEXTS: tuple[dict[str, Any], ...] = (
    {},
    {"targetingKey": "user-1", "tier": "gold", "age": 7, "v": "1.2.3", "list": [1, "a", None]},
)

WORDS = (
    '{"flags":{', '"state":"ENABLED"', '"DISABLED"', '"variants":{', '"on":true', '"off":false',
    '"defaultVariant":"on"', '"targeting":{', '"metadata":{', '"$evaluators":{', '{"$ref":"shared"}',
    '"flagSetId"', '"if":[', '"var":', '"fractional":[', '"sem_ver":[', '"starts_with":[', '"ends_with":[',
    '"in":[', '"==":[', '"<":[', '"and":[', '"cat":[', '"map":[', '"reduce":[', '"filter":[', '"substr":[',
    '"missing":[', '"$flagd.timestamp"', '"targetingKey"', '"version"', "null", "1e400", "-0.0",
    "9007199254740993", '"\\ud800"',
)  # fmt: skip
YAML_WORDS = (
    "flags:\n", "  flag:\n", "    state: ENABLED\n", "    variants: {on: true, off: false}\n",
    "    defaultVariant: on\n", "    targeting:\n", "&anchor ", "*anchor", "<<: ", "!!str ", "!!binary ",
    "|\n", ">-\n", "---\n", "...\n", "%YAML 1.2\n", "? ", "- ", "# ", "0o17", "0x1F", ".inf", "~",
)  # fmt: skip


def document(content: bytes, *, file: str) -> None:
    """A document never fails to be read; what is read of it has one spelling, and no rule fails but as an
    answer.
    """
    parsed = parse(content, file=file)
    places(parsed, content)
    if parsed.whole_bad and not parsed.problems:
        raise Wrong("nothing is said of what is wrong")
    again = round_trip(parsed.flag_set, "of a document")
    same(answers(again), answers(parsed.flag_set), "answers after a round trip")
    check_explanation(parsed.flag_set)


def json_document(content: bytes) -> None:
    """As `document`; and as YAML, it is refused or the same, since YAML 1.2 has JSON within it."""
    document(content, file="flags.json")
    read, other = (read_document(content, file=f"flags.{kind}") for kind in ("json", "yaml"))
    if not read.problems and not other.problems:
        same(json.dumps(other.value), json.dumps(read.value), "the JSON, read as YAML")


def places(parsed: Parsed, content: bytes) -> None:
    """Problems are in order and lie within the text."""
    lines = content.count(b"\n") + 1
    for problem in parsed.problems:
        if not 0 <= problem.line <= lines or problem.column < 0 or not str(problem).isprintable():
            raise Wrong(f"a problem in no place: {problem!r}")


def round_trip(flag_set: FlagSet, what: str) -> FlagSet:
    """The set after a round trip through its canonical form, which loses nothing."""
    text = canonical(flag_set, provenance=True)
    parsed = parse(text, file="again.json")
    same(parsed.errors, (), f"the canonical form {what} has errors")
    same(canonical(parsed.flag_set, provenance=True), text, f"the canonical form {what}, again")
    same(digest(parsed.flag_set), digest(flag_set), f"the digest {what}")
    if difference := diff(flag_set, parsed.flag_set):
        raise Wrong(f"the canonical form {what} differs: {difference}")
    return parsed.flag_set


def answers(flag_set: FlagSet) -> list[dict[str, tuple[object, ...]]]:
    """Of all flags in each context, by either generation of bucketing: value, variant, reason, error,
    metadata.
    """
    return [
        {
            key: (found.value, found.variant, found.reason, found.error_code, dict(found.metadata))
            for key in flags.keys_in_order
            for found in (resolve(flags, key, None, context, NOW),)
        }
        for flags in (compile_flag_set(flag_set, bucketing=bucketing) for bucketing in Bucketing)
        for context in CONTEXTS
    ]


def check_explanation(flag_set: FlagSet) -> None:
    """An explanation has the answer that it explains."""
    compiled = compile_flag_set(flag_set, bucketing=Bucketing.V2)
    for key in flag_set.flags:
        found = explain(compiled, key, None, dict(CONTEXTS[1]), NOW)
        for step in found.steps:
            json.dumps(step.document())


def last_good(content: bytes) -> None:
    """A file on disk is what was saved, or it is damaged."""
    try:
        found = saved.decode(content)
    except ValueError:
        return
    again = saved.decode(saved.encode(found))
    same((again.saved_at, again.context), (found.saved_at, found.context), "what was saved")
    same(canonical(again.flag_set), canonical(found.flag_set), "the set that was saved")


def delivery(content: bytes) -> None:
    """A delivery is taken or refused; taken, it says the same to those that it is sent on to."""
    delivered = Delivery((("flags.json", content),))
    judged = accept(delivered, None)
    if isinstance(judged, Accepted):
        check_relay(judged.flag_set)
        accept(Delivery((("flags.json", content[: len(content) // 2]),)), judged.flag_set)
    elif not judged.cause:
        raise Wrong("refused without a cause")


def check_relay(flag_set: FlagSet) -> None:
    """What in-process providers and other evaluators are sent resolves as it does here, and is sent on
    unchanged.
    """
    sent = encode(flag_set)
    judged = accept(Delivery((("flags.json", sent),)), None)
    if not isinstance(judged, Accepted):
        raise Wrong(f"what is sent is refused: {judged.cause}")
    same(set(judged.flag_set.flags), set(flag_set.flags), "the flags that are sent")
    same(encode(judged.flag_set), sent, "what is sent on")
    same(plain(judged.flag_set), plain(flag_set), "answers by what is sent")


def plain(flag_set: FlagSet) -> list[dict[str, tuple[object, ...]]]:
    """Answers as far as every receiver sees them: set metadata is each flag's own by then."""
    return [{key: each[:4] for key, each in found.items()} for found in answers(flag_set)]


def sync_message(content: bytes) -> None:
    """What a sync peer sends, either way round."""
    with contextlib.suppress(RpcError):
        read_selector(content)
    try:
        message = sync_pb2.SyncFlagsResponse.FromString(content)
    except DecodeError:
        return
    try:
        received = delivery_of("peer", message)
    except SourceFault:
        return
    fingerprint(received)
    judged = accept(received, None)
    if isinstance(judged, Accepted):
        check_relay(judged.flag_set)


TARGETS = {
    "json": Target(json_document, WORDS),
    "yaml": Target(partial(document, file="flags.yaml"), (*YAML_WORDS, *WORDS), 2_048),
    "last_good": Target(last_good, WORDS),
    "delivery": Target(delivery, WORDS),
    "sync_message": Target(sync_message, WORDS),
}
