"""The compiled form (`make native`): the other tests of its environment run on it, and not beside it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.http import h2_connection
from release.build_native import MODULES

pytestmark = pytest.mark.skipif(os.environ.get("FLAGSTAFF_NATIVE") != "1", reason="`make native` compiles it")


def test_the_connection_is_compiled() -> None:
    assert h2_connection.__file__.endswith(".so")


@pytest.mark.parametrize("name", MODULES)
def test_every_module_of_the_list_is_compiled(name: str) -> None:
    module = importlib.import_module(name)
    assert str(module.__file__).endswith(".so")


def test_what_a_test_starts_is_compiled() -> None:
    command = [
        sys.executable,
        "-c",
        "from evaluator.http import h2_connection; print(h2_connection.__file__)",
    ]
    started = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]
    )
    assert started.stdout.strip().endswith(".so")
