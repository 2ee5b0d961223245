"""The .deb, unpacked into a root of its own and started there, and its units."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from release.debian_package import build_debian_package
from tests.clients.asking import served_value
from tests.clients.up import banner
from tests.go import ROOT
from tests.release.test_release import one
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dist = tmp_path_factory.mktemp("dist")
    hatchling = [f"{sys.prefix}/bin/hatchling", "build", "-t", "wheel", "-d", str(dist)]
    subprocess.run(hatchling, cwd=ROOT, check=True, capture_output=True)
    return build_debian_package(one(dist, "*.whl"), "0.1.0", dist)


@pytest.fixture(scope="module")
def root(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What dpkg makes of it in a root without other packages."""
    made = tmp_path_factory.mktemp("root")
    for folder in ("info", "updates"):
        (made / "var/lib/dpkg" / folder).mkdir(parents=True)
    (made / "var/lib/dpkg/status").touch()
    words = ["dpkg", f"--root={made}", "--force-depends", "--force-not-root", "-i", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_dpkg_installs_it_and_keeps_what_an_administrator_edits(root: Path) -> None:
    status = (root / "var/lib/dpkg/status").read_text(encoding="utf-8")
    assert "Package: flagstaff\nStatus: install ok installed" in status
    assert set(re.findall(r"^ (/etc/\S+) ", status, re.MULTILINE)) == {
        "/etc/flagstaff/evaluator.env", "/etc/flagstaff/up.env",
    }  # fmt: skip
    for unit in ("up", "evaluator"):
        text = (root / f"usr/lib/systemd/system/flagstaff-{unit}.service").read_text(encoding="utf-8")
        program = re.findall(r"^ExecStart=(\S+)", text, re.MULTILINE)
        assert [(root / path[1:]).is_file() for path in program] == [True]


@pytest.mark.skipif(shutil.which(PYTHON) is None, reason=f"needs {PYTHON}, by which the package runs")
def test_it_serves_flags_from_there_without_any_other_package(root: Path, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(flags__json=banner("party"))
    home = root / "opt/flagstaff"
    ports = [word for name in ("", "sync-", "ofrep-", "management-") for word in (f"--{name}port", "0")]
    # Its script names its interpreter by the path that it has once it is installed.
    program = [str(home / "bin/python3"), str(home / "bin/flagstaff")]
    command = [*program, "up", str(repository.path), "--json", *ports]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE) as running:
        try:
            assert running.stdout is not None
            ready = json.loads(running.stdout.readline())
            assert served_value(ready["ports"]["ofrep"]) == "Hooray"
        finally:
            running.terminate()
    where = [program[0], "-c", "import evaluator; print(evaluator.__file__)"]
    done = subprocess.run(where, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{home}/lib/")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", ["up", "evaluator"])
def test_a_unit_is_hardened(unit: str) -> None:
    path = ROOT / "release" / "systemd" / f"flagstaff-{unit}.service"
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=15", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
