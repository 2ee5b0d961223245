"""Answers over many flags are made in steps, and are the same as those made at once."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson
import pytest
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1

from evaluator.http.deferred import Deferred
from evaluator.http.messages import Request, Response, header
from evaluator.server.evaluate_flags import PREFIX
from tests.stores import swap
from tests.worlds.evaluator import NOW, World, answer_of, call, flag, flag_set, world

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
