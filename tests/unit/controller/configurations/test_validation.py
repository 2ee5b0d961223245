from __future__ import annotations

import json
from typing import Any

import pytest

from controller.api.meta import Resource
from controller.configurations.validation import ConfigurationReconciler
from controller.runtime.cache import Cache
from controller.runtime.setbacks import Setback, Stalled, Waiting
from controller.runtime.settle import Outcome
from evaluator.flags.canonical import digest
from evaluator.flags.parse import parse
from tests.unit.controller.flagsets.world import BROKEN, ODD, START, flag

GOOD = {"flags": {"a": flag(), "b": flag()}, "metadata": {"flagSetId": "mine"}}
SHARD = {"digest": "sha256:1", "flagSpec": {"flags": {"a": flag()}}}
INDEX = {"shards": [{"name": "part", "digest": "sha256:1"}]}


def configuration(spec: dict[str, Any], kind: str = "FeatureFlagConfiguration") -> Resource:
    return Resource.of({"kind": kind, "metadata": {"name": "x", "namespace": "shop"}, "spec": spec})


async def judged(resource: Resource, *others: Resource) -> Outcome | Setback:
    objects = Cache()
    for each in others:
        objects.learn(each)
    try:
        return await ConfigurationReconciler(objects).reconcile(resource, START)
    except Setback as setback:
        return setback


@pytest.mark.parametrize("kind", ["FeatureFlagConfiguration", "FeatureFlag"])
async def test_what_is_sound_is_counted_and_digested(kind: str) -> None:
    verdict = await judged(configuration({"flagSpec": GOOD}, kind))
    assert isinstance(verdict, Outcome)
    assert verdict.message == "2 flags are sound"
    assert verdict.status == {
        "flags": 2,
        "digest": digest(parse(json.dumps(GOOD).encode(), file="x.json").flag_set),
        "flagSetId": "mine",
        "problems": [],
        "problemCount": 0,
    }


async def test_the_revision_that_last_changed_it_is_told() -> None:
    told = {"metadata": {"flagstaff.dev/revision": "main@sha1:r1"}}
    verdict = await judged(configuration({"flagSpec": GOOD | told}))
    assert verdict.status["revision"] == "main@sha1:r1"


async def test_a_problem_s_place_is_its_path_in_the_object() -> None:
    verdict = await judged(configuration({"flagSpec": {"flags": {"a": BROKEN, "b": flag()}}}))
    assert (type(verdict), getattr(verdict, "reason", "")) == (Stalled, "InvalidFlags")
    assert verdict.message.startswith("spec.flagSpec.flags.a.defaultVariant: `variants` has no ")
    assert verdict.message.endswith(". Correct it where this object is written")
    (problem,) = verdict.status["problems"]
    assert problem.keys() == {"severity", "path", "message"}
    assert problem["path"] == "spec.flagSpec.flags.a.defaultVariant"
    assert (verdict.status["flags"], "digest" in verdict.status) == (1, True)


async def test_a_warning_is_told_and_is_no_failure() -> None:
    verdict = await judged(configuration({"flagSpec": {"flags": {"a": ODD}}}))
    assert isinstance(verdict, Outcome)
    assert verdict.message.startswith("1 flag is served, with a warning: ")
    assert verdict.status["problems"][0]["severity"] == "warning"


async def test_an_object_without_flags_says_where_they_belong() -> None:
    verdict = await judged(configuration({}))
    assert (type(verdict), getattr(verdict, "reason", "")) == (Stalled, "InvalidSpec")
    assert verdict.message.startswith("spec.flagSpec: ")


async def test_a_document_that_cannot_be_read_has_no_digest() -> None:
    verdict = await judged(configuration({"featureFlagSpec": "{"}))
    assert isinstance(verdict, Stalled)
    assert verdict.message.startswith("spec.featureFlagSpec: ")
    assert (verdict.status["flags"], "digest" in verdict.status) == (0, False)


async def test_the_historic_form_is_sound_with_a_word_about_its_types() -> None:
    old = {"a": {"returnType": "string", "state": "enabled", "variants": {"x": 1},
                 "defaultVariant": "x"}}  # fmt: skip
    verdict = await judged(configuration({"featureFlagSpec": json.dumps(old)}))
    assert isinstance(verdict, Outcome)
    (problem,) = verdict.status["problems"]
    assert problem["path"] == "spec.featureFlagSpec"
    assert problem["message"] == "flag 'a': returnType is string, not so: x"


async def test_a_set_is_waited_for_until_its_last_shard_is_there() -> None:
    verdict = await judged(configuration(INDEX))
    assert (type(verdict), getattr(verdict, "reason", "")) == (Waiting, "ShardsMissing")
    assert verdict.message.startswith("FlagShard part is not there yet; ")
    meta = {"name": "part", "namespace": "shop"}
    shard = Resource.of({"kind": "FlagShard", "metadata": meta, "spec": SHARD})
    assert (await judged(configuration(INDEX), shard)).message == "1 flag is sound"


async def test_a_shard_of_another_content_is_not_the_one_that_is_listed() -> None:
    meta = {"name": "part", "namespace": "shop"}
    other = Resource.of({"kind": "FlagShard", "metadata": meta, "spec": SHARD | {"digest": "?"}})
    assert isinstance(await judged(configuration(INDEX), other), Waiting)


async def test_problems_are_bounded_and_counted() -> None:
    flags = {f"f{number}": BROKEN for number in range(200)}
    verdict = await judged(configuration({"flagSpec": {"flags": flags}}))
    assert (len(verdict.status["problems"]), verdict.status["problemCount"]) == (50, 200)
    assert "(and 199 more)" in verdict.message


async def test_the_same_object_has_the_same_verdict() -> None:
    one, other = [await judged(configuration({"flagSpec": {"flags": {"a": BROKEN}}})) for _ in "ab"]
    assert (one.message, one.status) == (other.message, other.status)
