"""Helper processes are started once, and not for each test; an instance of Sigstore is the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sigstore.instance import Instance, instance
from tests.warm_helpers import end_of_helpers, warm_helpers

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["end_of_helpers", "warm_helpers"]


@pytest.fixture
def sigstore() -> Iterator[Instance]:
    with instance() as made:
        yield made
