from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest
from google.protobuf.json_format import MessageToDict
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2 as v2
from openfeature.schemas.protobuf.schema.v1 import schema_pb2 as schema_v1

from evaluator.http.messages import Code, RpcError
from evaluator.server.context import ContextSources
from evaluator.server.evaluation import METHODS, CodecEndpoints, routes
from evaluator.server.event_stream import EventStreams
from tests.stores import swap
from tests.worlds import evaluator as fakes
from tests.worlds.evaluator import World, answer_of, call, flag, flag_set, world

if TYPE_CHECKING:
    from evaluator.http.routes import Routes

PB: dict[str, Any] = {"v1": v1, "v2": v2}
KINDS = {"Boolean": True, "String": "alpha", "Int": 10, "Float": 0.5, "Object": None}


def ask(
    served: World,
    version: str,
    kind: str,
    key: str,
    context: dict[str, Any] | None = None,
    headers: tuple[tuple[str, str], ...] = (),
) -> Any:
    request = getattr(PB[version], f"Resolve{kind}Request")(flag_key=key)
    request.context.update(context or {})
    answer = served.evaluation.unary(version, METHODS[f"Resolve{kind}"])
    message = answer(call(headers), request.SerializeToString())
    return getattr(PB[version], f"Resolve{kind}Response").FromString(message)


def routes_of(served: World) -> Routes:
    events = EventStreams(served.store, fakes.FakeTimers(), fakes.unhurried_queue(), run=fakes.in_place)
    return routes(CodecEndpoints(served.evaluation, events), CodecEndpoints(served.json, events))


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize(
    ("kind", "key", "value", "variant"),
    [
        ("Boolean", "boolean", True, "on"),
        ("String", "string", "alpha", "a"),
        ("Int", "integer", 10, "ten"),
        ("Float", "float", 0.5, "half"),
    ],
)
def test_a_flag_of_each_type_is_answered(version: str, kind: str, key: str, value: Any, variant: str) -> None:
    response = ask(world(*fakes.ALL), version, kind, key)
    assert (response.value, response.variant, response.reason) == (value, variant, "STATIC")


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_an_object_is_answered_with_all_that_is_in_it(version: str) -> None:
    response = ask(world(*fakes.ALL), version, "Object", "object")
    assert MessageToDict(response.value) == {"a": [1.0, {"b": None}], "c": "x"}


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_targeting_reads_the_context_of_the_request(version: str) -> None:
    served = world(*fakes.ALL)
    gold = ask(served, version, "String", "targeted", {"tier": "gold"})
    other = ask(served, version, "String", "targeted", {"tier": "tin"})
    assert (gold.value, gold.reason) == ("y", "TARGETING_MATCH")
    assert (other.value, other.reason) == ("n", "DEFAULT")


def test_metadata_of_set_and_flag_travels_with_the_answer() -> None:
    served = world(fakes.BOOLEAN, flagSetId="shop")
    response = ask(served, "v2", "Boolean", "boolean")
    assert MessageToDict(response.metadata) == {"flagSetId": "shop", "owner": "shop"}


@pytest.mark.parametrize(("key", "reason"), [("no/default", "DEFAULT"), ("disabled", "DISABLED")])
def test_v2_leaves_value_and_variant_unset_where_the_code_default_counts(key: str, reason: str) -> None:
    response = ask(world(*fakes.ALL), "v2", "Boolean", key)
    assert response.reason == reason
    assert not response.HasField("value")
    assert not response.HasField("variant")


def test_v1_answers_a_disabled_flag_with_zero_values() -> None:
    response = ask(world(*fakes.ALL), "v1", "Boolean", "disabled")
    assert (response.value, response.variant, response.reason) == (False, "", "DISABLED")


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize(
    ("kind", "key", "code", "message"),
    [
        ("Boolean", "missing", Code.NOT_FOUND, "Flag not found"),
        ("String", "boolean", Code.INVALID_ARGUMENT, "Type mismatch error"),
        ("Boolean", "broken", Code.DATA_LOSS, "Error parsing input or configuration"),
        ("Boolean", "gone-variant", Code.UNKNOWN, "General error"),
    ],
)
def test_each_error_has_flagds_status_and_text(
    version: str, kind: str, key: str, code: Code, message: str
) -> None:
    with pytest.raises(RpcError) as caught:
        ask(world(*fakes.ALL), version, kind, key)
    assert (caught.value.code, caught.value.message) == (code, message)


