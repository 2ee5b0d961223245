from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Final

import pytest

from controller.api.expression_syntax import parse
from controller.api.fields import RULES
from controller.cli import main
from controller.cli.manifests import judge, read_manifests
from controller.validation.object_problems import KINDS, SELF, schemas
from tests.work import work

if TYPE_CHECKING:
    from controller.api.kind import ResourceType

ROOT: Final = Path(__file__).parents[4]
HOOK: Final = "{name: x, type: rollout, url: 'https://h/x'}"
GIT: Final = "git: {url: https://git.example.com/flags.git}"


def source(spec: str, metadata: str = "name: x") -> str:
    return (
        f"apiVersion: flagstaff.dev/v1beta1\nkind: FlagSource\nmetadata: {{{metadata}}}\nspec: {{{spec}}}\n"
    )


def flag_set(spec: str) -> str:
    reference = "sourceRef: {kind: FlagSource, name: x}"
    return source(f"{reference}, {spec}").replace("kind: FlagSource\n", "kind: FlagSet\n")


def rollout_with(spec: str) -> str:
    reference = "flagSetRef: {name: x}, steps: [{share: 10}]"
    return source(f"{spec}, {reference}").replace("kind: FlagSource\n", "kind: FlagRollout\n")


def operators(kind: str, spec: str, version: str = "v1beta1") -> str:
    return f"apiVersion: core.openfeature.dev/{version}\nkind: {kind}\nmetadata: {{name: x}}\nspec: {spec}\n"


