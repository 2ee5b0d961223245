"""A link to the page in what is reported of FlagRollouts, for people who decide about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from controller.api.objects.provenance import PAGE
from controller.api.rollouts import flagrollout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.runtime.event import Event, EventSink


@dataclass(frozen=True, slots=True)
class PageLinks:
    """Implements `EventSink`: passes Events on, those of FlagRollouts with the address of what waits."""

    sinks: Sequence[EventSink]
    page: str
    """URL of the page, without a path."""

    def accept(self, event: Event) -> None:
        """Pass an Event on."""
        if event.object.kind == flagrollout.KIND:
            event = replace(event, metadata={**event.metadata, PAGE: f"{self.page.rstrip('/')}/ui/pending"})
        for sink in self.sinks:
            sink.accept(event)
