"""`flagstaff lint`: what it prints and how it exits."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from controller.cli import main
from tests.clients.up import banner
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.json").write_text(banner("plain"))
    (tmp_path / "bad.json").write_text(banner("nobody"))
    (tmp_path / "warned.json").write_text(banner("plain", defaultVarient="x"))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["good.json"], 0), (["bad.json"], 1), (["warned.json"], 1), (["--lenient", "warned.json"], 0),
        (["--lenient", "bad.json"], 1), (["good.json", "bad.json"], 1), (["."], 1), (["nothing.json"], 2),
        ([], 2), (["good.json", "--path", "good.json"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)  # fmt: skip
@pytest.mark.usefixtures("folder")
def test_the_exit_code_says_whether_there_are_problems(arguments: list[str], wanted: int) -> None:
    assert main(["lint", *arguments]) == wanted


DEPLOYMENT = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}"


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"flags.json": banner("plain"), "web.yaml": DEPLOYMENT, "package.json": '{"name": "shop"}'}, 0),
        ({"flags.yaml": "flags: {}", "web.yaml": DEPLOYMENT}, 0),
        ({"web.yaml": DEPLOYMENT}, 1),
        ({"package.json": '{"name": "shop", "version": "1.0.0"}'}, 1),
    ],
)
def test_documents_of_other_kinds_are_no_problem_beside_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], wanted: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["lint", "."]) == wanted
    assert main(["lint", "--path", "."]) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "flags: {a: {defaultVariant: 'on'}}",
        "flags: {a: {variants: {new: true}}}",
        "metadata: {team: shop}",
        "flags: {a: {state: ENABLED, variants: {x: 1}, targeting: {if: [{$ref: staff}, x]}}}",
    ],
    ids=["default variant", "variant", "metadata", "reference"],
)
def test_a_layer_checked_on_its_own_is_told_how_to_check_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "production").mkdir()
    (tmp_path / "production/flags.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["lint", "production/flags.yaml"]) == 1
    assert "flagstaff lint --path BASE --path production" in capsys.readouterr().out


def test_a_base_checked_on_its_own_is_named_as_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flags/base").mkdir(parents=True)
    (tmp_path / "flags/base/flags.yaml").write_text("flags: {a: {variants: {new: true}}}")
    monkeypatch.chdir(tmp_path)
    assert main(["lint", "flags/base"]) == 1
    assert "flagstaff lint --path flags/base --path OVERLAY" in capsys.readouterr().out


MANIFESTS = """
kind: List
apiVersion: v1
items:
- apiVersion: flagstaff.dev/v1beta1
  kind: FlagSource
  metadata: {name: flags}
  spec:
    interval: 1m
    git:
      url: https://git.example.com/flags
      ref: {semver: newest, branch: -x}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: flags}, spec: {interval: x}}
