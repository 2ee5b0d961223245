"""Decides when a failure is reported and repeated: after it lasted as long as an alert asks. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from controller.api.conditions import READY, find
from controller.api.conditions import failure as failing
from controller.notifications.box import Due

if TYPE_CHECKING:
    from controller.api.alert import FlagAlertSpec
    from controller.api.meta import Resource
    from controller.notifications.box import Reported


def since(thing: Resource | None, now: datetime) -> datetime:
    """Since when an object fails: `now` where its status does not say so yet."""
    if thing is None or not failing(thing.status):
        return now
    ready = find(thing.status, READY) or {}
    return _moment(str(ready.get("lastTransitionTime")), now)


def due(spec: FlagAlertSpec, thing: Resource | None, reported: Reported, now: datetime) -> Due | None:
    """When the failure that was `reported` so is looked at next; None: never again."""
    if not reported.failures:
        return _after(since(thing, now), spec.lasting or 0.0, first=True)
    if spec.repeat_interval is None:
        return None
    return _after(_moment(reported.reported_at, since(thing, now)), spec.repeat_interval, first=False)


def _after(moment: datetime, seconds: float, *, first: bool) -> Due:
    return Due(moment + timedelta(seconds=seconds), first=first, span=seconds)


def _moment(text: str, otherwise: datetime) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return otherwise
    return found if found.tzinfo is not None else otherwise
