"""A machine on which the test control plane cannot be built."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("required", "code"), [("", 0), ("1", 1)], ids=["skipped", "required"])
def test_a_control_plane_that_cannot_be_built_is_loudly_missing(
    tmp_path: Path, required: str, code: int
) -> None:
    (tmp_path / "go").write_text("#!/bin/sh\n[ $1 = version ] && echo go version go1.99.0 && exit\nexit 1\n")
    (tmp_path / "go").chmod(0o700)
    environment = {
        **{name: text for name, text in os.environ.items() if name != "KUBEBUILDER_ASSETS"},
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "FLAGSTAFF_REQUIRE_CLUSTER": required,
    }
    command = [sys.executable, "-m", "tests.cluster.assets"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "CLUSTER TESTS WILL BE SKIPPED: plane cannot be had here" in done.stderr
