"""A short chaos run, always the same, with a fault of every kind."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cluster.plugin import ROOT

if TYPE_CHECKING:
    from tests.cluster.plane import Plane


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_faults_of_every_kind_cost_no_value_and_leaks_nothing(cluster: Plane) -> None:
    environ = {
        **os.environ,
        "CHAOS_SECONDS": "45",
        "CHAOS_SEED": "1567",
        "KUBEBUILDER_ASSETS": str(cluster.assets),
    }
    environ.pop("CHAOS_FAULTS", None)
    command = [sys.executable, "-m", "tests.chaos"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
