"""`kopf run -A -m controller.cli.operator`: the controller in kopf's own process, for those who run all their
operators that way.

Its settings are the environment's (FLAGSTAFF_…); FLAGSTAFF_NAMESPACES says what is watched, not kopf's -n.
"""

from __future__ import annotations

import signal
from functools import partial

from controller.app.controller_process import watch_and_work
from controller.app.settings import ControllerSettings, settings_of
from controller.kube.kopf_watches import open_with_kopf

open_with_kopf(
    watch_and_work(
        settings_of(ControllerSettings),
        partial(print, flush=True),
        ended=partial(signal.raise_signal, signal.SIGTERM),
    )
)
