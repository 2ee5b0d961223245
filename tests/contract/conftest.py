"""flagd's own core, for the modules that compare with it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.contract.flagd_core import FlagdCore

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def flagd() -> Iterator[FlagdCore]:
    try:
        core = FlagdCore()
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"NOT COMPARED WITH FLAGD: its core cannot be built: {error}")
    with core:
        yield core
