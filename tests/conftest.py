"""What every test runs under."""

from __future__ import annotations

import gc
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

FOREIGN = Path(__file__).parent / "foreign"

# A shared machine is slow at times, and slowness is no failure. CI repeats the same examples, so that a
# change is judged by what it changes; everywhere else each run looks at new ones.
settings.register_profile(
    "flagstaff",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("flagstaff")

# A shell that starts the tests in the background has them ignore Ctrl-C, and every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Providers of other languages are tested when they are asked for by name: they need `make
    test-clients`.
    """
    named = any(FOREIGN in (Path(word).resolve(), *Path(word).resolve().parents) for word in config.args)
    return True if collection_path == FOREIGN and not named else None


def pytest_collection() -> None:
    """Nothing that is collected is garbage: looking for some is a sixth of the time that it takes."""
    gc.disable()


def pytest_collection_finish() -> None:
    """All modules and tests are left out of every later collection, which each had to look at them."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def in_tokyo() -> Iterator[None]:
    """The clock of this machine is nine hours ahead of UTC."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()
