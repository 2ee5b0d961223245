"""Copies who serves a FlagSet's flags from the status of its FeatureFlagConfiguration. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.api.conditions import PROPAGATED, Condition
from controller.api.configuration import ConfigurationStatus
from controller.api.flagset import FlagSetStatus

if TYPE_CHECKING:
    from controller.api.meta import Resource


def shown(target: Resource | None, digest: str) -> tuple[FlagSetStatus, tuple[Condition, ...]]:
    """(fields, conditions) of the status of a FlagSet that wants `digest` served; both are empty where the
    object holds another digest, or no proxy has reported.
    """
    status = ConfigurationStatus.of(target)
    if status.digest != digest:
        return FlagSetStatus(), ()
    fields = FlagSetStatus() if status.served is None else FlagSetStatus(served=status.served)
    return fields, status.those(PROPAGATED)
