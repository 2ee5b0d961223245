"""What the script says of words that it does not know, and of packages that are not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from controller.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("up . --paht x", "flagstaff up: unrecognized arguments: --paht x; did you mean '--path'?"),
        (
            "evaluator start --sorces x",
            "flagstaff evaluator: unrecognized arguments: --sorces x; did you mean",
        ),
        ("lint . --qqqqqq", "flagstaff lint: unrecognized arguments: --qqqqqq\n"),
        ("flet", "flagstaff: there is no verb 'flet'; did you mean 'fleet'?"),
        ("--vresion", "flagstaff: unrecognized arguments: --vresion; did you mean '--version'?"),
    ],
)
def test_unknown_word_is_refused_by_its_verb_with_a_suggestion(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_missing_package_names_the_extra_to_install(tmp_path: Path) -> None:
    (tmp_path / "pydantic.py").write_text("raise ModuleNotFoundError(name='pydantic')\n")
    done = subprocess.run(
        [sys.executable, "-m", "controller", "lint", "."],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "the package pydantic is not installed" in done.stderr
    assert "pip install 'flagstaff[controller]'" in done.stderr
    assert "Traceback" not in done.stderr
