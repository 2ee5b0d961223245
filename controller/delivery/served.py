"""Copies who serves a FlagSet's flags from the status of its FeatureFlagConfiguration. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.api.conditions import PROPAGATED, Condition, find, read

if TYPE_CHECKING:
    from controller.api.meta import Resource


def shown(target: Resource | None, digest: str) -> tuple[dict[str, Any], tuple[Condition, ...]]:
    """(fields, conditions) of the status of a FlagSet that wants `digest` served; both are empty where the
    object holds another digest, or no proxy has reported.
    """
    if target is None or target.status.get("digest") != digest:
        return {}, ()
    known = find(target.status, PROPAGATED)
    served = target.status.get("served")
    return ({} if served is None else {"served": served}), () if known is None else (read(known),)
