"""The ConfigMap with quotas of single namespaces, as the platform's team writes it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from tests.cluster.api import MERGE, Api, Refused, path_of

if TYPE_CHECKING:
    from tests.cluster.plane import Plane

QUOTAS: Final = "flagstaff-quotas"
"""Its name."""


def limit(plane: Plane, namespace: str, text: str | None) -> None:
    """Write the limits of a namespace; None: it has those of the options."""
    api, path = Api(plane), path_of("configmap", "flagstaff-system")
    with contextlib.suppress(Refused):
        api.ask("POST", path, {"metadata": {"name": QUOTAS}})
    api.ask("PATCH", f"{path}/{QUOTAS}", {"data": {namespace: text}}, MERGE)
