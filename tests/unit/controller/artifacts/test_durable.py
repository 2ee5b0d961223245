from __future__ import annotations

import errno

import pytest

from controller.runtime.setbacks import as_failed


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "StorageFull"),
        (errno.EDQUOT, "StorageFull"),
        (errno.EFBIG, "StorageFull"),
        (errno.EACCES, "StorageFailed"),
        (errno.EIO, "StorageFailed"),
    ],
)
def test_an_error_of_the_disk_becomes_a_reason(number: int, reason: str) -> None:
    failure = as_failed(OSError(number, "words"), "writing x")
    assert (failure.reason, failure.message) == (reason, "writing x: words")
