from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from controller.configurations.validation import ContentVerdict, validate
from controller.runtime.result import Done
from controller.runtime.setbacks import Setback, Stalled, Waiting
from evaluator.flags.canonical import digest
from tests.statuses import stored_fields
from tests.worlds.flags import flag_set_of
from tests.worlds.flagsets import BROKEN, ODD, flag
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from controller.api.meta import Resource

GOOD = {"flags": {"a": flag(), "b": flag()}, "metadata": {"flagSetId": "mine"}}
SHARD = {"digest": "sha256:1", "flagSpec": {"flags": {"a": flag()}}}
INDEX = {"shards": [{"name": "part", "digest": "sha256:1"}]}


def configuration(spec: dict[str, Any], kind: str = "FeatureFlagConfiguration") -> Resource:
    return thing(kind, "x", spec)


def judge(resource: Resource, *shards: Resource) -> ContentVerdict:
    return validate(resource, {each.name: each for each in shards}.get)


def refusal_of(found: ContentVerdict) -> tuple[type[Setback], str]:
    assert isinstance(found.outcome, Setback)
    return type(found.outcome), found.outcome.reason


@pytest.mark.parametrize("kind", ["FeatureFlagConfiguration", "FeatureFlag"])
def test_what_is_sound_is_counted_and_digested(kind: str) -> None:
    verdict = judge(configuration({"flagSpec": GOOD}, kind))
    assert isinstance(verdict.outcome, Done)
    assert verdict.outcome.message == "2 flags are valid"
    assert stored_fields(verdict.status) == {
        "flags": 2,
        "digest": digest(flag_set_of(GOOD)),
        "flagSetId": "mine",
        "problems": [],
        "problemCount": 0,
    }


def test_the_verdict_holds_the_revision_of_the_last_change() -> None:
    metadata = {"metadata": {"flagstaff.dev/revision": "main@sha1:r1"}}
    verdict = judge(configuration({"flagSpec": GOOD | metadata}))
    assert stored_fields(verdict.status)["revision"] == "main@sha1:r1"


def test_a_problem_s_place_is_its_path_in_the_object() -> None:
    verdict = judge(configuration({"flagSpec": {"flags": {"a": BROKEN, "b": flag()}}}))
    assert refusal_of(verdict) == (Stalled, "InvalidFlags")
    assert verdict.outcome.message.startswith("spec.flagSpec.flags.a.defaultVariant: `variants` has no ")
    assert verdict.outcome.message.endswith(". Correct it where this object is written")
    (problem,) = stored_fields(verdict.status)["problems"]
    assert problem.keys() == {"severity", "path", "message", "flag"}
    assert problem["flag"] == "a"
    assert problem["path"] == "spec.flagSpec.flags.a.defaultVariant"
    assert (stored_fields(verdict.status)["flags"], "digest" in stored_fields(verdict.status)) == (1, True)


def test_a_warning_is_shown_and_is_no_failure() -> None:
    verdict = judge(configuration({"flagSpec": {"flags": {"a": ODD}}}))
    assert isinstance(verdict.outcome, Done)
    assert verdict.outcome.message.startswith("1 flag is served, with a warning: ")
    assert stored_fields(verdict.status)["problems"][0]["severity"] == "warning"


def test_an_object_without_flags_says_where_they_belong() -> None:
    verdict = judge(configuration({}))
    assert refusal_of(verdict) == (Stalled, "InvalidSpec")
    assert verdict.outcome.message.startswith("spec.flagSpec: ")


def test_a_document_that_cannot_be_read_has_no_digest() -> None:
    verdict = judge(configuration({"featureFlagSpec": "{"}))
    assert isinstance(verdict.outcome, Stalled)
    assert verdict.outcome.message.startswith("spec.featureFlagSpec: ")
    assert (stored_fields(verdict.status)["flags"], "digest" in stored_fields(verdict.status)) == (0, False)


def test_the_historic_form_is_valid_with_a_warning_about_its_types() -> None:
    old = {"a": {"returnType": "string", "state": "enabled", "variants": {"x": 1},
                 "defaultVariant": "x"}}  # fmt: skip
    verdict = judge(configuration({"featureFlagSpec": json.dumps(old)}))
    assert isinstance(verdict.outcome, Done)
    (problem,) = stored_fields(verdict.status)["problems"]
    assert problem["path"] == "spec.featureFlagSpec"
    assert problem["message"] == "flag 'a': returnType is string, not so: x"


def test_a_set_is_waited_for_until_its_last_shard_is_there() -> None:
    verdict = judge(configuration(INDEX))
    assert refusal_of(verdict) == (Waiting, "ShardsMissing")
    assert verdict.outcome.message.startswith("FlagShard part is not there yet; ")
    assert judge(configuration(INDEX), thing("FlagShard", "part", SHARD)).outcome.message == "1 flag is valid"


def test_a_shard_of_another_content_is_not_the_one_that_is_listed() -> None:
    other = thing("FlagShard", "part", SHARD | {"digest": "?"})
    assert isinstance(judge(configuration(INDEX), other).outcome, Waiting)


def test_problems_are_bounded_and_counted() -> None:
    flags = {f"f{number}": BROKEN for number in range(200)}
    verdict = judge(configuration({"flagSpec": {"flags": flags}}))
    assert (
        len(stored_fields(verdict.status)["problems"]),
        stored_fields(verdict.status)["problemCount"],
    ) == (50, 200)
    assert "(and 199 more)" in verdict.outcome.message


def test_the_same_object_has_the_same_verdict() -> None:
    one, other = [judge(configuration({"flagSpec": {"flags": {"a": BROKEN}}})) for _ in "ab"]
    assert (one.outcome.message, one.status) == (other.outcome.message, other.status)