---
apiVersion: flagstaff.dev/v1beta1
kind: FlagSet
metadata: {name: flags}
spec: {sourceRef: {kind: FlagSource, name: flags}}
"""


def test_manifests_are_judged_as_the_controller_judges_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "flags.yaml").write_text(MANIFESTS)
    assert main(["lint", "-f", "flags.yaml"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "flags.yaml:12:13: error: FlagSource flags: spec.git.ref.semver: 'newest' is not a version range; "
        "write for example '>=1.0 <2', '1.x' or '^2.1'",
        "flags.yaml:12:29: error: FlagSource flags: spec.git.ref.branch: '-x' is not a valid branch name "
        "in Git",
        "1 valid manifest, 2 errors",
    ]


@pytest.mark.parametrize("more", [["good.json"], ["--path", "good.json"]])
@pytest.mark.usefixtures("folder")
def test_manifests_are_no_definitions(more: list[str]) -> None:
    assert main(["lint", "-f", ".", *more]) == 2


@pytest.mark.usefixtures("folder")
def test_text_names_file_line_and_column(capsys: pytest.CaptureFixture[str]) -> None:
    main(["lint", "bad.json"])
    printed = capsys.readouterr().out
    assert printed.startswith("bad.json:9:25: error: ")
    assert printed.endswith("\n0 valid flags, 1 error\n")


@pytest.mark.usefixtures("folder")
def test_a_lint_that_passed_says_how_many_flags_are_valid(capsys: pytest.CaptureFixture[str]) -> None:
    main(["lint", "good.json"])
    assert capsys.readouterr().out == "1 valid flag\n"


@pytest.mark.parametrize("text", [banner("plain"), "flags:\n  a: {state: ENABLED, variants: {x: 1}}\n"])
def test_standard_input_is_json_or_yaml(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["lint", "-"]) == 0
    assert capsys.readouterr().out == "1 valid flag\n"


def test_a_reference_is_read_instead_of_the_files_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = Repository(tmp_path)
    repository.commit("first", flags__json=banner("plain"))
    repository.write("flags.json", banner("nobody"))
    monkeypatch.chdir(tmp_path)
    for source in ("flags.json", "--path=flags.json"):
        assert main(["lint", source]) == 1
        assert main(["lint", source, "--ref", "HEAD"]) == 0
        assert "flagstaff lint: reading main@sha1:" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["empty", "{}/empty", "nothing"])
def test_a_path_without_definitions_is_named_as_it_was_written(
    path: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty").mkdir()
    path = path.format(folder)
    assert main(["lint", path]) == 2
    assert capsys.readouterr().err.startswith(f"flagstaff lint: {path}: no ")


def test_a_symlink_is_an_error_as_in_a_commit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "link.json").symlink_to("good.json")
    assert main(["lint", "link.json"]) == 1
    assert capsys.readouterr().out.startswith("link.json: error: symlink, not followed")


@pytest.mark.usefixtures("folder")
def test_json_and_sarif_carry_the_same_places(capsys: pytest.CaptureFixture[str]) -> None:
    main(["lint", "bad.json", "--output", "json"])
    (problem,) = json.loads(capsys.readouterr().out)
    main(["lint", "bad.json", "--output", "sarif"])
    (result,) = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["startColumn"]) == (problem["line"], problem["column"])
    assert result["ruleId"] == problem["code"]


def test_an_overlay_needs_its_base(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overlay = {"flags": {"banner": {"defaultVariant": "nobody"}}}
    (folder / "overlay.json").write_text(json.dumps(overlay))
    assert main(["lint", "--path", "good.json", "--path", "overlay.json"]) == 1
    assert capsys.readouterr().out.startswith("overlay.json:1:")


def test_a_misspelt_variant_of_a_rule_fails_unless_lenient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(
        "flags:\n"
        "  f:\n"
        "    state: ENABLED\n"
        "    variants: {on: true, off: false}\n"
        "    defaultVariant: off\n"
        "    targeting: {if: [{var: staff}, onn]}\n"
    )
    assert main(["lint", "a.yaml"]) == 1
    assert capsys.readouterr().out == (
        'a.yaml:6:36: warning: `targeting` can return "onn", which is not a variant (did you mean "on"?); '
        'the variants are "on", "off"\n'
        "1 valid flag, 1 warning\n"
    )
    assert main(["lint", "--lenient", "a.yaml"]) == 0


@pytest.mark.parametrize("words", [["a.json"], ["--path", "a.json"]])
def test_keys_that_look_alike_are_warned_of(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_text(banner("plain"))
    document = json.loads((tmp_path / "a.json").read_text())
    document["flags"]["b\u0430nner"] = document["flags"]["banner"]
    (tmp_path / "a.json").write_text(json.dumps(document))
    assert main(["lint", *words]) == 1
    assert 'warning: the flag "b\u0430nner" looks like "banner" (a.json:1:' in capsys.readouterr().out


def test_a_note_is_printed_and_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.json").write_text('{"flags": {}}')
    (tmp_path / "a.json").write_text(banner("plain"))
    assert main(["lint", "--path", "base.json", "--path", "a.json"]) == 0
    assert ": note: no lower layer has the flag " in capsys.readouterr().out
    assert main(["lint", "--path", "base.json", "--path", "a.json", "--output", "sarif"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    assert result["level"] == "note"


def test_a_folder_without_definitions_is_named_as_it_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("#")
    assert main(["lint", "docs"]) == 2
    assert capsys.readouterr().err.startswith("flagstaff lint: docs: the folder has no *.json")


def test_empty_folder_is_called_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", str(tmp_path)]) == 2
    assert (
        f"{tmp_path}: no definitions (*.json, *.yaml or *.yml): the folder is empty"
        in capsys.readouterr().err
    )


POLICY = """
name: owned
action: Deny
matchConditions: [{name: about, expression: 'plan.change == "CHANGE"'}]
validations: [{expression: has(new.metadata.owner), message: name an owner}]
"""


@pytest.mark.parametrize("words", [["good.json"], ["--path", "good.json"]], ids=["document", "layers"])
def test_flags_are_judged_by_policies_as_they_are(
    folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    policies = folder / "policies"
    policies.mkdir()
    policy = policies / "owned.yaml"
    policy.write_text(POLICY.replace("CHANGE", "Added"))
    assert main(["lint", *words, "--policies", "policies"]) == 0
    policy.write_text(POLICY.replace("CHANGE", "Unchanged"))
    assert main(["lint", *words, "--policies", "policies"]) == 1
    assert 'error: policy owned (Deny): flag "banner": name an owner' in capsys.readouterr().out
    policy.write_text(POLICY.replace("action", "actoin"))
    assert main(["lint", *words, "--policies", "policies"]) == 1
    assert "policies/owned.yaml:3:9: error: actoin: is not known" in capsys.readouterr().out
    assert main(["lint", "-f", "good.json", "--policies", "policies"]) == 2
