"""flagd's own core, for the modules that compare with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.flagd_core import FlagdCore

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def flagd() -> Iterator[FlagdCore]:
    with FlagdCore() as core:
        yield core
