from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1

from evaluator.http.deferred import Deferred
from evaluator.http.messages import Headers, Request, Response, header
from evaluator.server.evaluate_flags import PREFIX, Ofrep, matches, read_context, routes
from tests.stores import swap
from tests.worlds import evaluator as fakes
from tests.worlds.evaluator import NOW, World, answer_of, call, flag, flag_set, world

ANY_KEYS = [f"flag-{number}" for number in range(3)]


def post(
    served: World, key: str | None, body: Any = b"", headers: Headers = (), query: str = ""
) -> tuple[Response, Any]:
    encoded = body if isinstance(body, bytes) else orjson.dumps(body)
    path = PREFIX if key is None else f"{PREFIX}/{key}"
    request = Request("POST", path, query, headers, encoded, "127.0.0.1:1")
    response = answer_of((served.ofrep.bulk if key is None else served.ofrep.single)(request))
    return response, orjson.loads(response.body) if response.body else None


def etag(response: Response) -> str:
    found = header(response.headers, "etag")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("boolean", {"value": True, "variant": "on", "reason": "STATIC", "metadata": {"owner": "shop"}}),
        ("string", {"value": "alpha", "variant": "a", "reason": "STATIC", "metadata": {}}),
        ("integer", {"value": 10, "variant": "ten", "reason": "STATIC", "metadata": {}}),
        ("float", {"value": 0.5, "variant": "half", "reason": "STATIC", "metadata": {}}),
        ("no/default", {"reason": "DEFAULT", "variant": "", "metadata": {}}),
        ("disabled", {"reason": "DISABLED", "variant": "", "metadata": {}}),
        ("targeted", {"value": "n", "variant": "no", "reason": "DEFAULT", "metadata": {}}),
    ],
)  # fmt: skip
def test_a_single_answer_has_flagds_shape(key: str, expected: dict[str, Any]) -> None:
    response, body = post(world(*fakes.ALL), key)
    assert response.status == 200
    assert header(response.headers, "content-type") == "application/json"
    assert body == {"key": key, **expected}


@pytest.mark.parametrize(
    ("variants", "written"),
    [
        ({"now": 0, "other": 10}, b"0"),
        ({"now": 0, "other": 0.5}, b"0.0"),
        ({"now": 3, "other": 0.5}, b"3.0"),
        ({"now": 0.5, "other": 1}, b"0.5"),
        ({"now": False, "other": 0.5}, b"false"),
        ({"now": [0], "other": 0.5}, b"[0]"),
    ],
)
def test_a_whole_number_is_written_as_a_float_where_another_variant_has_a_fraction(
    variants: dict[str, Any], written: bytes
) -> None:
    response, _ = post(world(fakes.flag("number", variants, "now")), "number")
    assert b'"value":%b,' % written in response.body


@pytest.mark.parametrize(
    ("key", "status", "code", "details"),
    [
        ("missing", 404, "FLAG_NOT_FOUND", "flag `missing` does not exist"),
        ("broken", 400, "PARSE_ERROR", "error parsing the flag `broken`"),
        ("gone-variant", 400, "GENERAL", "error processing the flag for evaluation"),
    ],
)
def test_each_error_has_flagds_status_and_body(key: str, status: int, code: str, details: str) -> None:
    response, body = post(world(*fakes.ALL), key)
    assert response.status == status
    assert body == {"key": key, "errorCode": code, "errorDetails": details, "metadata": {}}


DEEP = b'{"context":{"a":' + b"[" * 5000 + b"]" * 5000 + b"}}"
WITHIN_ORJSON = b'{"context":{"a":' + b"[" * 300 + b"]" * 300 + b"}}"