def test_v1_calls_a_flag_without_default_not_found() -> None:
    with pytest.raises(RpcError) as caught:
        ask(world(*fakes.ALL), "v1", "Boolean", "no/default")
    assert caught.value.code is Code.NOT_FOUND


def test_while_nothing_is_known_a_call_is_unavailable_and_no_flag_is_missing() -> None:
    with pytest.raises(RpcError, match="no flags are known yet") as single:
        ask(world(), "v2", "Boolean", "boolean")
    with pytest.raises(RpcError, match="no flags are known yet") as every:
        bulk(world())
    assert single.value.code is every.value.code is Code.UNAVAILABLE


def test_a_set_that_is_known_to_be_empty_has_no_such_flag() -> None:
    with pytest.raises(RpcError) as caught:
        ask(world(flagSetId="empty"), "v2", "Boolean", "boolean")
    assert caught.value.code is Code.NOT_FOUND


def test_bytes_that_are_no_request_are_an_invalid_argument() -> None:
    answer = world(*fakes.ALL).evaluation.unary("v2", METHODS["ResolveBoolean"])
    with pytest.raises(RpcError) as caught:
        answer(call(), b"\x0a\xff")
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("flagSetId=shop", True), ("flagSetId=bank", False), ("flagSetId=", False),
        ("source=flags.json", True), ("flags.json", True), ("source=other.json", False), ("", True),
    ],
)  # fmt: skip
def test_a_selector_selects_the_set_or_nothing(selector: str, found: bool) -> None:
    served = world(fakes.BOOLEAN, flagSetId="shop")
    headers = (("flagd-selector", selector),)
    if found:
        assert ask(served, "v2", "Boolean", "boolean", headers=headers).value is True
        return
    with pytest.raises(RpcError) as caught:
        ask(served, "v2", "Boolean", "boolean", headers=headers)
    assert caught.value.code is Code.NOT_FOUND


def test_an_unknown_selector_key_is_refused_in_flagds_words() -> None:
    with pytest.raises(RpcError) as caught:
        ask(world(fakes.BOOLEAN), "v2", "Boolean", "boolean", headers=(("flagd-selector", "x=y"),))
    expected = 'invalid selector key "x", valid keys: "flagSetId", "source"'
    assert (caught.value.code, caught.value.message) == (Code.INVALID_ARGUMENT, expected)


def test_a_header_wins_over_a_fixed_value_which_wins_over_the_request() -> None:
    sources = ContextSources({"tier": "gold"}, {"x-tier": "tier"})
    served = world(fakes.TARGETED, sources=sources)
    fixed = ask(served, "v2", "String", "targeted", {"tier": "tin"})
    mapped = ask(served, "v2", "String", "targeted", headers=(("x-tier", "tin"),))
    assert (fixed.value, mapped.value) == ("y", "n")


def test_a_swap_is_seen_by_the_next_request_and_leaves_no_old_answer() -> None:
    served = world(flag("f", {"on": True, "off": False}, "on"))
    assert ask(served, "v2", "Boolean", "f").value is True
    swap(served.store, flag_set(flag("f", {"on": True, "off": False}, "off")), now=fakes.NOW)
    assert ask(served, "v2", "Boolean", "f").value is False


def bulk(served: World, headers: tuple[tuple[str, str], ...] = ()) -> Any:
    message = served.evaluation.resolve_all(call(headers), v1.ResolveAllRequest().SerializeToString())
    return v1.ResolveAllResponse.FromString(answer_of(message))


def test_bulk_omits_flags_whose_type_no_default_shows() -> None:
    keys = set(bulk(world(*fakes.ALL)).flags)
    assert keys == {one.key for one in fakes.ALL} - {"no/default"}


def test_bulk_answers_each_flag_by_its_type() -> None:
    served = world(*fakes.ALL)
    for _ in range(2):
        flags = bulk(served).flags
        assert flags["boolean"].bool_value is True
        assert flags["string"].string_value == "alpha"
        assert flags["integer"].double_value == 10
        assert flags["float"].double_value == 0.5
        assert MessageToDict(flags["object"].object_value)["c"] == "x"


