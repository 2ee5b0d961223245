"""`flagstaff resume`: see `suspend`."""

from __future__ import annotations

from functools import partial

from controller.cli.actions import suspend

configure = partial(suspend.configure, suspend=False)
