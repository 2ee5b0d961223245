"""Writes the files of a release into a folder: `make release`, which makes the SBOMs first."""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from release.build_hook import BUILD_FILE, describe_build
from release.debian_package import build_debian_package
from release.notes import MissingNotesError, read_notes

ROOT: Final = Path(__file__).parents[1]
CONTEXT: Final = (
    ".dockerignore", "Dockerfile", "LICENSE", "README.md", "controller", "crds", "deploy",
    "docker-bake.hcl", "evaluator", "pyproject.toml", "release", "requirements",
)  # fmt: skip
"""What the images are built of."""
CHECKSUMS: Final = "SHA256SUMS"
_PINNED: Final = re.compile(r"[\w./:-]+@sha256:[0-9a-f]{64}")
_TIME: Final = re.compile(r"\d{8}T\d{6}Z")


class RefusedError(Exception):
    """The release cannot be made. The text says why."""


@dataclass(frozen=True, slots=True)
class Release:
    """A version, whose files are written into the folder `dist`."""

    version: str
    dist: Path

    def build_packages(self) -> None:
        """Wheel and source distribution."""
        builder = Path(sys.executable).parent / "hatchling"
        for target in ("sdist", "wheel"):
            _run(builder, "build", "-t", target, "-d", self.dist)

    def build_debian_package(self) -> None:
        """The .deb, of the wheel."""
        (wheel,) = self.dist.glob("*.whl")
        build_debian_package(wheel, self.version, self.dist)

    def pack_context(self) -> None:
        """The context of both images, as `docker build - <FILE` takes it."""
        file = self.dist / f"flagstaff-images-{self.version}.tar.gz"
        build = f"--add-virtual-file={BUILD_FILE}:{describe_build(ROOT)}"
        _run("git", "archive", "--format=tar.gz", build, "-o", file, "HEAD", *CONTEXT)

    def pack_charts(self) -> None:
        """Each Helm chart of deploy/, with the files that its links lead to."""
        for chart in sorted(ROOT.glob("deploy/*/Chart.yaml")):
            facts = yaml.safe_load(chart.read_text(encoding="utf-8"))
            file = self.dist / f"{facts['name']}-{facts['version']}.tgz"
            # gzip's header has a time, too.
            epoch = int(os.environ["SOURCE_DATE_EPOCH"])
            with (
                gzip.GzipFile(file, "wb", mtime=epoch) as packed,
                tarfile.open(fileobj=packed, mode="w", dereference=True) as archive,
            ):
                archive.add(chart.parent, arcname=facts["name"], filter=_anonymous)

    def copy_sboms(self, folder: Path) -> None:
        """Raises RefusedError where there are none."""
        files = sorted(folder.glob("*.cdx.json"))
        if not files:
            raise RefusedError(f"{folder} has no SBOMs; run `make release`, which makes them")
        for file in files:
            shutil.copy(file, self.dist / f"flagstaff-{self.version}-{file.name}")

    def write_base(self, base: str) -> None:
        """The images' base, by its digest, as `docker buildx bake` takes it. Raises RefusedError."""
        if not _PINNED.fullmatch(base):
            raise RefusedError(
                f"BASE is {base!r}; give the images' base by its digest, such as python:3.11-slim@sha256:…: "
                "docker buildx imagetools inspect python:3.11-slim --format '{{.Manifest.Digest}}' prints it"
            )
        (self.dist / "BASE").write_text(f"{base}\n", encoding="utf-8")

    def write_snapshot(self, snapshot: str) -> None:
        """The time of Debian's packages above the base. Raises RefusedError."""
        if not _TIME.fullmatch(snapshot):
            raise RefusedError(
                f"SNAPSHOT is {snapshot!r}; give the time of Debian's packages, not before the base's: "
                "20260101T000000Z, for example: date -u +%Y%m%dT000000Z prints one"
            )
        (self.dist / "SNAPSHOT").write_text(f"{snapshot}\n", encoding="utf-8")

    def write_notes(self, *, dated: bool) -> None:
        """Raises MissingNotesError."""
        changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        (self.dist / "NOTES.md").write_text(
            read_notes(changelog, self.version, dated=dated), encoding="utf-8"
        )

    def write_checksums(self) -> None:
        """As `sha256sum --check` reads them."""
        files = sorted(file for file in self.dist.iterdir() if file.name != CHECKSUMS)
        lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
        (self.dist / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = int(os.environ["SOURCE_DATE_EPOCH"])
    return member


def _run(*command: str | Path) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _require_tag(tag: str, version: str) -> None:
    if tag.removeprefix("v") != version:
        raise RefusedError(f"the tag {tag} is not the version of pyproject.toml, {version}")
    if _run("git", "status", "--porcelain", "--untracked-files=no"):
        raise RefusedError("files differ from the tagged commit; commit or restore them")


def main() -> int:
    """Write the release; 1 where it cannot be made."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument(
        "--dist", type=Path, default=ROOT / "dist", help="folder to write; it is emptied first"
    )
    parser.add_argument("--sbom", type=Path, default=ROOT / "sbom", help="folder of the SBOMs")
    parser.add_argument(
        "--tag", default="", help="refuse what is not the release of this tag, such as v0.1.0"
    )
    parser.add_argument("--base", default="", help="the images' base by its digest; --tag requires it")
    parser.add_argument(
        "--snapshot", default="", help="time of Debian's packages above the base; --tag requires it"
    )
    options = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    release = Release(project["version"], options.dist.resolve())
    # The same commit makes the same files.
    os.environ.setdefault("SOURCE_DATE_EPOCH", _run("git", "log", "-1", "--format=%ct"))
    try:
        if options.tag:
            _require_tag(options.tag, release.version)
        release.dist.mkdir(parents=True, exist_ok=True)
        for file in release.dist.iterdir():
            file.unlink()
        if options.tag or options.base:
            release.write_base(options.base)
        if options.tag or options.snapshot:
            release.write_snapshot(options.snapshot)
        release.write_notes(dated=bool(options.tag))
        release.build_packages()
        release.build_debian_package()
        release.pack_context()
        release.pack_charts()
        release.copy_sboms(options.sbom)
        release.write_checksums()
    except (RefusedError, MissingNotesError) as error:
        print(f"make release: {error}", file=sys.stderr)
        return 1
    print("\n".join(str(file) for file in sorted(release.dist.iterdir())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