def test_bulk_gives_a_failing_flag_its_reason_and_a_zero_value() -> None:
    entry = bulk(world(*fakes.ALL)).flags["broken"]
    assert (entry.reason, entry.bool_value, entry.variant) == ("ERROR", False, "")


@pytest.mark.parametrize(
    ("default", "other"),
    [(True, {"k": 1}), (True, 1), (1, True), (1.5, "text"), ("text", False), ({"k": 1}, "text")],
    ids=str,
)
def test_a_variant_of_another_type_is_an_error_beside_the_other_flags(default: Any, other: Any) -> None:
    crossed = flag("crossed", {"d": default, "o": other}, "d", targeting={"if": [True, "o"]})
    served = world(crossed, fakes.STRING)
    for _ in range(2):
        flags = bulk(served).flags
        assert (flags["crossed"].reason, flags["crossed"].variant) == ("ERROR", "")
        assert flags["string"].string_value == "alpha"
        answer = orjson.loads(answer_of(served.json.resolve_all(call(), b"{}")))["flags"]
        assert (answer["crossed"]["reason"], answer["string"]["stringValue"]) == ("ERROR", "alpha")


@pytest.mark.parametrize(("version", "there"), [("v1", True), ("v2", False)])
def test_v1_answers_a_disabled_object_flag_with_an_empty_object(version: str, there: bool) -> None:
    served = world(*fakes.ALL)
    assert ask(served, version, "Object", "disabled").HasField("value") is there
    asked = served.json.unary(version, METHODS["ResolveObject"])(call(), b'{"flagKey":"disabled"}')
    assert orjson.loads(answer_of(asked)).get("value") == ({} if there else None)


def test_bulk_reflects_the_selector_and_is_empty_where_it_selects_nothing() -> None:
    response = bulk(world(fakes.BOOLEAN), (("flagd-selector", "flagSetId=bank"),))
    assert not response.flags
    assert MessageToDict(response.metadata) == {"flagSetId": "bank"}


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def test_an_object_deeper_than_protobuf_goes_is_an_error_of_its_own() -> None:
    served = world(fakes.STRING, flag("deep", {"d": deep(200)}, "d"))
    with pytest.raises(RpcError) as caught:
        ask(served, "v2", "Object", "deep")
    assert caught.value.code is Code.DATA_LOSS
    assert set(bulk(served).flags) == {"string"}


def test_bytes_that_are_no_bulk_request_are_an_invalid_argument() -> None:
    with pytest.raises(RpcError) as caught:
        world(*fakes.ALL).evaluation.resolve_all(call(), b"\x0a\xff")
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_every_service_is_routed_in_both_formats_and_only_v1s_have_bulk() -> None:
    table = routes_of(world())
    assert {path.rsplit("/", 1)[0] for path in table.unary if path.endswith("ResolveAll")} == {
        "/flagd.evaluation.v1.Service",
        "/schema.v1.Service",
    }
    assert len(table.unary) == 3 * 5 + 2
    assert table.unary.keys() == table.json_unary.keys() == table.idempotent
    assert len(table.streams) == 3
    assert table.streams.keys() == table.json_streams.keys()


@pytest.mark.parametrize(("kind", "expected"), KINDS.items())
def test_the_deprecated_service_reads_v1s_answers(kind: str, expected: Any) -> None:
    served = world(*fakes.ALL)
    key = {"Int": "integer"}.get(kind, kind.lower())
    message = getattr(schema_v1, f"Resolve{kind}Request")(flag_key=key).SerializeToString()
    response = getattr(schema_v1, f"Resolve{kind}Response").FromString(
        routes_of(served).unary[f"/schema.v1.Service/Resolve{kind}"](call(), message)
    )
    assert response.reason == "STATIC"
    assert expected is None or response.value == expected


def test_the_deprecated_service_reads_v1s_bulk_without_its_metadata() -> None:
    message = routes_of(world(fakes.BOOLEAN)).unary["/schema.v1.Service/ResolveAll"](call(), b"")
    flags = schema_v1.ResolveAllResponse.FromString(answer_of(message)).flags
    assert {key: flag.bool_value for key, flag in flags.items()} == {"boolean": True}
