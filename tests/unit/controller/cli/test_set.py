"""`flagstaff set`: one flag changes in its file."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from controller.cli import main
from controller.cli.definition_changes import write_texts
from controller.cli.printing import Exit
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
    assert "1 flag differs; it gives up to 15 % of users another value" in capsys.readouterr().out


def test_a_flag_without_a_rule_is_divided_between_the_variant_and_the_default(repository: Repository) -> None:
    assert change(repository, "plain", "--percent", "on=2.5") == 0
    assert 'defaultVariant: off, targeting: {fractional: [["on", 25], ["off", 975]]}}' in base(repository)


@pytest.mark.parametrize(
    ("words", "old", "new"),
    [
        (("--default", "on"), "false}, defaultVariant: off}", 'false}, defaultVariant: "on"}'),
        (("--disable",), "plain: {state: ENABLED", "plain: {state: DISABLED"),
        (
            ("--rule", "{if: [{var: beta}, on]}"),
            "defaultVariant: off}",
            'defaultVariant: off, targeting: {if: [{var: beta}, "on"]}}',
        ),
    ],
)
def test_default_state_and_rule_are_set(
    repository: Repository, words: tuple[str, ...], old: str, new: str
) -> None:
    assert change(repository, "plain", *words) == 0
    assert base(repository) == BASE.replace(old, new)


LAID_OUT = """\
flags:
  cart:
    state: ENABLED
    variants: {"on": true, "off": false, "2026-01-01": true} # the new one
    defaultVariant: "off"
    metadata: {owner: shop}

$evaluators:
  beta:
    in: [{var: release}, ["1.10", "2.0"]]
"""


@pytest.mark.parametrize(
    ("words", "old", "new"),
    [
        (("cart", "--default", "2026-01-01"), 'defaultVariant: "off"', 'defaultVariant: "2026-01-01"'),
        (
            ("cart", "--rule", '{if: [{in: [{var: release}, ["1.0"]]}, on]}'),
            '"off"\n',
            '"off"\n    targeting: {if: [{in: [{var: release}, ["1.0"]]}, "on"]}\n',
        ),
        (("--add-to", "beta", "no"), '"2.0"', '"2.0", "no"'),
        (("--add-to", "beta", "1.20"), '"2.0"', '"2.0", "1.20"'),
        (
            ("--add-to", "beta", "x" * 70),
            '[{var: release}, ["1.10", "2.0"]]',
            f"""[
      {{var: release}},
      ["1.10", "2.0", {"x" * 70}]
    ]""",
        ),
    ],
)
def test_a_file_in_the_layout_of_fmt_stays_in_it(
    repository: Repository, words: tuple[str, ...], old: str, new: str
) -> None:
    file = repository.path / "base" / "flags.yaml"
    file.write_text(LAID_OUT)
    (repository.path / "top" / "flags.yaml").write_text("flags: {}\n")
    assert main(["fmt", "--check", str(file)]) == 0
    assert change(repository, *words) == 0
    assert file.read_text() == LAID_OUT.replace(old, new)
    assert main(["fmt", "--check", str(file)]) == 0


def test_of_several_layers_one_is_to_be_named(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert change(repository, "cart", "--default", "off") == 2
    assert "choose --layer base or --layer top" in capsys.readouterr().err
    assert change(repository, "cart", "--default", "off", "--layer", "top") == 0
    assert (repository.path / "top" / "flags.yaml").read_text() == OVERLAY.replace("on", '"off"')


@pytest.mark.parametrize(
    ("answer", "changed"), [("2\n", True), ("top\n", True), ("3\n", False), ("\n", False)]
)
def test_on_a_terminal_the_layer_is_asked_for(
    repository: Repository,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    changed: bool,
) -> None:
    terminal, program = os.openpty()
    os.write(terminal, answer.encode())
    with os.fdopen(program) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert change(repository, "cart", "--default", "off") == (0 if changed else 2)
    os.close(terminal)
    said = capsys.readouterr().err
    assert "several layers define the flag 'cart'\n1  base\n2  top\nwhich layer? " in said
    assert (repository.path / "top" / "flags.yaml").read_text() == (
        OVERLAY.replace("on", '"off"') if changed else OVERLAY
    )
    assert ("choose --layer base or --layer top" in said) is not changed


def test_a_file_that_changed_meanwhile_is_not_written_nor_any_other(tmp_path: Path) -> None:
    for name in ("one.yaml", "two.yaml"):
        (tmp_path / name).write_text("mine")
    texts = {"one.yaml": (b"mine", b"new"), "two.yaml": (b"read", b"new")}
    with pytest.raises(Exit, match=r"two\.yaml changed meanwhile; nothing was written"):
        write_texts(tmp_path, texts)
    assert (tmp_path / "one.yaml").read_text() == "mine"
    with pytest.raises(Exit, match=r"one\.yaml changed meanwhile"):
        write_texts(tmp_path, {"one.yaml": (None, b"new")})


SHARED = """\
$evaluators:
  beta: # who is in
    in:
      - {var: targetingKey}
      - - ann   # the first
        - bob
  levels: {in: [{var: level}, [1, 2]]}
  other: {"==": [{var: a}, b]}
  many: {in: [{var: a}, {file: many.segment.txt}]}
  wide: {in: [{var: a}, {file: wide.segment.csv, column: id}]}
  gone: {in: [{var: a}, {file: gone.segment.txt}]}
  both: {or: [{in: [{var: a}, {file: many.segment.txt}]}, {in: [{var: a}, [x]]}]}
