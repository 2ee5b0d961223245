"""Has a build write its commit and its date into the wheel and the source distribution, and compile a part
of the wheel if FLAGSTAFF_NATIVE=1.

The commit is that of FLAGSTAFF_COMMIT, or of Git; the date is SOURCE_DATE_EPOCH, or now.
FLAGSTAFF_PUBLISHED=1 says that the build goes to the Python package index. A source
distribution has the file already, and the wheel that is built of it keeps it. An editable installation has
none: its commit changes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILD_FILE: Final = "evaluator/host/build.json"


def describe_build(root: Path) -> str:
    """Return the text of BUILD_FILE for a build of the folder `root`, which need not be a repository."""
    commit = os.environ.get("FLAGSTAFF_COMMIT") or _head(root)
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    date = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)  # noqa: TID251
    published = os.environ.get("FLAGSTAFF_PUBLISHED") == "1"
    build = {"commit": commit, "date": date.strftime("%Y-%m-%dT%H:%M:%SZ"), "published": published}
    return json.dumps(build) + "\n"


def _head(root: Path) -> str:
    if not (root / ".git").exists():
        return ""
    try:
        command = ["git", "-C", str(root), "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling calls it before and after each build."""

    _folder = ""

    def dependencies(self) -> list[str]:
        """Return what a build in an environment of its own needs beside Hatchling."""
        return ["mypy>=2.4", "setuptools"] if self._compiles else []

    @property
    def _compiles(self) -> bool:
        return self.target_name == "wheel" and os.environ.get("FLAGSTAFF_NATIVE") == "1"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file to what is built."""
        root = Path(self.root)
        if version == "editable":
            return
        self._folder = tempfile.mkdtemp()
        if not (root / BUILD_FILE).exists():
            file = Path(self._folder) / "build.json"
            file.write_text(describe_build(root), encoding="utf-8")
            build_data["force_include"][str(file)] = BUILD_FILE
        if self._compiles:
            # Hatchling loads this file alone.
            sys.path.insert(0, self.root)
            from release.build_native import compile_modules  # noqa: PLC0415

            build_data["force_include"].update(compile_modules(Path(self._folder)))
            build_data["pure_python"], build_data["infer_tag"] = False, True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the file from the machine."""
        if self._folder:
            shutil.rmtree(self._folder)
