"""The built wheel, installed into clean environments."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from tests.clients.up import banner

if TYPE_CHECKING:
    from tests.repositories import Repository

ROOT: Final = Path(__file__).parents[2]
FLAGS: Final = ROOT / "examples" / "gitops-repo" / "flags"
UV: Final = Path(sys.executable).parent / "uv"
LOCK: Final = ROOT / "requirements" / "controller.txt"
CLUSTER: Final = ("kubernetes", "kopf", "aiosmtplib", "jwt", "sigstore")


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=170, cwd=cwd)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = run(
        sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("flagstaff-*.whl")
    return built


@pytest.fixture(scope="module")
def local(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs after `pip install flagstaff`."""
    return install(tmp_path_factory.mktemp("local"), "--constraint", LOCK, wheel)


def install(folder: Path, *wanted: str | Path) -> Path:
    """The folder of programs of an environment that has nothing but `wanted`."""
    assert run(UV, "venv", "-q", "--clear", "--python", sys.executable, folder).returncode == 0
    done = run(UV, "pip", "install", "-q", "--python", folder / "bin" / "python", *wanted)
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def test_the_wheel_without_extras_leaves_out_what_only_a_cluster_needs(local: Path) -> None:
    code = f"import importlib.util as u; print([name for name in {CLUSTER} if u.find_spec(name)])"
    assert run(local / "python", "-c", code).stdout.strip() == "[]"


def test_the_wheel_without_extras_follows_a_repository(local: Path, repository: Repository) -> None:
    commit = repository.commit("party", flags__json=banner("party"))
    done = run(local / "flagstaff", "up", repository.path, "--once")
    assert (done.returncode, commit[:7] in done.stdout) == (0, True), done.stdout + done.stderr


def test_the_wheel_without_extras_lints_and_evaluates(local: Path) -> None:
    layers = ("--path", FLAGS / "base", "--path", FLAGS / "overlays" / "production")
    lint = run(local / "flagstaff", "lint", *layers)
    assert lint.returncode == 0, lint.stdout + lint.stderr
    answer = run(local / "flagstaff", "eval", FLAGS / "base", "max-items", "--context", "tier=gold")
    assert '"value": 100' in answer.stdout, answer.stderr


def test_the_wheel_without_extras_lints_manifests(local: Path) -> None:
    done = run(local / "flagstaff", "lint", "-f", ROOT / "examples" / "sources")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_has_every_folder_of_the_usual_installation(wheel: Path) -> None:
    kustomization = yaml.safe_load((ROOT / "deploy" / "kustomization.yaml").read_text())
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for folder in (*kustomization["resources"], *kustomization["components"]):
        assert f"controller/deploy/{folder}/kustomization.yaml" in names


def test_the_wheel_without_extras_starts_an_evaluator_alone(local: Path) -> None:
    assert run(local / "flagstaff", "evaluator", "start", "--help").returncode == 0


@pytest.mark.parametrize("words", [("fleet",), ("events",), ("controller",), ("proxy",), ("admission",)])
def test_a_verb_of_a_cluster_says_how_to_install_what_it_needs(
    local: Path, wheel: Path, words: tuple[str, ...]
) -> None:
    done = run(local / "flagstaff", *words)
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"pip install 'flagstaff[controller] @ {wheel.as_uri()}'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_the_wheel_with_the_extra_has_what_controller_and_proxy_need(wheel: Path, tmp_path: Path) -> None:
    programs = install(tmp_path, "--constraint", LOCK, f"flagstaff[controller] @ {wheel.as_uri()}")
    modules = (
        "controller.app.controller_process, controller.app.proxy_process, controller.app.admission_process"
    )
    done = run(programs / "python", "-c", f"import {modules}")
    assert done.returncode == 0, done.stderr
    assert run(programs / "flagstaff", "controller", "--help").returncode == 0


def test_the_evaluators_lock_alone_serves_and_other_verbs_name_the_missing_package(
    wheel: Path, tmp_path: Path
) -> None:
    lock = ROOT / "requirements" / "evaluator.txt"
    programs = install(tmp_path, "--require-hashes", "-r", lock)
    assert (
        run(UV, "pip", "install", "-q", "--python", programs / "python", "--no-deps", wheel).returncode == 0
    )
    assert run(programs / "flagstaff", "evaluator", "start", "--help").returncode == 0
    done = run(programs / "flagstaff", "up", ".")
    assert done.returncode == 3
    assert f"pip install 'flagstaff[controller] @ {wheel.as_uri()}'" in done.stderr


def test_uvx_follows_the_repository_of_the_current_folder(wheel: Path, repository: Repository) -> None:
    commit = repository.commit("party", flags__json=banner("party"))
    uvx = (UV.with_name("uvx"), "-q", "--python", sys.executable, "--constraints", LOCK)
    done = run(*uvx, "--from", wheel, "flagstaff", "up", ".", "--once", cwd=repository.path)
    assert (done.returncode, commit[:7] in done.stdout) == (0, True), done.stdout + done.stderr


def test_the_wheel_tells_its_commit_and_when_it_was_built(local: Path) -> None:
    version = run(local / "flagstaff", "--version").stdout
    assert version == run(local / "flagstaff", "evaluator", "version").stdout
    assert re.fullmatch(
        r"flagstaff [0-9.]+ \(commit [0-9a-f]{12}, built 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ\)\n", version
    )
