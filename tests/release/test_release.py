"""`make release`, whole, into a folder of its own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from release.build_hook import BUILD_FILE
from release.notes import MissingNotesError, read_notes
from tests.go import ROOT
from tests.helm.program import program as helm

if TYPE_CHECKING:
    from pathlib import Path

CHANGELOG: Final = (
    "# Changelog\n\n## [0.2.0] - unreleased\n\n### Added\n- new\n\n## [0.1.0] - 2026-01-02\n- old\n"
)


TIME: Final = "20260101T000000Z"
PINNED: Final = f"python:3.11-slim@sha256:{'0' * 64}"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=170)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("release")
    words = (
        f"DIST={made}/dist",
        f"SBOM={made}/sbom",
        f"SBOM_OF={made}/environments",
        f"BASE={PINNED}",
        f"SNAPSHOT={TIME}",
    )
    done = run("make", "release", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return made


@pytest.fixture(scope="module")
def dist(folder: Path) -> Path:
    return folder / "dist"


def one(dist: Path, pattern: str) -> Path:
    (file,) = dist.glob(pattern)
    return file


def test_the_base_of_the_images_is_told_by_its_digest(dist: Path) -> None:
    assert (dist / "BASE").read_text(encoding="utf-8") == f"{PINNED}\n"


def test_the_time_of_debians_packages_is_told(dist: Path) -> None:
    assert (dist / "SNAPSHOT").read_text(encoding="utf-8") == f"{TIME}\n"


def test_every_file_has_its_checksum(dist: Path) -> None:
    sums = (dist / "SHA256SUMS").read_text(encoding="utf-8")
    named = {line.split()[1] for line in sums.splitlines()}
    assert named == {file.name for file in dist.iterdir()} - {"SHA256SUMS"}
    done = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=dist, check=False)
    assert done.returncode == 0


def test_wheel_source_and_context_of_the_images_tell_the_same_commit(dist: Path) -> None:
    head = run("git", "rev-parse", "HEAD").stdout.strip()
    with zipfile.ZipFile(one(dist, "*.whl")) as wheel:
        builds = [json.loads(wheel.read(BUILD_FILE))]
    source = one(dist, "flagstaff-[0-9]*.tar.gz")
    folder = f"{source.name.removesuffix('.tar.gz')}/"
    for packed, below in ((source, folder), (one(dist, "flagstaff-images-*.tar.gz"), "")):
        with tarfile.open(packed) as archive:
            content = archive.extractfile(below + BUILD_FILE)
            assert content is not None
            builds.append(json.load(content))
    assert [build["commit"] for build in builds] == [head] * 3
    assert len({build["date"] for build in builds}) == 1


def test_a_wheel_of_the_source_distribution_keeps_the_commit(dist: Path, tmp_path: Path) -> None:
    source = one(dist, "flagstaff-[0-9]*.tar.gz")
    words = ("wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, source)
    done = run(sys.executable, "-m", "pip", *words)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(one(dist, "*.whl")) as made, zipfile.ZipFile(one(tmp_path, "*.whl")) as again:
        assert again.read(BUILD_FILE) == made.read(BUILD_FILE)
        assert sorted(again.namelist()) == sorted(made.namelist())


def test_the_context_of_the_images_has_all_that_the_dockerfile_copies(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(one(dist, "flagstaff-images-*.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    lines = (tmp_path / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert "crds" in copied
    assert [word for word in copied if not (tmp_path / word).exists()] == []
    ignored = (tmp_path / ".dockerignore").read_text(encoding="utf-8")
    assert [word for word in copied if f"!{word.split('/')[0]}\n" not in ignored] == []


def test_helm_renders_the_packed_chart(dist: Path) -> None:
    done = run(helm(), "template", "flagstaff", one(dist, "*.tgz"))
    assert done.returncode == 0, done.stderr
    assert "kind: Deployment" in done.stdout


@pytest.mark.long
def test_the_lists_of_contents_are_those_of_the_images(dist: Path) -> None:
    names = {}
    for image in ("controller", "evaluator"):
        listed = json.loads(one(dist, f"*-{image}.cdx.json").read_text(encoding="utf-8"))
        names[image] = {component["name"] for component in listed["components"]}
    assert {"kopf", "grpcio"} <= names["controller"]
    assert "grpcio" in names["evaluator"]
    assert not {"kopf", "pygit2", "pydantic"} & names["evaluator"]


def test_the_same_commit_makes_the_same_files(folder: Path, dist: Path, tmp_path: Path) -> None:
    pins = ("--base", PINNED, "--snapshot", TIME)
    done = run(sys.executable, "-m", "release", "--dist", tmp_path, "--sbom", folder / "sbom", *pins)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()


def test_project_chart_and_bake_file_name_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    chart = yaml.safe_load((ROOT / "deploy/chart/Chart.yaml").read_text(encoding="utf-8"))
    bake = (ROOT / "docker-bake.hcl").read_text(encoding="utf-8")
    assert (chart["version"], chart["appVersion"]) == (project, project)
    assert re.findall(r'variable "VERSION" \{\n  default = "(.*)"', bake) == [project]


@pytest.mark.parametrize("base", ["python:3.11-slim", f"{PINNED}0", "python@sha256:1"])
def test_a_base_without_its_digest_is_refused_with_the_command_that_prints_it(
    base: str, tmp_path: Path
) -> None:
    done = run(sys.executable, "-m", "release", "--dist", tmp_path, "--base", base)
    assert done.returncode == 1
    assert f"BASE is {base!r}" in done.stderr
    assert "docker buildx imagetools inspect" in done.stderr


def test_a_tag_without_the_time_of_debians_packages_is_refused(tmp_path: Path) -> None:
    done = run(sys.executable, "-m", "release", "--dist", tmp_path, "--snapshot", "yesterday")
    assert done.returncode == 1
    assert "SNAPSHOT is 'yesterday'; give the time" in done.stderr


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="apt reads the list")
def test_apt_asks_for_debians_packages_of_that_time_alone(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d/now.list").write_text("deb http://deb.debian.org/debian bookworm main\n")
    assert run("sh", "release/debian_snapshot.sh", TIME, tmp_path).returncode == 0
    folders = [f"-oDir::Etc={tmp_path}", f"-oDir::State::lists={tmp_path}/lists"]
    asked = run("apt-get", *folders, "--print-uris", "update").stdout.split("'")[1::2]
    assert {re.sub(r"dists/.*", "", uri) for uri in asked} == {
        f"http://snapshot.debian.org/archive/{archive}/{TIME}/" for archive in ("debian", "debian-security")
    }


def test_without_a_time_apts_list_stays(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text("deb http://deb.debian.org/debian bookworm main\n")
    assert run("sh", "release/debian_snapshot.sh", "", tmp_path).returncode == 0
    assert "deb.debian.org" in (tmp_path / "sources.list").read_text()


def test_a_tag_of_another_version_is_refused(tmp_path: Path) -> None:
    done = run(sys.executable, "-m", "release", "--dist", tmp_path, "--tag", "v99.0.0", "--base", PINNED)
    assert done.returncode == 1
    assert "the tag v99.0.0 is not the version of pyproject.toml" in done.stderr


def test_notes_are_the_section_of_the_version() -> None:
    assert read_notes(CHANGELOG, "0.2.0", dated=False) == "### Added\n- new\n"
    assert read_notes(CHANGELOG, "0.1.0", dated=True) == "- old\n"


@pytest.mark.parametrize(
    ("version", "reason"), [("0.2.0", "0.2.0 is unreleased"), ("0.3.0", "has no section of 0.3.0")]
)
def test_notes_of_a_tag_without_a_dated_section_are_refused(version: str, reason: str) -> None:
    with pytest.raises(MissingNotesError, match=reason):
        read_notes(CHANGELOG, version, dated=True)
