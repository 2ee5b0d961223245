"""`kopf run -A -m controller.cli.operator`: the controller in kopf's own process, for those who run all their
operators that way.

Its settings are the environment's (FLAGSTAFF_…); with `kopf run -n NAMESPACE`, name the same in
FLAGSTAFF_NAMESPACES.
"""

from __future__ import annotations

import os
from functools import partial

from controller.settings import ControllerSettings, from_env
from controller.wiring.operator import join_kopf

join_kopf(from_env(ControllerSettings, os.environ), partial(print, flush=True))
