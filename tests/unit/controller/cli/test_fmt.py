"""`flagstaff fmt`: which files it lays out, what it prints, and how it ends."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from controller.cli import main

LOOSE = "flags:\n    a: {variants: {on: true}, state: ENABLED} # first\n"
MADE = 'flags:\n  a: {state: ENABLED, variants: {"on": true}} # first\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    files = {
        "flags/a.yaml": LOOSE,
        "flags/done.yaml": MADE,
        "flags/a.flagtest.yaml": "tests:   []\n",
        "values.yaml": "image:   {tag: on}\n",
        "manifests.yaml": "flags:   1\n---\nflags:   2\n",
        ".hidden/a.yaml": LOOSE,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_files_of_a_folder_that_are_ours_are_laid_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {file: file.read_text() for file in folder.rglob("*.yaml")}
    assert main(["fmt"]) == 0
    changed = {
        file.relative_to(folder).as_posix() for file, text in before.items() if file.read_text() != text
    }
    assert changed == {"flags/a.yaml", "flags/a.flagtest.yaml"}
    assert (folder / "flags/a.yaml").read_text() == MADE
    assert capsys.readouterr().out == "flags/a.flagtest.yaml: formatted\nflags/a.yaml: formatted\n"
    assert main(["fmt", "--check"]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_check_ends_with_1_and_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmt", "--check", "flags/a.yaml", "flags/done.yaml"]) == 1
    assert capsys.readouterr().out == "flags/a.yaml: would be formatted\n"
    assert (folder / "flags/a.yaml").read_text() == LOOSE


def test_the_examples_have_the_layout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmt", "--check", str(Path(__file__).parents[4] / "examples")]) == 0
    assert capsys.readouterr().out == ""


def test_a_difference_is_printed_as_a_patch(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmt", "--diff", "flags"]) == 0
    printed = capsys.readouterr().out
    assert "--- a/flags/a.yaml\n+++ b/flags/a.yaml\n" in printed
    assert '+  a: {state: ENABLED, variants: {"on": true}} # first\n' in printed
    assert (folder / "flags/a.yaml").read_text() == LOOSE
    assert main(["fmt", "--diff", "--check", "flags"]) == 1


def test_a_broken_file_stays_and_the_others_are_laid_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "flags/b.yaml").write_text("flags: {}}\n")
    (folder / "flags/c.yaml").write_bytes(b"flags: \xff\n")
    assert main(["fmt", "flags"]) == 2
    said = capsys.readouterr().err
    assert "flags/b.yaml:1:10: error: the YAML is broken here" in said
    assert "flags/c.yaml: error: byte 0xff on line 1 is not UTF-8" in said
    assert (folder / "flags/b.yaml").read_text() == "flags: {}}\n"
    assert (folder / "flags/a.yaml").read_text() == MADE


def test_a_template_is_left_alone_with_a_remark(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "flags/a.yaml").write_text("flags: {{ .Values.flags }}\n")
    assert main(["fmt", "--check", "flags/a.yaml"]) == 0
    assert "flagstaff fmt: flags/a.yaml is left alone: it is a template" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "made"), [(LOOSE, MADE), ('{"flags":{}}', '{"flags": {}}\n'), (MADE, MADE)]
)
def test_standard_input_comes_out_laid_out(
    source: str, made: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(source.encode())))
    assert main(["fmt", "-"]) == 0
    assert capsys.readouterr().out == made


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["gone.yaml"], 3, "gone.yaml: No such file or directory"),
        (["README.md"], 2, "README.md is no *.json, *.yaml or *.yml"),
        (["-", "flags"], 2, "- is standard input, and stands alone"),
    ],
)
def test_a_path_that_cannot_be_laid_out_is_refused(
    words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fmt", *words]) == code
    assert message in capsys.readouterr().err
