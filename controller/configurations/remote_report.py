"""What an object's status and Events say of its remote provider. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.api.objects.conditions import FALSE, REMOTE_FLAGS, TRUE, Condition
from controller.api.openfeature.featureflagconfiguration import ConfigurationStatus
from controller.runtime.event import Occurrence

if TYPE_CHECKING:
    from controller.api.objects.meta import Resource
    from controller.configurations.remote_providers import RemoteState

FETCHED: Final = "Succeeded"
UPDATED: Final = "RemoteFlagsUpdated"
"""The reason of the Event about another version."""


def with_state(resource: Resource, state: RemoteState) -> Resource:
    """Return the object with the remote flags that are in force, as its status is to say."""
    rest = {name: value for name, value in resource.status.items() if name != "providers"}
    if state.entry is None:
        return replace(resource, status=rest) if "providers" in resource.status else resource
    return replace(resource, status={**rest, "providers": [state.entry.fields()]})


def provider_status(state: RemoteState) -> ConfigurationStatus:
    """Return the field of the status."""
    return ConfigurationStatus(providers=None if state.entry is None else (state.entry,))


def fetch_conditions(state: RemoteState) -> tuple[Condition, ...]:
    """`RemoteFlagsFetched`, where there is a provider."""
    if not state.followed:
        return ()
    if state.setback is not None:
        return (
            Condition(
                REMOTE_FLAGS, FALSE, state.setback.reason, f"{state.setback.message}{_rest_message(state)}"
            ),
        )
    message = "" if state.entry is None else f"{_count(state)} of {state.entry.name} at {state.entry.version}"
    return (Condition(REMOTE_FLAGS, TRUE, FETCHED, message),)


def fetch_events(before: ConfigurationStatus, state: RemoteState) -> tuple[Occurrence, ...]:
    """Return an Event for another version, for a failure once, and for its end."""
    events: tuple[Occurrence, ...] = ()
    entry, known = state.entry, next(iter(before.providers or ()), None)
    if entry is not None and entry.shards and (known is None or known.shards != entry.shards):
        message = f"{_count(state)} of {entry.name} at {entry.version}"
        events = (Occurrence(UPDATED, message, metadata={"version": entry.version or ""}),)
    was = before.condition(REMOTE_FLAGS)
    if state.setback is not None:
        now = fetch_conditions(state)[0]
        if (was.status, was.reason) != (FALSE, now.reason):
            events += (Occurrence(now.reason, now.message, warning=True),)
    elif was.status == FALSE and state.followed:
        events += (Occurrence(was.reason, "the remote provider is followed again", ends=True),)
    return events


def _rest_message(state: RemoteState) -> str:
    if state.entry is None or not state.entry.shards:
        return "; the object's own flags are served without remote ones"
    if state.entry.stale_since is None:
        return ""
    return f"; {_count(state)} at {state.entry.version} stay in force"


def _count(state: RemoteState) -> str:
    count = 0 if state.entry is None else state.entry.flags or 0
    return "1 flag" if count == 1 else f"{count} flags"
