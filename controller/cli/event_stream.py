"""The controller's Events as a cluster keeps them, existing and new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import EVENT
from controller.api.meta import GROUP, OPENFEATURE_GROUP
from controller.cli.cluster_view import open_view
from controller.runtime.event import as_event
from controller.runtime.informer import body_as_spec

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from controller.cli.clusters import ClusterScope
    from controller.runtime.cache import Change


_POLL_SECONDS: Final = 60.0
"""Seconds: each Event that comes ends the wait."""
_GROUPS: Final = (GROUP, OPENFEATURE_GROUP)


async def events_of(scope: ClusterScope, *, watch: bool) -> AsyncGenerator[dict[str, Any], None]:
    """Flux's Events, as `as_event` has them: those that are there by their times, then, to `watch`, each that
    comes. Raises Failed, ConfigException, Exit.
    """
    waiting: list[Mapping[str, Any]] = []

    def note(change: Change) -> None:
        # One that changes, or that the watch repeats when it begins anew, is told once.
        after = change.after
        if after is None or (change.before is not None and change.before.uid == after.uid):
            return
        about = after.spec.get("involvedObject") or {}
        if str(about.get("apiVersion")).partition("/")[0] in _GROUPS:
            waiting.append(after.spec)

    async with open_view(scope, (EVENT,), {EVENT.kind: body_as_spec(EVENT)}) as (events, _):
        events.objects.react(note)
        await events.wait_for(EVENT.kind)
        while True:
            bodies = tuple(waiting)
            waiting.clear()
            for event in sorted(map(as_event, bodies), key=lambda event: str(event["timestamp"])):
                yield event
            if not watch:
                return
            await events.wait(_POLL_SECONDS)
