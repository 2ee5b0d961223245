"""Manifests of FeatureFlag and FeatureFlagConfiguration as definitions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.flagsets.compose import Composition, compose, provenance_of
from controller.flagsets.inputs import steps
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


def compose_text(text: str, file: str = "a.yaml", values: dict[str, str] | None = None) -> Composition:
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
    made = compose_text(text)
    (problem,) = made.problems
    line, column = next(
        (n, each.index('"BAD"') + 1) for n, each in enumerate(text.splitlines(), 1) if "BAD" in each
    )
    assert (problem.line, problem.column, problem.flag) == (line, column, "b")
    assert problem.path == "$.flags.b.defaultVariant"
    fixed = compose_text(text.replace("BAD", "on"))
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
    (problem,) = compose_text(text, "a.json").problems
    assert problem.line == next(n for n, each in enumerate(text.splitlines(), 1) if "featureFlagSpec" in each)


def test_broken_json_in_a_manifest_is_placed_in_its_line() -> None:
    made = compose_text(V1ALPHA1.replace('"defaultVariant": "BAD"', '"defaultVariant" "on"'))
    assert not made.accepted
    assert [(each.line, each.code) for each in made.problems] == [(10, "broken-json")]


@pytest.mark.parametrize("spec", ["spec: {}", "spec: 1", "other: 1", "spec: {featureFlagSpec: 1}"])
def test_a_manifest_without_flags_is_refused(spec: str) -> None:
    made = compose_text(f"apiVersion: core.openfeature.dev/v1beta1\nkind: FeatureFlag\n{spec}\n")
    assert (made.accepted, [each.code for each in made.problems]) == (False, ["wrong-manifest"])


def test_duplicate_keys_in_a_manifest_hold_their_flag_alone() -> None:
    made = compose_text(V1BETA1.replace('"BAD"', '"on", defaultVariant: "off"'))
    assert [(each.flag, each.line, each.code) for each in made.problems] == [("b", 8, "duplicate-key")]
    assert sorted(made.flag_set.flags) == ["a"]


def test_variables_are_replaced_in_manifests_and_other_documents_stay_as_they_are() -> None:
    assert compose_text(V1BETA1.replace("BAD", "${V}"), values={"V": "on"}).problems == ()
    assert compose_text(document(a=flag()), "a.json").problems == ()


def manifest(api_version: str, kind: str, **fields: Any) -> str:
    return json.dumps({"apiVersion": api_version, "kind": kind, "metadata": {"name": "s"}, **fields})


SHARD = {"flagSpec": {"flags": {"x": flag()}}}
OTHERS = {
    "FeatureFlagSource": manifest("core.openfeature.dev/v1beta1", "FeatureFlagSource", spec={"sources": []}),
    "Flagd": manifest("core.openfeature.dev/v1beta1", "Flagd", spec={"replicas": 2}),
    "Deployment": manifest("apps/v1", "Deployment", metadata={"labels": {"a": "b"}}, spec={"replicas": 1}),
    "FlagSet": manifest("flagstaff.dev/v1beta1", "FlagSet", spec={"paths": ["a"]}),
    "FlagShard": manifest("flagstaff.dev/v1beta1", "FlagShard", spec=SHARD),
    "Kustomization": manifest("kustomize.config.k8s.io/v1beta1", "Kustomization", resources=["a"]),
    "metadata that says a flagSetId": manifest("v1", "ConfigMap", metadata={"flagSetId": "x", "version": 2}),
    "evaluators": manifest("v1", "Secret", **{"$evaluators": {"a": {"var": "x"}}}),
    "a secret of sops": manifest("v1", "Secret", data={"a": "ENC[x]"}, sops={"mac": "ENC[x]", "age": []}),
    "an empty list": manifest("v1", "List", items=[]),
    "a list of others": manifest("v1", "List", items=[json.loads(manifest("v1", "Pod")), 1]),
    "a key twice": "{apiVersion: v1, kind: Service, metadata: {name: s, name: t}, spec: {}}",
    "merge keys": "{apiVersion: v1, kind: Service, metadata: &m {name: s}, spec: {<<: *m}}",
    "half a manifest": "{kind: Deployment, metadata: {name: web, labels: {a: b}}, spec: {}}",
    "the other half": "{apiVersion: v1, metadata: {name: web}, spec: {}}",
    "tags of another product": "{Resources: {A: !Ref B}}",
    "no kind, nor flags": "{name: shop, version: 1.0.0, scripts: {test: jest}}",
}
SOUND = V1BETA1.replace("BAD", "on")


def of_files(**texts: str) -> Composition:
    tree = {f"flags/{name}.yaml": text.encode() for name, text in texts.items()}
    return compose(tree, ["flags"], provenance=provenance_of("main@sha1:1"), previous=None, steps=steps(None))


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_document_of_another_kind_in_the_folder_is_passed_over_whole(other: str) -> None:
    made, alone = of_files(a=SOUND, b=other), of_files(a=SOUND)
    assert (made.problems, made.flag_set) == ((), alone.flag_set)
    assert of_files(a=other, b=SOUND).flag_set == alone.flag_set


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_of_documents_of_other_kinds_alone_no_flags_are_made(other: str) -> None:
    made = of_files(a=other, b=other)
    assert (made.accepted, [problem.code for problem in made.problems]) == (False, ["missing-flags"])


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_flags_may_share_a_file_with_documents_of_other_kinds(other: str) -> None:
    for text in (f"{SOUND}---\n{other}\n", f"---\n{other}\n---\n{SOUND}...\n---\n"):
        made = of_files(a=text)
        assert (made.problems, sorted(made.flag_set.flags)) == ((), ["a", "b"])


def second(text: str) -> str:
    return text.replace("      a:", "      c:").replace("      b:", "      d:")


def item(lines: list[str]) -> str:
    return "- " + "\n  ".join(lines) + "\n"


SEVERAL = {
    "documents": f"{SOUND}---\n{second(V1BETA1)}",
    "forms": f"{SOUND}---\n{second(V1ALPHA2)}---\n{second(V1ALPHA1).replace('c', 'e')}",
    "a list": "apiVersion: v1\nkind: List\nitems:\n"
    + "".join(
        "- " + "\n  ".join(text.splitlines()) + "\n"
        for text in (SOUND, OTHERS["Deployment"], second(V1BETA1))
    ),
    "a list of one kind": "apiVersion: core.openfeature.dev/v1beta1\nkind: FeatureFlagList\nitems:\n"
    + "".join(item(text.splitlines()[2:]) for text in (SOUND, second(V1BETA1))),
}


@pytest.mark.parametrize("text", SEVERAL.values(), ids=SEVERAL)
def test_several_manifests_in_one_file_are_read_with_problems_at_their_lines(text: str) -> None:
    made = of_files(a=text)
    assert sorted(made.flag_set.flags)[:3] == ["a", "b", "c"]
    lines = text.splitlines()
    bad = [number for number, line in enumerate(lines, 1) if "BAD" in line]
    assert [problem.line for problem in made.problems if problem.code == "unknown-variant"] == bad[:1]


def test_one_key_in_two_manifests_of_a_file_names_both_places() -> None:
    made = of_files(a=f"{SOUND}---\n{SOUND}")
    assert {problem.code for problem in made.problems} == {"duplicate-flag"}
    assert "flags/a.yaml:7:7" in made.problems[0].message


def test_several_plain_documents_in_one_file_are_refused_at_the_second() -> None:
    plain = "flags: {}\n"
    made = of_files(a=f"{plain}---\n{SOUND}---\n{plain}")
    assert [(problem.code, problem.line) for problem in made.problems] == [("several-documents", 11)]


@pytest.mark.parametrize(
    "head",
    [
        "apiVersion: openfeature.dev/v1beta1\nkind: FeatureFlag",
        "apiVersion: core.openfeature.dev/v1beta1\nkind: FeatureFlags",
        "apiVersion: core.openfeature.dev/v1beta1\nkind: featureflag",
        "kind: FeatureFlag",
    ],
)
def test_flags_under_a_wrong_kind_are_an_error_and_not_passed_over(head: str) -> None:
    made = of_files(a=SOUND, b="\n".join([head, *V1BETA1.splitlines()[2:]]))
    assert not made.accepted
    (problem,) = made.problems
    assert (problem.code, "FeatureFlag and FeatureFlagConfiguration of" in problem.message) == (
        "wrong-manifest",
        True,
    )


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("flags.json", document(a=flag())),
        ("flags.flagd.yaml", "flags: {a: {state: ENABLED}}"),
        ("shop", V1BETA1),
        ("listed.json", json.dumps({"flags": []})),
    ],
)
@pytest.mark.parametrize(("kind", "field"), [("ConfigMap", "data"), ("Secret", "stringData")])
def test_flags_in_a_configmap_are_pointed_to_by_key(key: str, text: str, kind: str, field: str) -> None:
    values = {"a.conf": "flags: on\nx", "log": "{", key: text}
    map_of = {"apiVersion": "v1", "kind": kind, "metadata": {"flagSetId": "x"}, field: values}
    made = of_files(a=json.dumps(map_of))
    (problem,) = made.problems
    assert (problem.code, made.accepted) == ("missing-flags", False)
    assert f'its key "{key}"' in problem.message
    assert of_files(a=json.dumps(map_of), b=SOUND).problems == ()


def test_definitions_that_are_an_object_too_have_no_metadata_of_it() -> None:
    made = of_files(a=manifest("v1", "Flags", metadata={"name": "x", "labels": {}}, flags={"a": flag()}))
    assert (made.problems, sorted(made.flag_set.flags)) == ((), ["a"])
    assert "name" not in made.flag_set.metadata