def lint(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    (tmp_path / "x.yaml").write_text(text)
    main(["lint", "-f", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    return [line.removeprefix(f"{tmp_path}/") for line in lines]


WRONG: Final[dict[str, tuple[str, str]]] = {
    "a misspelt field": (
        source("interval: 1m, git: {url: https://h/x, ref: {brnach: production}}"),
        'x.yaml:4:52: error: FlagSource x: spec.git.ref: unknown field "brnach"; did you mean "branch"?',
    ),
    "a field in snake case": (
        source("interval: 1m, git: {url: https://h/x, secret_ref: {name: x}}"),
        'spec.git: unknown field "secret_ref"; did you mean "secretRef"?',
    ),
    "a field in the wrong case": (
        flag_set("pruneguard: true"), 'spec: unknown field "pruneguard"; did you mean "pruneGuard"?',
    ),
    "a field at the wrong place": (
        source(f"interval: 1m, {GIT}, branch: main"), 'spec: unknown field "branch"; it belongs into git.ref',
    ),
    "a misspelt field of metadata": (
        source(f"interval: 1m, {GIT}", "name: x, lables: {}"),
        'metadata: unknown field "lables"; did you mean "labels"?',
    ),
    "a misspelt field at the top": (
        source(f"interval: 1m, {GIT}").replace("spec", "sepc"), 'unknown field "sepc"; did you mean "spec"?',
    ),
    "a number for a duration": (
        source(f"interval: 60, {GIT}"),
        "spec.interval: must be a duration such as 30s or 1m, not the number 60",
    ),
    "a duration without a unit": (
        source(f"interval: '60', {GIT}"),
        "spec.interval: must be a duration such as 30s or 1m",
    ),
    "a text for a boolean": (
        source('interval: 1m, git: {url: https://h/x, recurseSubmodules: "yes"}'),
        'spec.git.recurseSubmodules: must be true or false, not the string "yes"',
    ),
    "a version read as a number": (
        source("interval: 1m, git: {url: https://h/x, ref: {semver: 1.10}}"),
        "spec.git.ref.semver: must be a string, not the number 1.1; put it in quotes",
    ),
    "fields for a list": (flag_set("dependsOn: {name: x}"), "spec.dependsOn: must be a list, not fields"),
    "a list for fields": (source("interval: 1m, git: []"), "spec.git: must be fields, not a list"),
    "an empty item": (
        source(f"interval: 1m, {GIT}, include: [null]"), "spec.include[0]: is empty; write fields",
    ),
    "a value of no enum": (
        flag_set("failurePolicy: Perflag"),
        'spec.failurePolicy: must be one of PerFlag, Atomic; did you mean "PerFlag"?',
    ),
    "an item twice": (
        rollout_with("flags: [a, a]"), "4:19: error: FlagRollout x: spec.flags[1]: is in the list twice",
    ),
    "a name of a list twice": (
        rollout_with(f"flags: [a], webhooks: [{HOOK}, {HOOK}]"),
        "spec.webhooks[1]: is in the list twice",
    ),
    "a text for all fields": (
        operators("FeatureFlagConfiguration", "text"), "spec: must be fields, not a string",
    ),
    "too large a number": (
        operators("Flagd", "{featureFlagSource: x, replicas: 3000000000}"),
        "spec.replicas: must be at most 2147483647",
    ),
    "a value that JSON does not have": (
        source("interval: 1m, git: {url: !!binary aGVsbG8=}"),
        "x.yaml:4:33: error: not YAML: a value has the tag 'tag:yaml.org,2002:binary', and JSON has no such",
    ),
    "too few": (flag_set("paths: []"), "spec.paths: must not be empty"),
    "too long a text": (
        source(f"interval: 1m, serviceAccountName: {'x' * 254}, {GIT}"),
        "spec.serviceAccountName: must have at most 253 characters",
    ),
    "a missing field": (source(GIT), "spec.interval: is required: How often"),
    "a broken rule": (
        source("interval: 1m"),
        "x.yaml:4:1: error: FlagSource x: spec: set exactly one of git, oci, bucket",
    ),
    "a field twice": (source("interval: 1m, interval: 2m"), 'spec: "interval" is there twice'),
    "an invalid pattern": (
        source("interval: 1m, oci: {url: oci://h/x, ref: {semver: '1', semverFilter: '('}}"),
        "spec.oci.ref.semverFilter: not an RE2 expression",
    ),
    "what only the controller knows": (
        source("interval: 1m, git: {url: https://h/x, ref: {branch: -x}}"),
        "spec.git.ref.branch: '-x' is not a valid branch name",
    ),
    "a name in capitals": (
        source(f"interval: 1m, {GIT}", "name: Upper_Case"),
        "x.yaml:3:12: error: FlagSource Upper_Case: metadata.name: must be a name of lower-case",
    ),
    "a name that is a number": (
        source(f"interval: 1m, {GIT}", "name: 12"),
        "metadata.name: must be a string, not the number 12; put it in quotes",
    ),
    "no name": (source(f"interval: 1m, {GIT}", ""), "metadata.name: is required"),
    "a namespace with a dot": (
        source(f"interval: 1m, {GIT}", "name: x, namespace: a.b"),
        "metadata.namespace: must be a name of",
    ),
    "a label that is a boolean": (
        source(f"interval: 1m, {GIT}", "name: x, labels: {a: true}"),
        "metadata.labels.a: must be a string, not true",
    ),
    "a label's key": (
        source(f"interval: 1m, {GIT}", "name: x, labels: {a b: x}"),
        'metadata.labels["a b"]: is no key',
    ),
    "a password in Git's URL": (
        source("interval: 1m, git: {url: 'https://me:pw@h/x'}"),
        "spec.git.url: a URL must not hold a password or token",
    ),
    "a password in a registry's URL": (
        source("interval: 1m, oci: {url: 'oci://me:pw@h/x'}"),
        "spec.oci.url: must not hold a password or token",
    ),
    "a token in an address": (
        "apiVersion: flagstaff.dev/v1beta1\nkind: FlagProvider\nmetadata: {name: x}\n"
        "spec: {type: generic, address: 'https://h/x?token=y'}",
        "spec.address: must not hold a password or token",
    ),
    "a provider that does not exist": (
        operators("FeatureFlagSource", "{sources: [{source: flags, provider: gitt}]}"),
        "FeatureFlagSource x: spec.sources[0]: provider 'gitt' is not supported; use one of",
    ),
    "a port that does not exist": (
        operators("InProcessConfiguration", "{port: 99999}"), "spec.port: must be from 0 to 65535",
    ),
    "no flags in an old version": (
        operators("FeatureFlagConfiguration", "{serviceProvider: null}", "v1alpha2"),
        "x.yaml:4:1: error: FeatureFlagConfiguration x: spec.flagSpec: there are no flags",
    ),
    "a variant that does not exist": (
        operators("FeatureFlag", '{flagSpec: {flags: {"on call": {state: ENABLED, variants: {a: 1},\n'
                  "  defaultVariant: b}}}}"),
        'x.yaml:5:3: error: FeatureFlag x: spec.flagSpec.flags["on call"].defaultVariant: `variants` has no',
    ),
    "an unknown operator": (
        operators("FeatureFlag", "{flagSpec: {flags: {a: {state: ENABLED, variants: {a: 1}, "
                  "defaultVariant: a, targeting: {bogus: []}}}}}"),
        'error: FeatureFlag x: spec.flagSpec.flags.a.targeting.bogus: unknown operator "bogus"',
    ),
    "an unknown kind": (
        source(f"interval: 1m, {GIT}").replace("FlagSource", "FlagSorce"),
        'x.yaml:2:1: error: FlagSorce x: kind: unknown kind "FlagSorce" in flagstaff.dev; '
        'did you mean "FlagSource"?',
    ),
    "an unknown version": (
        source(f"interval: 1m, {GIT}").replace("v1beta1", "v1"),
        "apiVersion: FlagSource has no version flagstaff.dev/v1; write flagstaff.dev/v1beta1",
    ),
    "a kind of the other group": (
        operators("FlagSet", "{}"),
        "FlagSet has no version core.openfeature.dev/v1beta1; write flagstaff.dev/v1beta1",
    ),
    "a group near ours": (
        source(f"interval: 1m, {GIT}").replace("flagstaff.dev", "flagstaff.io"),
        'unknown version "flagstaff.io/v1beta1"; write flagstaff.dev/v1beta1',
    ),
    "no version": (
        "kind: FlagSet\nmetadata: {name: x}",
        "apiVersion: is required; write flagstaff.dev/v1beta1",
    ),
    "no kind": ("apiVersion: flagstaff.dev/v1beta1\nmetadata: {name: x}", "kind: is required"),
    "two forms of flags": (
        operators("FeatureFlagConfiguration", "{flagSpec: {flags: {}}, shards: [{name: x, digest: z}]}"),
        "spec: set exactly one of flagSpec, shards, featureFlagSpec",
    ),
    "a template": (
        "metadata:\n  name: {{ .Release.Name }}\n",
        "x.yaml:2:10: error: not YAML: the {{ … }} or {% … %} of a template stands here; check what the "
        "template makes: helm template … | flagstaff lint -f -",
    ),
    "a template's condition": ("{{- if .Values.on }}\na: 1\n{{- end }}\n", "the {{ … }} or {% … %}"),
    "an alias within itself": (
        "a: &a {b: *a}\n",
        "error: not YAML: an alias stands within the value that it names",
    ),
    "an open bracket": ("a: [1\nb: 2\n", "error: not YAML: `,` or `]` was expected"),
    "a tab": ("a:\n\t- b\n", "x.yaml:2:1: error: not YAML: a tab stands where only spaces may be"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_manifest_is_an_error_with_its_place(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *more = lint(text, tmp_path, capsys)
    assert words in first
    assert more == ["0 valid manifests, 1 error"]


DOUBTFUL: Final[dict[str, tuple[str, str, int]]] = {
    "a token in a source": (
        operators("FeatureFlagSource", "{sources: [{source: 'https://TOKEN@h/flags.json', provider: http}]}"),
        "x.yaml:4:19: warning: FeatureFlagSource x: spec.sources[0].source: must not hold a password",
        1,
    ),
    "a rule that is not there": (
        operators("FeatureFlag", "{flagSpec: {flags: {a: {state: ENABLED, variants: {a: 1}, "
                  "defaultVariant: a, targeting: {if: [{$ref: x}, a]}}}}}"),
        "warning: FeatureFlag x: spec.flagSpec.flags.a.targeting.if[0].$ref: ",
        1,
    ),
    "a setting without effect": (
        operators("FeatureFlagSource", "{sources: [{source: x}], rolloutOnChange: true}"),
        "x.yaml:4:1: note: FeatureFlagSource x: spec: rolloutOnChange is ignored: evaluators follow",
        0,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "words", "code"), DOUBTFUL.values(), ids=DOUBTFUL)
def test_what_is_taken_with_a_remark_is_a_valid_manifest(
    text: str, words: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *_, last = lint(text, tmp_path, capsys)
    assert words in first
    assert last.startswith("1 valid manifest, ")
    assert main(["lint", "-f", str(tmp_path)]) == code


RIGHT: Final = {
    "an empty host": operators(
        "Flagd", "{featureFlagSource: ui, ingress: {enabled: true, hosts: [localhost, '']}}"
    ),
    "an old version": operators("FeatureFlagConfiguration", "{featureFlagSpec: '{}'}", "v1alpha1"),
    "a user of SSH": source("interval: 1m, git: {url: ssh://git@h/x, secretRef: {name: x}}"),
    "a status": f"{source(f'interval: 1m, {GIT}')}status: {{observedGeneration: many}}\n",
    "a generated name": source(f"interval: 1m, {GIT}", "generateName: x-"),
    "null for a default": source(f"interval: 1m, timeout: null, {GIT}"),
    "a time as annotation": source(
        f"interval: 1m, {GIT}", "name: x, annotations: {at: 2026-01-01T00:00:00Z}"
    ),
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_what_the_server_and_the_controller_take_is_valid(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lint(text, tmp_path, capsys) == ["1 valid manifest"]


def test_documents_and_items_of_lists_are_judged_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = dedent("""\
        {flags: {}}
        ---
        apiVersion: v1
        kind: List
        items:
          - apiVersion: flagstaff.dev/v1beta1
            kind: FlagSet
            metadata: {name: first}
            spec: {sourceRef: {kind: FlagSource, name: x}, path: flags}
          - apiVersion: apps/v1
            kind: Deployment
        ---
        apiVersion: flagstaff.dev/v1beta1
        kind: FlagSource
        metadata: {name: second}
        spec: {git: {url: "https://h/x"}, interval: 1}
        """)
    assert [line.partition(" error: ")[0] for line in lint(text, tmp_path, capsys)] == [
        "x.yaml:9:52:", "x.yaml:16:35:", "0 valid manifests, 2 errors",
    ]  # fmt: skip


def test_where_nothing_is_ours_it_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "-f", str(ROOT / "crds")]) == 0
    assert capsys.readouterr().out == (
        "nothing to check: no manifests of flagstaff.dev or core.openfeature.dev, only 18 "
        "CustomResourceDefinitions\n"
    )


def test_patches_of_a_kustomization_are_parts_of_objects_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kustomization.yaml").write_text("patches: [{path: patch.yaml}, {patch: '- op: remove'}]")
    (tmp_path / "patch.yaml").write_text(flag_set("suspend: true").replace("sourceRef", "x"))
    assert lint(source(f"interval: 1m, {GIT}"), tmp_path, capsys) == ["1 valid manifest"]


def test_no_two_examples_define_the_same_object() -> None:
    objects = Counter(
        (manifest.body["kind"], metadata.get("namespace", "shop"), metadata["name"])
        for manifest in read_manifests([str(ROOT / "examples")])
        if manifest.is_object and manifest.body["kind"] in KINDS
        for metadata in [manifest.body["metadata"]]
    )
    assert [key for key, count in objects.items() if count > 1] == []


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = source(f"interval: 1m, {GIT}, verfy: {{}}").encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["lint", "-f", "-", "--output", "json"]) == 1
    (problem,) = json.loads(capsys.readouterr().out)
    assert (problem["file"], problem["code"], problem["path"]) == ("stdin", "unknown-field", "$.spec.verfy")


def rules(schema: object) -> list[str]:
    if isinstance(schema, list):
        return [rule for item in schema for rule in rules(item)]
    if not isinstance(schema, dict):
        return []
    own = [rule["rule"] for rule in schema.get(RULES, ())]
    return own + [rule for inner in schema.values() for rule in rules(inner)]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_each_rule_of_a_kind_can_be_evaluated_here(kind: ResourceType) -> None:
    for schema in schemas(kind).values():
        for rule in rules(schema):
            parse(rule, SELF | {"oldSelf"})


@pytest.mark.long
def test_an_installed_wheel_has_the_definitions(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    (tmp_path / "x.yaml").write_text(source(f"interval: 1m, {GIT}, verfy: {{}}"))
    code = "import controller.cli as cli; print(cli.__file__); cli.main(['lint', '-f', 'x.yaml'])"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith(str(tmp_path))
    assert 'did you mean "verify"' in done.stdout


@pytest.mark.parametrize("state", ["ENABLED", "ENABELD"])
def test_lint_of_more_flags_takes_no_more_than_their_share(state: str, tmp_path: Path) -> None:
    def count_work(count: int) -> int:
        flag = {"state": state, "variants": {"on": True, "off": False}, "defaultVariant": "on"}
        flags = {f"flag-{at}": flag for at in range(count)}
        file = tmp_path / f"{count}.yaml"
        file.write_text(operators("FeatureFlag", json.dumps({"flagSpec": {"flags": flags}})))
        return work(lambda: judge(read_manifests([str(file)])))

    # The first reads the definitions, which are kept.
    count_work(1)
    assert count_work(480) <= 8 * count_work(60)


def flags_manifest(count: int, size: int = 100) -> str:
    flag = {"state": "ENABLED", "variants": {"on": "x" * size}, "defaultVariant": "on"}
    spec = {"flagSpec": {"flags": {f"flag-{at}": flag for at in range(count)}}}
    metadata = {"name": "large"}
    return json.dumps(
        {
            "apiVersion": "core.openfeature.dev/v1beta1",
            "kind": "FeatureFlag",
            "metadata": metadata,
            "spec": spec,
        }
    )


def test_an_object_that_etcd_does_not_take_is_an_error_that_says_what_a_flagset_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, summary = lint(flags_manifest(4_000, 400), tmp_path, capsys)
    assert "bytes, more than the 1572864 that etcd takes by default; keep these flags in files" in first
    assert re.search(r"which a FlagSet writes into \d+ FlagShards, or make several objects$", first)
    assert summary == "0 valid manifests, 1 error"
    first, _ = lint(flags_manifest(1, 1_600_000), tmp_path, capsys)
    assert "a FlagSet refuses these flags, too: the flag flag-0 takes 16" in first


def test_an_object_of_which_kubectl_keeps_no_copy_has_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, summary = lint(flags_manifest(1_000, 300), tmp_path, capsys)
    assert "note: " in first
    assert first.endswith("in an annotation; apply it with --server-side")
    assert summary == "1 valid manifest, 1 note"
    assert lint(flags_manifest(10), tmp_path, capsys) == ["1 valid manifest"]
