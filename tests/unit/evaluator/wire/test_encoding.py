from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given, settings
from hypothesis import strategies as st
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2 as v1
from openfeature.schemas.protobuf.sync.v1 import sync_service_pb2 as old

from evaluator.flags.merge import parse
from evaluator.flags.model import BUCKETING_KEY, DIGEST_KEY, REVISION_KEY, FlagSet, State
from evaluator.http.messages import Code, RpcError
from evaluator.resolving.resolution import FlagType
from evaluator.resolving.resolve import compile_flag_set, resolve
from evaluator.wire.sync_messages import METHODS, SyncMethod, encode, encode_metadata, read_selector
from tests.contract.generated_flags import contexts, definitions
from tests.worlds import evaluator as fakes
from tests.worlds.evaluator import flag, flag_set
from tests.worlds.flags import flag_set_of


def encode_and_parse(flags: FlagSet) -> Any:
    return json.loads(encode(flags))


def test_a_flag_has_flagds_fields_and_no_others() -> None:
    targeting = {"if": [True, "on"]}
    one = flag("a", {"on": True}, "on", targeting=targeting, metadata={"owner": "shop"})
    assert encode_and_parse(flag_set(one)) == {
        "flags": {
            "a": {
                "state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on", "targeting": targeting,
                "metadata": {"owner": "shop"},
            }
        }
    }  # fmt: skip


def test_what_a_flag_does_not_have_is_left_out_but_the_default_which_is_empty() -> None:
    bare = flag("a", {"on": True}, state=State.DISABLED)
    assert encode_and_parse(flag_set(bare))["flags"]["a"] == {
        "state": "DISABLED",
        "variants": {"on": True},
        "defaultVariant": "",
    }


def test_targeting_that_is_null_stays_so() -> None:
    assert (
        encode_and_parse(flag_set(flag("a", {"on": True}, targeting=None)))["flags"]["a"]["targeting"] is None
    )


def test_references_are_expanded_and_evaluators_not_sent() -> None:
    document = {
        "flags": {"a": {"state": "ENABLED", "variants": {"on": 1}, "targeting": {"$ref": "all"}}},
        "$evaluators": {"all": {"if": [{"$ref": "yes"}, "on"]}, "yes": {"==": [1, 1]}},
    }
    sent = encode_and_parse(flag_set_of(document))
    assert list(sent) == ["flags"]
    assert sent["flags"]["a"]["targeting"] == {"if": [{"==": [1, 1]}, "on"]}


def test_the_sets_metadata_is_under_each_flags_own() -> None:
    one = flag("a", {"on": 1}, metadata={"owner": "me"})
    sent = encode_and_parse(flag_set(one, flag("b", {"on": 1}), owner="us", flagSetId="shop"))
    assert sent["flags"]["a"]["metadata"] == {"owner": "me", "flagSetId": "shop"}
    assert sent["flags"]["b"]["metadata"] == {"owner": "us", "flagSetId": "shop"}
    assert "metadata" not in sent


def test_our_own_metadata_is_part_of_the_set_and_repeated_in_no_flag() -> None:
    ours = {REVISION_KEY: "main@sha1:1", DIGEST_KEY: "sha256:2", BUCKETING_KEY: "v3"}
    sent = encode_and_parse(flag_set(flag("a", {"on": 1}), **ours, flagSetId="shop"))
    assert sent["metadata"] == ours
    assert sent["flags"]["a"]["metadata"] == {"flagSetId": "shop"}


def test_a_rule_that_is_too_large_to_expand_spoils_its_own_flag_alone() -> None:
    doubled: dict[str, Any] = {
        f"e{number}": {"and": [{"$ref": f"e{number + 1}"}] * 2} for number in range(20)
    }
    flags = FlagSet(
        flags={"vast": flag("vast", {"on": 1}, targeting={"$ref": "e0"}), "fine": flag("fine", {"on": 1})},
        evaluators={**doubled, "e20": {"==": [1, 1]}},
    )
    back = compile_flag_set(flag_set_of(encode_and_parse(flags)))
    assert resolve(back, "vast", FlagType.INTEGER, {}, 0).error_code == "PARSE_ERROR"
    assert resolve(back, "fine", FlagType.INTEGER, {}, 0).error_code is None


@pytest.mark.parametrize(
    ("value", "spelled"),
    [(1.0, "1"), (0.5, "0.5"), (-0.0, "0"), (2**53 + 1, "9007199254740992"), ("é", '"é"')],
)
def test_values_are_spelled_as_flagd_spells_them(value: Any, spelled: str) -> None:
    assert f'"variants":{{"v":{spelled}}}'.encode() in encode(flag_set(flag("a", {"v": value})))


