"""What every test runs under."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A shared machine is slow at times, and slowness is no failure. CI repeats the same examples, so that a change is judged by
# what it changes; everywhere else each run looks at new ones.
settings.register_profile(
    "flagstaff",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("flagstaff")
