"""What the script says of words that it does not know, and of packages that are not installed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import evaluator.cli
from controller.cli import VERBS, main
from evaluator.host.build_version import install_command

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
        ("pu", "flagstaff: there is no verb 'pu'; did you mean 'up'?"),
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


@pytest.mark.parametrize("verb", ["", *VERBS])
@pytest.mark.parametrize("word", ["x\x1b[31mx", "--x\x1b[31m", "--output=\x1b]0;x\x07", "--set=\x9b31m"])
def test_what_is_said_of_a_wrong_word_cannot_steer_a_terminal(
    verb: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*filter(None, [verb]), word, "--no-such-option\x1b[31m"])
    captured = capsys.readouterr()
    assert captured.err
    assert all(line.isprintable() for line in (captured.out + captured.err).splitlines())


@pytest.mark.parametrize(
    "words",
    [["\x1b[31m"], ["start", "--port=\x1b[31m"], ["start", "--uri=\x1b[31m"], ["start", "--x\x1b[31m"]],
)
def test_what_the_evaluator_says_of_a_wrong_word_cannot_steer_a_terminal(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        assert evaluator.cli.main(words) == 2
    assert all(line.isprintable() for line in capsys.readouterr().err.splitlines())


def test_linting_a_folder_loads_no_models_of_kinds(tmp_path: Path) -> None:
    (tmp_path / "flags.yaml").write_text("flags: {}\n")
    lint = f"from controller.cli import main; main(['lint', {str(tmp_path)!r}])"
    heavy = "{'pydantic', 'pygit2', 'git', 'cryptography', 'kubernetes', 'grpc'}"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {lint}; print({heavy} & {{*sys.modules}})"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "set()"


def test_missing_package_names_the_extra_to_install(tmp_path: Path) -> None:
    (tmp_path / "pydantic.py").write_text("raise ModuleNotFoundError(name='pydantic')\n")
    done = subprocess.run(
        [sys.executable, "-m", "controller", "schema"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "the package pydantic is not installed" in done.stderr
    assert f"install all that this needs: {install_command('controller')}" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_arguments_of_a_verb_are_known_without_the_client_of_a_cluster() -> None:
    code = (
        "import sys\n"
        "from controller.cli import whole_parser\n"
        "whole_parser()\n"
        "print(sorted({'kubernetes', 'kopf', 'grpc', 'obstore'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("words", [("flags",), ("explain", "banner")])
def test_a_running_evaluator_is_asked_with_what_its_image_has(words: tuple[str, ...]) -> None:
    code = (
        "import sys\n"
        "sys.modules |= dict.fromkeys(('pydantic', 'pygit2', 'aiohttp', 'kubernetes'))\n"
        "from controller.cli import main\n"
        f"sys.exit(main([*{words!r}, '--to', '127.0.0.1:1']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "cannot reach an evaluator" in done.stderr
    assert done.returncode == 3
