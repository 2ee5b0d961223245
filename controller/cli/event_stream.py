"""The controller's Events as a cluster keeps them, existing and new ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import EVENT
from controller.api.meta import GROUP, OPENFEATURE_GROUP
from controller.cli.cluster_view import ClusterView, open_view
from controller.runtime.event import as_event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from controller.cli.clusters import ClusterScope


_LOOK: Final = 60.0
"""Seconds: each Event that comes ends the wait."""
_GROUPS: Final = (GROUP, OPENFEATURE_GROUP)


@dataclass
class _Events(ClusterView):
    """Bodies of Events that were not read yet."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        """Keep an Event; one that the watch repeats when it begins anew is ignored."""
        del kind
        about = body.get("involvedObject") or {}
        uid = str(body["metadata"].get("uid"))
        if uid not in self._seen and str(about.get("apiVersion")).partition("/")[0] in _GROUPS:
            self._seen.add(uid)
            self.bodies.append(body)
            self.changed.set()


async def events_of(scope: ClusterScope, *, watch: bool) -> AsyncGenerator[dict[str, Any], None]:
    """Flux's Events, as `as_event` has them: those that are there by their times, then, to `watch`, each that
    comes. Raises Failed, ConfigException, Exit.
    """
    async with open_view(scope, (EVENT,), _Events()) as (events, _):
        await events.wait_for(EVENT.kind)
        while True:
            bodies, events.bodies = events.bodies, []
            for event in sorted(map(as_event, bodies), key=lambda event: str(event["timestamp"])):
                yield event
            if not watch:
                return
            await events.wait(_LOOK)