flags: {}
"""


@pytest.fixture
def shared(repository: Repository) -> Path:
    file = repository.path / "base" / "shared.yaml"
    file.write_text(SHARED)
    file.with_name("many.segment.txt").write_bytes(b"ann\r\n\r\nbob\r\n")
    file.with_name("wide.segment.csv").write_text("id,name\nu1,Ann\nu2,Bob\n")
    return file


@pytest.mark.parametrize(
    ("words", "old", "new"),
    [
        (("--add-to", "beta", "eve"), "- bob\n", "- bob\n        - eve\n"),
        (("--add-to", "beta", "1"), "- bob\n", '- bob\n        - "1"\n'),
        (("--add-to", "levels", "3"), "[1, 2]", "[1, 2, 3]"),
        (("--remove-from", "beta", "ann"), "- - ann   # the first\n        - bob", "- - bob"),
        (("--remove-from", "levels", "2"), "[1, 2]", "[1]"),
        (("--add-to", "beta", "bob"), "", ""),
    ],
)
def test_a_value_is_added_to_a_shared_list_or_removed(
    repository: Repository, shared: Path, words: tuple[str, ...], old: str, new: str
) -> None:
    assert change(repository, *words) == 0
    assert shared.read_text() == SHARED.replace(old, new)


@pytest.mark.parametrize(
    ("words", "file", "made"),
    [
        (("--add-to", "many", "eve"), "many.segment.txt", b"ann\r\n\r\nbob\r\neve\r\n"),
        (("--add-to", "many", "bob"), "many.segment.txt", b"ann\r\n\r\nbob\r\n"),
        (("--remove-from", "many", "ann"), "many.segment.txt", b"\r\nbob\r\n"),
        (("--remove-from", "wide", "u1"), "wide.segment.csv", b"id,name\nu2,Bob\n"),
    ],
)
def test_a_value_is_added_to_a_list_in_a_file_or_removed(
    repository: Repository, shared: Path, words: tuple[str, ...], file: str, made: bytes
) -> None:
    text = shared.read_text().replace("  gone: {in: [{var: a}, {file: gone.segment.txt}]}\n", "")
    shared.write_text(text)
    assert change(repository, *words) == 0
    assert shared.with_name(file).read_bytes() == made
    assert shared.read_text() == text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--add-to", "btea", "eve"), "no layer has 'btea' in `$evaluators`; did you mean 'beta'?"),
        (("--add-to", "other", "eve"), "searches no list by `in`"),
        (("--add-to", "both", "eve"), "searches several lists by `in`"),
        (
            ("--add-to", "wide", "u3"),
            "'wide.segment.csv' beside base/shared.yaml: a row has id, name, and one value is given",
        ),
        (("--remove-from", "wide", "u3"), "the list has no 'u3'"),
        (("--add-to", "gone", "eve"), 'there is no file "gone.segment.txt" beside this one'),
        (("--add-to", "levels", "high"), "the list has numbers alone"),
        (("--remove-from", "beta", "bbo"), "has no 'bbo'; did you mean 'bob'?"),
        (("cart", "--add-to", "beta", "eve"), "all others need a FLAG"),
        (("--disable",), "all others need a FLAG"),
    ],
)
def test_a_list_that_cannot_be_changed_so_stays(
    repository: Repository,
    shared: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    assert change(repository, *words) == 2
    assert said in capsys.readouterr().err
    assert shared.read_text() == SHARED


def test_a_patch_is_printed_that_git_applies(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert change(repository, "plain", "--default", "on", "-o", "patch") == 0
    assert base(repository) == BASE
    patch = capsys.readouterr().out
    subprocess.run(["git", "-C", str(repository.path), "apply"], input=patch, text=True, check=True)
    assert 'false}, defaultVariant: "on"}' in base(repository)


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
