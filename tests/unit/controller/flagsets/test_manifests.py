"""Manifests of FeatureFlag and FeatureFlagConfiguration as definitions."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

from controller.flagsets.compose import Composition, compose, provenance_of
from controller.flagsets.inputs import steps
from controller.flagsets.preparation import Allowance, Preparation
from evaluator.flags.document import read_document
from evaluator.flags.problems import Severity
from tests.worlds.flagsets import document, flag

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


CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: shop, labels: {flagSetId: x}}
data:
  log: "{"
  a.conf: |
    flags: on
    x
  settings.yaml: |
    flags: {verbose: true, feature: {enabled: true}}
  NAME: |
FLAGS
"""


def config_map(text: str, name: str = "flags.json") -> str:
    rows = "".join(f"    {row}\n" for row in text.splitlines())
    return CONFIG_MAP.replace("NAME", name).replace("FLAGS\n", rows)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("flags.json", document(a=flag())),
        ("flags.flagd.yaml", "flags: {a: {state: ENABLED, variants: {x: 1}, defaultVariant: x}}"),
        ("flags", document(a=flag())),
        ("shop", SOUND.replace("      b:", "      # ")),
    ],
)
def test_flags_in_a_configmap_are_read_by_key(key: str, text: str) -> None:
    made = of_files(a=config_map(text, key))
    assert (made.problems, list(made.flag_set.flags), made.flag_set.metadata.get("name")) == ((), ["a"], None)
    in_json = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "y"}}
    coded = base64.b64encode(text.encode()).decode()
    for section, value in (("data", text), ("binaryData", coded)):
        made = of_files(a=json.dumps({**in_json, section: {key: value}}))
        assert (made.problems, list(made.flag_set.flags)) == ((), ["a"])


def test_what_is_wrong_in_a_configmap_is_told_with_key_and_line() -> None:
    text = json.dumps({"flags": {"a": flag(), "b": flag(defaultVariant="BAD")}}, indent=2)
    line = 12 + next(at for at, row in enumerate(text.splitlines()) if "BAD" in row)
    (problem,) = of_files(a=config_map(text)).problems
    assert (problem.line, problem.message[:35]) == (line, 'flags.json: `variants` has no "BAD"')
    (problem,) = of_files(a=config_map(text[:-9])).problems
    assert (problem.line > 12, problem.message[:13]) == (True, "flags.json: `")
    (problem,) = of_files(a=config_map("<html>flags: 1</html>")).problems
    assert (problem.line, "flags.json: this is HTML" in problem.message) == (12, True)


def test_keys_of_a_configmap_that_are_no_files_of_flags_are_passed_over_with_a_note() -> None:
    documents = Preparation().documents(read_document(config_map(document(a=flag())).encode(), file="a.yaml"))
    assert [bool(read.passed_over) for read in documents] == [False, True]
    (note,) = documents[1].problems
    words = 'the value of "log", "a.conf", "settings.yaml" is no file of flags, and is passed over'
    assert (note.severity, note.line, words in note.message) == (Severity.NOTE, 5, True)
    none = config_map("verbose: true")
    assert [problem.code for problem in of_files(a=none).problems] == ["missing-flags"]
    assert of_files(a=none, b=SOUND).problems == ()


def test_a_configmap_in_a_configmap_is_passed_over() -> None:
    nested = config_map(config_map(document(a=flag())), "inner.yaml")
    assert [problem.code for problem in of_files(a=nested).problems] == ["missing-flags"]


def test_many_broken_keys_of_a_configmap_take_no_longer_each_than_few() -> None:
    def took(count: int) -> float:
        keys = "".join(f"  f{at}.json: |\n    {{\n     'flags': 1}}\n" for at in range(count))
        text = f"apiVersion: v1\nkind: ConfigMap\ndata:\n{keys}".encode()
        read = read_document(text, file="a.yaml")
        start = time.process_time()
        documents = Preparation().documents(read)
        lines = {found.line for each in documents for found in each.problems}
        assert lines == {*range(6, 6 + 3 * count, 3)}
        return time.process_time() - start

    took(50)
    few, many = (min(took(count) for _ in range(3)) for count in (400, 4_000))
    assert many < 40 * max(few, 0.01)


def test_the_keys_of_a_configmap_hold_no_more_values_together_than_a_document() -> None:
    allowance = Allowance(nodes=40)
    parts = {f"{key}.json": document(a=flag()) for key in "abcdefgh"}
    text = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "data": parts})
    documents = Preparation(allowance=allowance).documents(read_document(text.encode(), file="a.json"))
    assert [finding.code for read in documents for finding in read.findings][-1] == "too-large"


def test_definitions_that_are_an_object_too_have_no_metadata_of_it() -> None:
    made = of_files(a=manifest("v1", "Flags", metadata={"name": "x", "labels": {}}, flags={"a": flag()}))
    assert (made.problems, sorted(made.flag_set.flags)) == ((), ["a"])
    assert "name" not in made.flag_set.metadata
