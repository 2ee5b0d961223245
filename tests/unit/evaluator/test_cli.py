from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from controller import cli as flagstaff
from evaluator import cli
from evaluator.settings import OPTIONS
from tests.go import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "there is no source of flags; give --uri or --sources"),
        (["--uri", "flags.json"], "must start with file:"),
        (["-f", "file:flags.json", "--stream-deadline", "10"], "--stream-deadline is"),
        (["-f", "core.openfeature.dev/a/b"], "no access to Kubernetes"),
        (["--config", "none.json"], "cannot be read"),
        (["-f", "file:flags.json", "--sync-http-enabled"], "GET /v1/flags is not offered"),
        (
            ["-f", "file:flags.json", "--port", "99999"],
            '--port is "99999": must be a whole number from 0 to 65535',
        ),
        (["-f", "file:flags.json", "--cors-origin", "https://*.*"], "--cors-origin: "),
    ],
    ids=[
        "no source", "bad uri", "bad value", "refused", "no file", "refused switch", "bad port", "bad origin",
    ],
)  # fmt: skip
def test_an_invalid_command_line_is_reported_in_a_line_and_exits_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flagstaff.main(["evaluator", "start", *words]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert said in output.err
    assert len(output.err.splitlines()) == 1


@pytest.mark.parametrize("words", [["start", "--prot", "1"], ["start", "-q"], ["begin"], []])
def test_an_unknown_option_or_verb_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "usage: " in said
    assert len(said.splitlines()) <= 3


def test_an_option_is_not_taken_by_its_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.parse(["start", "--sourc", "[]"])
    assert "unrecognized arguments" in capsys.readouterr().err


def test_a_checkout_tells_its_version_and_the_commit_of_git(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert cli.main(["version"]) == 0
    told = capsys.readouterr().out
    assert re.fullmatch(rf"flagstaff \d+\.\d+\.\d+ \(commit {head[:12]}, not built\)\n", told)


def test_help_names_every_option_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["start", "--help"])
    usage = capsys.readouterr().out
    assert caught.value.code == 0
    assert [o.name for o in OPTIONS if (f"--{o.name}" in usage) == bool(o.refusal)] == []


HEAVY = {
    "kopf", "pygit2", "pydantic", "git", "kubernetes", "grpc", "obstore", "opentelemetry", "yaml", "urllib3",
    "prometheus_client", "importlib.metadata", "http.client", "evaluator.receipts.reporter",
}  # fmt: skip
"""The controller's libraries, and what only some evaluators need: each is 5 ms of a start, or far more."""


def test_a_plain_start_imports_nothing_that_it_does_not_need() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "from controller.cli import main\n"
        "assert main(['evaluator', 'start', '-f', 'nothing']) == 2\n"
        "import evaluator.wiring\n"
        f"print(sorted({HEAVY!r} & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
