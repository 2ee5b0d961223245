"""A collector for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.evaluator.telemetry.receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    opened = Receiver()
    yield opened
    opened.close()
