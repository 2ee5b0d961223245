"""The key of the source of a FlagSet, as far as its spec can be read. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.api.meta import ObjectKey

if TYPE_CHECKING:
    from controller.api.meta import Resource


def source_key(flag_set: Resource) -> ObjectKey | None:
    """In its own namespace unless it names another; None where there is no `sourceRef`."""
    reference = flag_set.spec.get("sourceRef")
    if not isinstance(reference, dict):
        return None
    namespace = str(reference.get("namespace") or flag_set.namespace)
    return ObjectKey(str(reference.get("kind")), namespace, str(reference.get("name")))
