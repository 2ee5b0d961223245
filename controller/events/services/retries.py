"""Decides when a message is tried again, and when it is given up. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from controller.events.alerts.flag_set_progress import COMMITS
from controller.runtime.reconciling.queue import Backoff

if TYPE_CHECKING:
    from controller.api.flagprovider import Message
    from controller.events.services.http_sender import PostResult

LONGEST: Final = 300.0
"""Seconds between tries, without a Retry-After."""
_BACKOFF: Final = Backoff(first=1.0, most=LONGEST)
OLDEST: Final = timedelta(hours=24)
"""Age at which an undelivered message is given up."""


@dataclass(frozen=True, slots=True)
class Again:
    """Try again after some seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class Dead:
    """Give the message up."""

    why: str


def verdict(
    message: Message, answer: PostResult, failures: int, random: float, now: datetime, type_: str = ""
) -> Again | Dead | None:
    """Decide after `failures` tries in a row, this one included; None: delivered. `random`: from 0 to 1.
    `type_`: of the provider.
    """
    # Azure DevOps answers an invalid token with a sign-in page, and this status.
    if 200 <= answer.status < 300 and not (answer.status == 203 and type_.startswith("azuredevops")):
        return None
    # Flux's notification-controller has received the same within the last minutes.
    if answer.status == 429 and type_ == "flux":
        return None
    # A refused content will be refused again, and a missing commit rarely arrives later.
    if answer.status in {400, 413, 415, 422} or (answer.status == 404 and type_ in COMMITS):
        return Dead(answer.text)
    if answer.status and not message.alert:
        # The user who requested a test reads the answer; other messages must not wait a day behind it.
        return Dead(answer.text)
    try:
        old = now - datetime.fromisoformat(message.time) > OLDEST
    except (ValueError, TypeError):
        old = True
    if old:
        return Dead(f"not delivered for {OLDEST.total_seconds() / 3600:g} h, last: {answer.text}")
    return Again(max(answer.retry_after, _BACKOFF.delay(failures, random)))