@pytest.mark.parametrize(
    "body",
    [b"{", b"\xff", b"[1]", b"3", b'"x"', b'{"context":{"a":NaN}}', DEEP, WITHIN_ORJSON],
    ids=["cut", "no UTF-8", "array", "number", "string", "NaN", "too deep", "deep"],
)
@pytest.mark.parametrize("key", ["boolean", None], ids=["single", "bulk"])
def test_a_body_that_is_no_object_is_an_invalid_context(key: str | None, body: bytes) -> None:
    response, answer = post(world(*fakes.ALL), key, body)
    assert response.status == 400
    assert answer["errorCode"] == "INVALID_CONTEXT"
    assert answer["errorDetails"] == "Provider context is not valid"
    assert answer.get("key") == key


@pytest.mark.parametrize(
    "body", [b"", b"null", b"{}", b'{"context":null}', b'{"context":[1]}', b'{"context":"x"}']
)
def test_no_context_and_one_that_is_no_object_are_an_empty_one(body: bytes) -> None:
    response, answer = post(world(*fakes.ALL), "targeted", body)
    assert (response.status, answer["value"]) == (200, "n")


def test_a_wide_context_is_not_a_deep_one() -> None:
    context = {"tier": "gold", "list": [{"a": [number]} for number in range(500)]}
    assert post(world(*fakes.ALL), "targeted", {"context": context})[1]["value"] == "y"


def test_bulk_answers_every_flag_in_order_of_keys() -> None:
    _, body = post(world(*fakes.ALL), None, {"context": {"tier": "gold"}})
    assert [entry["key"] for entry in body["flags"]] == sorted(one.key for one in fakes.ALL)
    assert body["metadata"] == {}
    by_key = {entry["key"]: entry for entry in body["flags"]}
    assert by_key["targeted"]["value"] == "y"
    assert by_key["broken"]["errorCode"] == "PARSE_ERROR"


@pytest.mark.parametrize("key", ["boolean", None], ids=["single", "bulk"])
def test_while_nothing_is_known_the_answer_says_so_and_when_to_ask_again(key: str | None) -> None:
    response, body = post(world(), key)
    assert (response.status, header(response.headers, "retry-after")) == (503, "1")
    assert (body["errorCode"], body.get("key")) == ("PROVIDER_NOT_READY", key)
    assert "no flags are known yet" in body["errorDetails"]


def test_a_set_that_is_known_to_be_empty_has_no_such_flag() -> None:
    served = world(flagSetId="empty")
    assert post(served, "boolean")[1]["errorCode"] == "FLAG_NOT_FOUND"
    assert post(served, None)[1]["flags"] == []


def test_a_path_that_ends_after_the_slash_asks_for_all_flags() -> None:
    assert len(post(world(*fakes.ALL), "")[1]["flags"]) == len(fakes.ALL)


def test_an_unchanged_answer_is_not_sent_again() -> None:
    served = world(*fakes.ALL)
    first, _ = post(served, None)
    again, _ = post(served, None, headers=(("if-none-match", etag(first)),))
    assert (again.status, again.body, etag(again)) == (304, b"", etag(first))


def test_another_context_that_changes_an_answer_changes_the_etag() -> None:
    served = world(fakes.TARGETED)
    plain, _ = post(served, None)
    gold, _ = post(served, None, {"context": {"tier": "gold"}}, (("if-none-match", etag(plain)),))
    assert gold.status == 200
    assert etag(gold) != etag(plain)


def test_other_flags_change_the_etag_and_the_same_flags_do_not() -> None:
    served = world(flag("f", {"on": True, "off": False}, "on"))
    first = etag(post(served, None)[0])
    swap(served.store, flag_set(flag("f", {"on": True, "off": False}, "off")), now=fakes.NOW)
    second = etag(post(served, None)[0])
    swap(served.store, flag_set(flag("f", {"on": True, "off": False}, "on")), now=fakes.NOW)
    assert second != first
    assert etag(post(served, None)[0]) == first


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ('"a"', True), ('W/"a"', True), ('"b", "a"', True), ('"b",W/"a"', True), ("*", True), ('"b"', False),
        ("a", False), ("", False), (None, False),
    ],
)  # fmt: skip
def test_if_none_match_is_read_as_the_list_it_is(sent: str | None, expected: bool) -> None:
    assert matches(sent, '"a"') is expected


