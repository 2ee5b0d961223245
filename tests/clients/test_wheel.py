"""The built wheel, installed into clean environments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FLAGS: Final = ROOT / "examples" / "gitops-repo" / "flags"
UV: Final = Path(sys.executable).parent / "uv"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=170)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = run(
        sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("flagstaff-*.whl")
    return built


def install(folder: Path, wanted: str, locked: str) -> Path:
    """The script `flagstaff` of an environment that has nothing but `wanted`."""
    assert run(UV, "venv", "-q", "--python", sys.executable, folder).returncode == 0
    python = folder / "bin" / "python"
    lock = ROOT / "requirements" / locked
    done = run(UV, "pip", "install", "-q", "--python", python, "--constraint", lock, wanted)
    assert done.returncode == 0, done.stderr
    return folder / "bin" / "flagstaff"


def test_wheel_without_extras_runs_and_names_the_extra_of_other_verbs(wheel: Path, tmp_path: Path) -> None:
    flagstaff = install(tmp_path / "env", str(wheel), "evaluator.txt")
    assert run(flagstaff, "--version").stdout.startswith("flagstaff ")
    assert run(flagstaff, "evaluator", "start", "--help").returncode == 0
    for verb in ("lint", "eval", "up", "fleet", "controller"):
        done = run(flagstaff, verb, "--help")
        assert done.returncode == 3
        assert "pip install 'flagstaff[controller]'" in done.stderr
        assert "Traceback" not in done.stderr


def test_wheel_with_the_extra_lints_and_evaluates(wheel: Path, tmp_path: Path) -> None:
    flagstaff = install(tmp_path / "env", f"flagstaff[controller] @ {wheel.as_uri()}", "controller.txt")
    lint = run(flagstaff, "lint", "--path", FLAGS / "base", "--path", FLAGS / "overlays" / "production")
    assert lint.returncode == 0, lint.stdout + lint.stderr
    answer = run(flagstaff, "eval", FLAGS / "base", "max-items", "--context", "tier=gold")
    assert '"value": 100' in answer.stdout, answer.stderr
