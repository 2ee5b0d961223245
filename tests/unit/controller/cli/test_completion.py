"""The script that completes verbs and options, run by the shell that it is for."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from controller.cli import main
from controller.cli.completion import SHELLS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def script(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", request.param]) == 0
    file = tmp_path / "completion"
    file.write_text(capsys.readouterr().out)
    return file


@pytest.mark.parametrize("script", ["bash"], indirect=True)
@pytest.mark.parametrize(
    ("words", "completed"),
    [("hist", {"history"}), ("reconcile --with", {"--with-source"}), ("get --out", {"--output"})],
)
def test_bash_completes_verbs_and_options(words: str, completed: set[str], script: Path) -> None:
    typed = ["flagstaff", *words.split()]
    program = (
        f"source {script}; COMP_WORDS=({' '.join(typed)}); COMP_CWORD={len(typed) - 1}; "
        "_shtab_flagstaff; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert {word.strip() for word in done.stdout.splitlines()} == completed


@pytest.mark.parametrize("script", SHELLS, indirect=True, ids=SHELLS)
def test_script_names_each_new_verb_and_its_shell_accepts_it(
    script: Path, request: pytest.FixtureRequest
) -> None:
    assert "reconcile" in script.read_text()
    shell = request.node.callspec.params["script"]
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, "-n", str(script)], check=True)
