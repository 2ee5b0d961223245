"""flagd's own cores, for the modules that compare with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.flagd_core import FlagdCore
from tests.contract.published_core import ORACLES, Core

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def flagd() -> Iterator[FlagdCore]:
    with FlagdCore() as core:
        yield core


@pytest.fixture(scope="module", params=["v2", "v3"])
def core(request: pytest.FixtureRequest) -> Iterator[Core]:
    python = ORACLES / request.param / "bin" / "python"
    if not python.exists():
        pytest.skip(f"NOT COMPARED with the published core {request.param}: no {python}; run `make oracles`")
    started = Core(request.param)
    yield started
    started.end()
