"""`flagstaff test`: the tests of flags in a folder or a commit."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from controller.cli import main
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

FLAGS = """\
flags:
  banner: {state: ENABLED, variants: {"on": true, "off": false}, defaultVariant: "off"}
"""
PASSES = "tests:\n  - {name: it is off, flag: banner, expect: {value: false}}\n"
FAILS = "tests:\n  - {name: it is on, flag: banner, expect: {value: true}}\n"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.yaml").write_text(FLAGS)
    (tmp_path / "shop.flagtest.yaml").write_text(PASSES)
    return tmp_path


def test_passing_tests_exit_with_0_and_say_what_they_cover(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["test"]) == 0
    assert capsys.readouterr().out == (
        "1 test, 0 failed; coverage 50.0 %: 1 of 1 flags, 1 of 2 variants, 0 of 0 branches\n"
    )


def test_a_failing_test_exits_with_1_and_says_where_and_why(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (shop / "shop.flagtest.yaml").write_text(FAILS)
    assert main(["test", "shop.yaml"]) == 1
    assert capsys.readouterr().out.splitlines()[:3] == [
        'shop.flagtest.yaml:2:5: error: the test "it is on" fails: expected value true; came variant "off", '
        "value false, reason STATIC",
        "  flag: the flag has no targeting",
        '  flag: STATIC: the default variant, "off"',
    ]


def test_a_failing_test_of_an_evaluator_names_the_flags_that_use_it(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = '{if: [{$ref: staff}, "on", "off"]}'
    with_rule = FLAGS.replace('defaultVariant: "off"', f'defaultVariant: "off", targeting: {rule}')
    (shop / "shop.yaml").write_text(f'{with_rule}$evaluators: {{staff: {{"==": [{{var: team}}, staff]}}}}\n')
    (shop / "shop.flagtest.yaml").write_text(
        "tests:\n  - {name: all, evaluator: staff, expect: {value: true}}\n"
    )
    assert main(["test"]) == 1
    assert 'came value false; used by "banner"' in capsys.readouterr().out
    assert main(["test", "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["tests"][0]["users"] == ["banner"]
    assert main(["test", "-o", "junit"]) == 1
    assert "used by banner" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["json", "junit", "sarif", "github"])
def test_every_form_exits_with_1_where_a_test_fails(
    shop: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (shop / "shop.flagtest.yaml").write_text(FAILS)
    assert main(["test", "-o", form]) == 1
    assert "it is on" in capsys.readouterr().out


def test_coverage_lists_what_no_test_reaches(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "--coverage"]) == 0
    assert capsys.readouterr().out.startswith('no test reaches banner: variant "on"\n')


@pytest.mark.parametrize(("least", "code"), [("50", 0), ("50.1", 1)])
def test_too_little_coverage_exits_with_1(shop: Path, least: str, code: int) -> None:
    assert main(["test", "--min-coverage", least]) == code


def test_a_share_of_coverage_is_a_percentage(shop: Path) -> None:
    with pytest.raises(SystemExit):
        main(["test", "--min-coverage", "101"])


def test_a_folder_without_tests_exits_with_1(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "shop.flagtest.yaml").unlink()
    assert main(["test"]) == 1
    assert "error: no *.flagtest.yaml is beside the definitions of .\n" in capsys.readouterr().out


def test_a_flag_with_a_problem_skips_its_tests(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "shop.yaml").write_text(FLAGS.replace('"off"}', '"of"}'))
    assert main(["test", "-o", "json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert [case["result"] for case in record["tests"]] == ["skipped"]
    assert "defaultVariant" in record["problems"][0]


def test_layers_are_tested_as_the_set_that_they_make(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "production").mkdir()
    (shop / "production" / "shop.yaml").write_text('flags: {banner: {defaultVariant: "on"}}')
    layers = ["test", ".", "--path", "production"]
    assert main(layers) == 1
    (shop / "production" / "shop.flagtest.yaml").write_text(FAILS.replace("it is on", "it is off"))
    assert main(layers) == 0


@pytest.mark.parametrize("path", ["{}", "{}/shop.yaml", "../{name}", "../{name}/shop.yaml"])
def test_one_path_may_lead_out_of_the_current_folder(
    shop: Path, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["test", path.format(shop, name=shop.name)]) == 0
    assert capsys.readouterr().out.startswith("1 test, 0 failed")


def test_a_commit_is_tested_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository = Repository(tmp_path / "repository")
    repository.write("shop.yaml", FLAGS)
    repository.write("shop.flagtest.yaml", PASSES)
    repository.commit("tested")
    repository.write("shop.flagtest.yaml", FAILS)
    assert main(["test", "--source", str(repository.path)]) == 1
    assert main(["test", "--source", str(repository.path), "--ref", "HEAD"]) == 0


def test_watching_needs_files_on_disk(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "--watch", "--ref", "HEAD"]) == 2
    assert "--watch reads the files of a folder" in capsys.readouterr().err


def test_watching_tests_again_when_a_file_changes(shop: Path) -> None:
    command = [sys.executable, "-m", "controller", "test", "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().startswith("1 test, 0 failed")
        (shop / "shop.flagtest.yaml").write_text(FAILS)
        assert "it is on" in watching.stdout.readline()
        watching.terminate()


@pytest.mark.parametrize(("mode", "word"), [("Require", "error"), ("Warn", "warning"), ("Off", "")])
def test_up_runs_the_tests_as_a_flag_set_does(
    shop: Path, mode: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (shop / "shop.flagtest.yaml").write_text(FAILS)
    assert main(["up", ".", "--worktree", "--once", "--tests", mode]) == (1 if word else 0)
    said = capsys.readouterr()
    assert (f'{word}: the test "it is on" fails' in said.out + said.err) is bool(word)


@pytest.mark.parametrize("command", [["lint", "."], ["eval", ".", "banner"]])
def test_other_verbs_do_not_take_tests_for_definitions(
    shop: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (shop / "shop.flagtest.yaml").write_text("tests: [")
    assert main(command) == 0


def test_a_file_of_tests_is_no_file_of_definitions(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "shop.flagtest.yaml"]) == 2
    assert "the file has tests of flags, not definitions" in capsys.readouterr().err


def test_manifests_beside_tests_are_linted_without_them(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (shop / "shop.flagtest.yaml").write_text("tests: [")
    assert main(["lint", "-f", "."]) == 0


def test_testing_loads_no_client_of_a_cluster(shop: Path) -> None:
    test = "from controller.cli import main; main(['test'])"
    heavy = "{'git', 'cryptography', 'kubernetes', 'grpc', 'kopf'}"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {test}; print({heavy} & {{*sys.modules}})"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "set()"
