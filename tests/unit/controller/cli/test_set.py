"""`flagstaff set`: one flag changes in its file."""

from __future__ import annotations

import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from controller.cli import main
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

BASE = """\
flags:
  cart:                # the new one
    state: ENABLED
    variants: {on: true, off: false}
    defaultVariant: off
    targeting: {fractional: [[on, 10], [off, 90]]}
  plain: {state: ENABLED, variants: {on: true, off: false}, defaultVariant: off}
"""
OVERLAY = "flags:\n  cart:\n    defaultVariant: on\n"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "flags")
    (made.path / "base").mkdir()
    (made.path / "top").mkdir()
    (made.path / "base" / "flags.yaml").write_text(BASE)
    (made.path / "top" / "flags.yaml").write_text(OVERLAY)
    for words in (["add", "."], ["commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(made.path), *words], check=True)
    return made


def change(repository: Repository, *words: str) -> int:
    return main(["set", *words, "--source", str(repository.path), "--path", "base", "--path", "top"])


def base(repository: Repository) -> str:
    return (repository.path / "base" / "flags.yaml").read_text()


def test_a_share_grows_in_the_file_and_the_change_is_printed(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert change(repository, "cart", "--percent", "on=25", "--layer", "base") == 0
    assert base(repository) == BASE.replace("[on, 10], [off, 90]", "[on, 25], [off, 75]")
    assert "1 flag differs: 1 changed" in capsys.readouterr().out


def test_a_flag_without_a_rule_is_divided_between_the_variant_and_the_default(repository: Repository) -> None:
    assert change(repository, "plain", "--percent", "on=2.5") == 0
    assert "defaultVariant: off, targeting: {fractional: [[on, 25], [off, 975]]}}" in base(repository)


@pytest.mark.parametrize(
    ("words", "old", "new"),
    [
        (("--default", "on"), "false}, defaultVariant: off}", "false}, defaultVariant: on}"),
        (("--disable",), "plain: {state: ENABLED", "plain: {state: DISABLED"),
        (
            ("--rule", "{if: [{var: beta}, on]}"),
            "defaultVariant: off}",
            "defaultVariant: off, targeting: {if: [{var: beta}, on]}}",
        ),
    ],
)
def test_default_state_and_rule_are_set(
    repository: Repository, words: tuple[str, ...], old: str, new: str
) -> None:
    assert change(repository, "plain", *words) == 0
    assert base(repository) == BASE.replace(old, new)


def test_of_several_layers_one_is_to_be_named(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert change(repository, "cart", "--default", "off") == 2
    assert "choose --layer base or --layer top" in capsys.readouterr().err
    assert change(repository, "cart", "--default", "off", "--layer", "top") == 0
    assert (repository.path / "top" / "flags.yaml").read_text() == OVERLAY.replace("on", "off")


def test_a_patch_is_printed_that_git_applies(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert change(repository, "plain", "--default", "on", "--dry-run", "-o", "patch") == 0
    assert base(repository) == BASE
    patch = capsys.readouterr().out
    subprocess.run(["git", "-C", str(repository.path), "apply"], input=patch, text=True, check=True)
    assert "false}, defaultVariant: on}" in base(repository)


def test_a_commit_has_the_file_and_nothing_else(repository: Repository) -> None:
    (repository.path / "notes").write_text("mine")
    subprocess.run(["git", "-C", str(repository.path), "add", "notes"], check=True)
    assert change(repository, "plain", "--default", "on", "--commit") == 0
    shown = ["git", "-C", str(repository.path), "show", "--format=%s", "--name-only"]
    subject, _, file = subprocess.run(shown, capture_output=True, text=True, check=True).stdout.splitlines()
    assert subject.startswith("plain: default off (false) → on (true)")
    assert file == "base/flags.yaml"


def test_a_change_that_would_be_a_problem_is_not_written(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert change(repository, "plain", "--default", "onn") == 1
    assert "nothing was written" in capsys.readouterr().err
    assert base(repository) == BASE


def test_the_file_keeps_its_mode(repository: Repository) -> None:
    file = repository.path / "base" / "flags.yaml"
    file.chmod(0o640)
    assert change(repository, "plain", "--disable") == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_link_is_not_followed(repository: Repository, tmp_path: Path) -> None:
    outside = tmp_path / "outside.yaml"
    outside.write_text(BASE)
    file = repository.path / "base" / "flags.yaml"
    file.unlink()
    file.symlink_to(outside)
    assert change(repository, "plain", "--disable") != 0
    assert outside.read_text() == BASE


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("palin", "--disable"), "did you mean"),
        (("cart", "--percent", "on=101", "--layer", "base"), "from 0 to 100"),
        (("cart", "--percent", "no=1", "--layer", "base"), "has no variant"),
        (("plain", "--rule", "[1]"), "no object of JSON or YAML"),
    ],
)
def test_wrong_usage_says_what_is_possible(
    repository: Repository, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    try:
        code = change(repository, *words)
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert said in capsys.readouterr().err
    assert base(repository) == BASE