def test_a_selector_is_reflected_and_a_bad_one_refused() -> None:
    served = world(fakes.BOOLEAN, flagSetId="shop")
    _, body = post(served, None, headers=(("flagd-selector", "flagSetId=shop"),))
    assert body["metadata"] == {"flagSetId": "shop"}
    response, body = post(served, None, headers=(("flagd-selector", "x=y"),))
    assert (response.status, body["errorCode"]) == (400, "GENERAL")
    assert body["errorDetails"].startswith('invalid selector: invalid selector key "x"')


def test_bulk_advertises_where_changes_are_sent() -> None:
    served = world(fakes.BOOLEAN)
    _, body = post(served, None)
    assert body["eventStreams"] == [
        {"type": "sse", "endpoint": {"requestUri": "/ofrep/v1/sse"}, "inactivityDelaySec": 120}
    ]
    _, body = post(served, None, headers=(("flagd-selector", "source=a/b c"),))
    assert body["eventStreams"][0]["endpoint"]["requestUri"] == "/ofrep/v1/sse/source%3Da%2Fb%20c"


def test_where_events_are_switched_off_none_are_advertised_or_routed() -> None:
    served = world(fakes.BOOLEAN)
    silent = Ofrep(served.service)
    request = Request("POST", PREFIX, "", (), b"", "127.0.0.1:1")
    assert "eventStreams" not in orjson.loads(answer_of(silent.bulk(request)).body)
    assert {path for _, path in routes(silent, None).http} == {PREFIX, f"{PREFIX}/", f"{PREFIX}/*"}


def test_a_client_notified_of_other_flags_than_these_gets_them_whole() -> None:
    served = world(fakes.BOOLEAN)
    seen = (("if-none-match", etag(post(served, None)[0])),)
    assert served.store.snapshot is not None
    served_etag = quote(f'"{served.store.snapshot.digest}"')
    assert post(served, None, headers=seen, query=f"flagConfigEtag={served_etag}")[0].status == 304
    assert post(served, None, headers=seen, query="flagConfigEtag=other")[0].status == 200
    assert post(served, None, query=f"flagConfigEtag={served_etag}")[0].status == 200


HUGE = 18446744073709551616


def test_an_integer_beyond_64_bits_is_the_float64_that_flagd_reads() -> None:
    served = world(flag("huge", {"o": {"id": HUGE}}, "o"), fakes.BOOLEAN, limit=HUGE)
    response, _ = post(served, "huge")
    assert response.status == 200
    assert b'"value":{"id":18446744073709552000}' in response.body
    assert b'"limit":18446744073709552000' in response.body
    assert [one["key"] for one in post(served, None)[1]["flags"]] == ["boolean", "huge"]


def test_a_flag_that_json_cannot_hold_is_an_error_beside_the_others() -> None:
    value: dict[str, Any] = {}
    for _ in range(300):
        value = {"a": value}
    served = world(flag("deep", {"d": value}, "d"), fakes.BOOLEAN)
    response, body = post(served, "deep")
    assert (response.status, body["errorCode"]) == (400, "PARSE_ERROR")
    boolean, deep = post(served, None)[1]["flags"]
    assert (boolean["value"], deep["errorCode"]) == (True, "PARSE_ERROR")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (rb"cut \ud83d", "cut \ufffd"),
        (rb"\ude00 cut", "\ufffd cut"),
        (rb"\ud83d\ude00 whole", "\U0001f600 whole"),
        (rb"\\ud83d is no escape", "\\ud83d is no escape"),
    ],
)
def test_half_of_a_surrogate_pair_is_read_as_flagd_reads_it(text: bytes, read: str) -> None:
    assert read_context(b'{"context":{"t":"%b","cut":"\\uD800"}}' % text) == {"t": read, "cut": "\ufffd"}


FEW = 200
MANY = 400
"""Flags whose answer is deferred, unlike that of FEW."""


def flags(number: int, default: str = "on") -> list[Any]:
    return [flag(f"f{each}", {"on": "old", "off": "new"}, default) for each in range(number)]


