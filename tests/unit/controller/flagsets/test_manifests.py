"""Manifests of FeatureFlag and FeatureFlagConfiguration as definitions."""

from __future__ import annotations

import json

import pytest

from controller.flagsets.building.compose import Composition, compose
from controller.flagsets.building.provenance import provenance_of
from controller.flagsets.reading.inputs import steps
from tests.unit.controller.flagsets.world import document, flag

V1BETA1 = """\
apiVersion: core.openfeature.dev/v1beta1
kind: FeatureFlag
metadata: {name: shop}
spec:
  flagSpec:
    flags:
      a: {state: ENABLED, variants: {on: true, off: false}, defaultVariant: "off"}
      b: {state: ENABLED, variants: {on: true, off: false}, defaultVariant: "BAD"}
"""
V1ALPHA2 = V1BETA1.replace("v1beta1", "v1alpha2").replace("flagSpec", "featureFlagSpec")
V1ALPHA1 = """\
apiVersion: core.openfeature.dev/v1alpha1
kind: FeatureFlagConfiguration
metadata: {name: shop}
spec:
  featureFlagSpec: |
    {
      "flags": {
        "a": {"state": "ENABLED", "variants": {"on": true, "off": false}, "defaultVariant": "off"},
        "b": {"state": "ENABLED", "variants": {"on": true, "off": false},
              "defaultVariant": "BAD"}
      }
    }
"""
UNWRAPPED = """\
apiVersion: core.openfeature.dev/v1alpha1
kind: FeatureFlagConfiguration
spec:
  featureFlagSpec: |
    {
      "a": {"state": "enabled", "returnType": "boolean",
            "variants": {"on": true, "off": false}, "defaultVariant": "off"},
      "b": {"state": "ENABLED", "variants": {"on": true, "off": false}, "defaultVariant": "BAD"}
    }
"""


def composed(text: str, file: str = "a.yaml", values: dict[str, str] | None = None) -> Composition:
    provenance = provenance_of("main@sha1:1")
    return compose({file: text.encode()}, [file], provenance=provenance, previous=None, steps=steps(values))


@pytest.mark.parametrize(
    "text", [V1BETA1, V1ALPHA2, V1ALPHA1, UNWRAPPED], ids=["v1beta1", "object", "text", "unwrapped"]
)
@pytest.mark.parametrize("kind", ["FeatureFlag", "FeatureFlagConfiguration"])
def test_a_manifest_of_any_version_is_read_with_problems_at_their_lines(text: str, kind: str) -> None:
    text = text.replace("kind: FeatureFlagConfiguration", "kind: FeatureFlag").replace(
        "FeatureFlag\n", f"{kind}\n"
    )
    made = composed(text)
    (problem,) = made.problems
    line, column = next(
        (n, each.index('"BAD"') + 1) for n, each in enumerate(text.splitlines(), 1) if "BAD" in each
    )
    assert (problem.line, problem.column, problem.flag) == (line, column, "b")
    assert problem.path == "$.flags.b.defaultVariant"
    fixed = composed(text.replace("BAD", "on"))
    assert (fixed.problems, {key: each.default_variant for key, each in fixed.flag_set.flags.items()}) == (
        (),
        {"a": "off", "b": "on"},
    )


def test_a_text_in_one_line_places_problems_where_it_begins() -> None:
    spec = json.dumps({"flags": {"a": flag("BAD")}})
    text = json.dumps({
        "apiVersion": "core.openfeature.dev/v1alpha1", "kind": "FeatureFlagConfiguration",
        "spec": {"featureFlagSpec": spec},
    }, indent=1)  # fmt: skip
    (problem,) = composed(text, "a.json").problems
    assert problem.line == next(n for n, each in enumerate(text.splitlines(), 1) if "featureFlagSpec" in each)


def test_broken_json_in_a_manifest_is_placed_in_its_line() -> None:
    made = composed(V1ALPHA1.replace('"defaultVariant": "BAD"', '"defaultVariant" "on"'))
    assert not made.accepted
    assert [(each.line, each.code) for each in made.problems] == [(10, "broken-json")]


@pytest.mark.parametrize("spec", ["spec: {}", "spec: 1", "other: 1", "spec: {featureFlagSpec: 1}"])
def test_a_manifest_without_flags_is_refused(spec: str) -> None:
    made = composed(f"apiVersion: core.openfeature.dev/v1beta1\nkind: FeatureFlag\n{spec}\n")
    assert (made.accepted, [each.code for each in made.problems]) == (False, ["wrong-manifest"])


def test_duplicate_keys_in_a_manifest_hold_their_flag_alone() -> None:
    made = composed(V1BETA1.replace('"BAD"', '"on", defaultVariant: "off"'))
    assert [(each.flag, each.line, each.code) for each in made.problems] == [("b", 8, "duplicate-key")]
    assert sorted(made.flag_set.flags) == ["a"]


def test_variables_are_replaced_in_manifests_and_other_documents_stay_as_they_are() -> None:
    assert composed(V1BETA1.replace("BAD", "${V}"), values={"V": "on"}).problems == ()
    assert composed(document(a=flag()), "a.json").problems == ()
    other = composed("apiVersion: v1\nkind: FeatureFlag\nspec: {flagSpec: {flags: {}}}\n")
    assert not other.accepted
