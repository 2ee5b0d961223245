"""Events as the page shows them. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controller.api.objects.meta import NOTHING
from controller.api.objects.provenance import CHANGES, DIFFERENCES
from controller.page.delivery.proxy_members import moment
from controller.runtime.event import as_event
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class ShownEvent:
    """One Event about an object of ours."""

    kind: str
    """The object's kind."""
    namespace: str
    name: str
    """The object's name."""
    reason: str
    message: str
    at: datetime | None = None
    warning: bool = False
    metadata: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Facts by keys such as `flagstaff.dev/author`."""

    @property
    def about(self) -> str:
        """KIND/NAMESPACE/NAME."""
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def revision(self) -> str:
        """The revision that it is about; empty where none is known."""
        return self.metadata.get(REVISION_KEY, "")

    @property
    def changes(self) -> tuple[str, ...]:
        """A line for each flag that it changes, such as `~ banner: default off → on`."""
        return tuple(line for line in self.metadata.get(CHANGES, "").split("\n") if line)

    @property
    def differences(self) -> dict[str, str]:
        """What it changes of each flag, in words, by the flag's key, as far as it tells."""
        try:
            told = json.loads(self.metadata.get(DIFFERENCES, "{}"))
        except ValueError:
            return {}
        return {str(key): str(words) for key, words in told.items()} if isinstance(told, dict) else {}

    @property
    def sort_key(self) -> tuple[float, str]:
        """Events with the same time are sorted by what they are about."""
        return (0.0 if self.at is None else self.at.timestamp()), self.about


def read_event(body: Mapping[str, Any]) -> ShownEvent:
    """An Event of the API server. Raises KeyError, TypeError, AttributeError for a malformed one."""
    event = as_event(body)
    about = event["involvedObject"]
    return ShownEvent(
        str(about["kind"]),
        str(about["namespace"]),
        str(about["name"]),
        str(event["reason"]),
        str(event["message"]),
        moment(event["timestamp"]),
        warning=event["severity"] == "error",
        metadata=event["metadata"],
    )
