"""The workflows, judged by actionlint, a Go module that is built once (half a minute)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.go import ROOT, Module, program

ACTIONLINT: Final = Module(
    "actionlint",
    Path(__file__).parent,
    "actionlint: half a minute",
    package="github.com/rhysd/actionlint/cmd/actionlint",
)
WORKFLOWS: Final = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
ACTION: Final = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40}")


def lint(file: Path) -> subprocess.CompletedProcess[str]:
    linter = program(ACTIONLINT, "NO WORKFLOW IS JUDGED: actionlint cannot be built")
    return subprocess.run([linter, "-no-color", file], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_actionlint_finds_nothing_in_a_workflow(file: Path) -> None:
    done = lint(file)
    assert (done.stdout, done.returncode) == ("", 0)


def test_actionlint_finds_a_mistake(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text(WORKFLOWS[0].read_text(encoding="utf-8").replace("runs-on", "run-on"), encoding="utf-8")
    assert '"run-on"' in lint(broken).stdout


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_every_action_is_pinned_by_its_commit(file: Path) -> None:
    jobs = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]
    used = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]
    assert used
    assert [action for action in used if not ACTION.fullmatch(action)] == []


def test_a_release_looks_for_vulnerabilities_first_and_builds_with_pinned_packages() -> None:
    (job,) = yaml.safe_load((ROOT / ".github/workflows/release.yaml").read_text(encoding="utf-8"))[
        "jobs"
    ].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands[0] == "make audit"
    assert 'BASE="python:3.11-slim@$digest"' in commands[1]
    assert 'SNAPSHOT="$(date -u +%Y%m%dT000000Z)"' in commands[1]
    for name in ("BASE", "SNAPSHOT"):
        assert f'echo "{name}=$(cat dist/{name})"' in commands[1]


def test_ci_runs_what_a_developer_runs() -> None:
    (job,) = yaml.safe_load((ROOT / ".github/workflows/ci.yaml").read_text(encoding="utf-8"))["jobs"].values()
    assert ".ci/run" in [step.get("run") for step in job["steps"]]
