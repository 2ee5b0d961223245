"""The ConfigMap with quotas of single namespaces, as the platform's team writes it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.cluster.plane import Plane

QUOTAS: Final = "flagstaff-quotas"
"""Its name."""


def limit(plane: Plane, namespace: str, text: str | None) -> None:
    """Write the limits of a namespace; None: it has those of the options."""
    place = ("configmap", QUOTAS, "-n", "flagstaff-system")
    plane.kubectl("create", *place, check=False)
    plane.kubectl("patch", *place, "--type=merge", "--patch", json.dumps({"data": {namespace: text}}))