def test_the_same_content_has_the_same_bytes_whatever_its_order() -> None:
    document: dict[str, Any] = {
        "flags": {
            key: {"state": "ENABLED", "variants": {"x": {"p": 1, "q": 2}, "y": {}}} for key in ("b", "a")
        }
    }
    turned = json.loads(json.dumps(document, sort_keys=True))
    assert list(turned["flags"]) != list(document["flags"])
    assert encode(flag_set_of(document)) == encode(flag_set_of(turned))


def test_a_set_without_flags_says_so() -> None:
    assert encode(FlagSet()) == b'{"flags":{}}'


def outcome(flags: FlagSet, key: str, context: Any) -> Any:
    compiled = compile_flag_set(flags)
    return [
        (one.value, one.variant, one.reason, one.error_code, dict(one.metadata))
        for one in (resolve(compiled, key, kind, context, 1_700_000_000) for kind in FlagType)
    ]


@settings(max_examples=60, deadline=None)
@given(definitions(), contexts, st.sampled_from([{}, {BUCKETING_KEY: "v3"}]))
def test_a_set_read_back_gives_the_same_answers(
    document: Any, context: tuple[Any, Any], ours: dict[str, str]
) -> None:
    flags = flag_set_of(document)
    flags = FlagSet(flags.flags, flags.evaluators, MappingProxyType({**flags.metadata, **ours}))
    parsed = parse(encode(flags), file="flags.json")
    key, attributes = context
    given_context = {**attributes, "targetingKey": key}
    assert not [each for each in parsed.problems if each.severity == "error"]
    assert parsed.flag_set.flags.keys() == flags.flags.keys()
    for name in flags.flags:
        assert outcome(parsed.flag_set, name, given_context) == outcome(flags, name, given_context)
    assert encode(parsed.flag_set) == encode(flags)


def test_every_kind_of_flag_survives() -> None:
    flags = flag_set(*fakes.ALL, flagSetId="shop")
    assert encode(parse(encode(flags), file="flags.json").flag_set) == encode(flags)


FLAGS = '{"flags":{"é":{}}}'
CONTEXT = {"region": "eu", "n": 1.5}
REQUESTS: dict[str, Any] = {
    "/flagd.sync.v1.FlagSyncService/SyncFlags": v1.SyncFlagsRequest,
    "/flagd.sync.v1.FlagSyncService/FetchAllFlags": v1.FetchAllFlagsRequest,
    "/sync.v1.FlagSyncService/SyncFlags": old.SyncFlagsRequest,
    "/sync.v1.FlagSyncService/FetchAllFlags": old.FetchAllFlagsRequest,
}
RESPONSES: dict[str, Any] = {
    "/flagd.sync.v1.FlagSyncService/SyncFlags": (v1.SyncFlagsResponse, {"syncContext": CONTEXT}),
    "/flagd.sync.v1.FlagSyncService/FetchAllFlags": (v1.FetchAllFlagsResponse, {}),
    "/sync.v1.FlagSyncService/SyncFlags": (old.SyncFlagsResponse, {"state": "SYNC_STATE_ALL"}),
    "/sync.v1.FlagSyncService/FetchAllFlags": (old.FetchAllFlagsResponse, {}),
}
each_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)


@each_method
def test_a_request_has_a_selector(method: SyncMethod) -> None:
    message = REQUESTS[method.path](provider_id="me", selector="source=x").SerializeToString()
    assert read_selector(message) == "source=x"


def test_a_malformed_request_is_refused() -> None:
    with pytest.raises(RpcError) as refused:
        read_selector(b"\xff\xff")
    assert refused.value.code is Code.INVALID_ARGUMENT


@each_method
def test_a_message_is_what_the_published_stubs_read(method: SyncMethod) -> None:
    kind, beside = RESPONSES[method.path]
    read = kind.FromString(method.write(FLAGS.encode(), CONTEXT))
    assert MessageToDict(read) == {"flagConfiguration": FLAGS, **beside}


def test_the_context_is_there_even_if_empty() -> None:
    message = METHODS[0].write(FLAGS.encode(), {})
    assert v1.SyncFlagsResponse.FromString(message).HasField("sync_context")
    assert v1.GetMetadataResponse.FromString(encode_metadata({})).HasField("metadata")


def test_metadata_is_the_context() -> None:
    read = v1.GetMetadataResponse.FromString(encode_metadata(CONTEXT))
    assert MessageToDict(read) == {"metadata": CONTEXT}