def request(**headers: str) -> Request:
    return Request("POST", PREFIX, "", tuple(headers.items()), b"", "127.0.0.1:1")


@pytest.mark.parametrize("number", [0, 1, 16, 17, FEW, MANY, 1000])
def test_a_bulk_answer_has_every_flag_once_and_its_digest(number: int) -> None:
    answer = world(*flags(number), flagSetId="set").ofrep.bulk(request())
    assert isinstance(answer, Deferred) is (number >= MANY)
    response: Response = answer_of(answer)
    keys = [one["key"] for one in orjson.loads(response.body)["flags"]]
    assert keys == sorted(f"f{each}" for each in range(number))
    digest = hashlib.blake2b(response.body, digest_size=16).hexdigest()
    assert header(response.headers, "etag") == f'"{digest}"'


def test_a_client_that_has_the_answer_is_answered_not_modified_after_the_same_steps() -> None:
    served = world(*flags(MANY))
    first: Response = answer_of(served.ofrep.bulk(request()))
    etag = header(first.headers, "etag") or ""
    again: Response = answer_of(served.ofrep.bulk(request(**{"if-none-match": etag})))
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("number", [FEW, MANY])
def test_all_flags_are_resolved_in_both_formats(number: int) -> None:
    served = world(*flags(number))
    for evaluation in (served.evaluation, served.json):
        answer = evaluation.resolve_all(call(), b"{}" if evaluation is served.json else b"")
        assert isinstance(answer, Deferred) is (number >= MANY)
        message = answer_of(answer)
        found = (
            orjson.loads(message)["flags"]
            if evaluation is served.json
            else v1.ResolveAllResponse.FromString(message).flags
        )
        assert len(found) == number


def swapped_meanwhile(served: World, answer: Any) -> Any:
    """The answer, with other flags being served after its first steps."""
    assert isinstance(answer, Deferred)
    for _ in range(3):
        next(answer.steps)
    swap(served.store, flag_set(*flags(MANY, "off")), now=NOW)
    return answer_of(answer)


def test_an_answer_is_wholly_of_the_flags_that_were_served_when_it_was_asked_for() -> None:
    served = world(*flags(MANY))
    response = swapped_meanwhile(served, served.ofrep.bulk(request()))
    assert {one["value"] for one in orjson.loads(response.body)["flags"]} == {"old"}
    following: Response = answer_of(served.ofrep.bulk(request()))
    assert {one["value"] for one in orjson.loads(following.body)["flags"]} == {"new"}
    message = swapped_meanwhile(served, served.evaluation.resolve_all(call(), b""))
    values = v1.ResolveAllResponse.FromString(message).flags.values()
    assert {one.string_value for one in values} == {"new"}


LONG = {"tier": "gold", "list": ["x" * 10] * 100}


@pytest.mark.parametrize("kind", ["ofrep", "json", "evaluation"])
def test_with_a_longer_context_others_have_their_turn_after_each_flag(kind: str) -> None:
    served = world(*flags(20))
    if kind == "ofrep":
        body = orjson.dumps({"context": LONG})
        answer: Any = served.ofrep.bulk(Request("POST", PREFIX, "", (), body, "127.0.0.1:1"))
    elif kind == "json":
        answer = served.json.resolve_all(call(), orjson.dumps({"context": LONG}))
    else:
        asked = v1.ResolveAllRequest()
        asked.context.update(LONG)
        answer = served.evaluation.resolve_all(call(), asked.SerializeToString())
    assert isinstance(answer, Deferred)
    assert sum(1 for _ in answer.steps) >= 20


def test_each_flag_of_a_deferred_answer_is_counted() -> None:
    served = world(*flags(MANY))
    for _ in range(2):
        answer_of(served.ofrep.bulk(request()))
    text = served.metrics.text().decode()
    lines = [line for line in text.splitlines() if line.startswith("feature_flag_flagd_impression")]
    assert len(lines) == MANY
    assert all(line.endswith(" 2.0") for line in lines)
