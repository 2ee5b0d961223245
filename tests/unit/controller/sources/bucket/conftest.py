from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.s3 import S3, s3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[S3]:
    with s3(tmp_path) as server:
        yield server
