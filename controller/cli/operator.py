"""`kopf run -A -m controller.cli.operator`: the controller in kopf's own process, for those who run all their
operators that way.

Its settings are the environment's (FLAGSTAFF_…); with `kopf run -n NAMESPACE`, name the same in
FLAGSTAFF_NAMESPACES.
"""

from __future__ import annotations

from functools import partial

from controller.app.kopf_run import join_kopf
from controller.app.settings import ControllerSettings, settings_of

join_kopf(settings_of(ControllerSettings), partial(print, flush=True))
