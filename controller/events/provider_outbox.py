"""The unsent messages of one provider, and what was reported to it, as its status stores them. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from controller.api.flagprovider import Failure, FlagProviderStatus, Message
from controller.events.alert_messages import KEY, group_of, join
from controller.runtime.plain_text import one_line
from evaluator.host.times import read_time, timestamp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime

MOST_PENDING: Final = 300
MOST_CHARACTERS: Final = 300_000
"""Most characters of all waiting messages: the API server accepts objects of up to 1.5 MiB."""
MOST_REPORTED: Final = 2_000
"""Most objects whose last report is stored."""
MOST_RECENT: Final = 50


@dataclass(frozen=True, slots=True)
class Reported:
    """The last report about an object to a provider."""

    failures: tuple[str, ...] = ()
    """Reasons of failures that were reported since the object was last ready."""
    digest: str = ""
    """Shortened; empty where no content was reported."""
    reported_at: str = ""
    """Time of the last report of the failure, RFC 3339."""

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse the output of `str`."""
        failures, digest, reported_at = (*text.split("|", 2), "", "")[:3]
        return cls(tuple(reason for reason in failures.split(",") if reason), digest, reported_at)

    def __str__(self) -> str:
        tail = f"|{self.reported_at}" if self.reported_at else ""
        return f"{','.join(self.failures)}|{self.digest}{tail}"


@dataclass(frozen=True, slots=True)
class Recheck:
    """The time at which a failure is checked again."""

    at: datetime
    first: bool
    """Whether this is the first report of a failure, due once the failure has lasted until then."""
    span: float
    """Seconds of the whole wait."""

    def is_due(self, now: datetime) -> bool:
        """Whether the time has come, or the clock was set back by more than the span."""
        left = (self.at - now).total_seconds()
        return left <= 0.0 or left > 2.0 * self.span


def shorten(digest: str) -> str:
    """Shorten a digest for `Reported`: `sha256:` and 12 digits."""
    return digest[:19]


@dataclass(slots=True)
class MessageOutcomes:
    """Outcomes of a provider's messages: of all of them, or of those of one alert."""

    last_delivery: str | None = None
    last_failure: Failure | None = None
    """The last failure; kept after a later success."""
    _failing: bool = False
    """Whether the last try failed."""

    def record_delivery(self, moment: str) -> None:
        """Record that a message arrived."""
        self.last_delivery, self._failing = moment, False

    def record_failure(self, reason: str, message: str, now: datetime) -> None:
        """Record a failed try. A repeated failure keeps the time of the first."""
        line = one_line(message, 500)
        before = self.last_failure
        if before is None or (before.reason, before.message) != (reason, line) or not self._failing:
            self.last_failure = Failure(time=timestamp(now), reason=reason, message=line)
        self._failing = True


@dataclass(slots=True)
class ProviderOutbox:
    """The messages of one provider, oldest first, and what was reported to it."""

    type: str = ""
    """The provider's type."""
    pending: dict[str, Message] = field(default_factory=dict)
    """Messages by key."""
    reported: dict[str, str] = field(default_factory=dict)
    """The last report, as text, by `<alert>/<kind>/<name>`."""
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_RECENT))
    """Prefixes of the keys of the messages that were delivered last."""
    dead: int = 0
    """Number of messages that were given up."""
    last_dead: str | None = None
    outcomes: MessageOutcomes = field(default_factory=MessageOutcomes)
    of_alerts: dict[str, MessageOutcomes] = field(default_factory=dict)
    """Outcomes by the alert's name, since this replica leads; earlier outcomes are in the alerts' own status.
    """
    tested: str | None = None
    """The last requested test."""
    rechecks: dict[str, Recheck] = field(default_factory=dict)
    """Failures that are checked again, by the keys of `reported`."""
    _stored: frozenset[str] = frozenset()
    """Keys of messages that the API server stores."""
    _joined: set[str] = field(default_factory=set)
    """Beginnings of the keys of messages that were joined with a waiting one."""
    _characters: int = 0

    @classmethod
    def of(cls, status: FlagProviderStatus) -> Self:
        """Read the box from a status."""
        box = cls(dead=status.dead, last_dead=status.last_dead, tested=status.last_handled_test)
        for message in status.pending or ():
            box._add(message)
        box.reported.update(status.reported or {})
        box.recent.extend(status.recent or ())
        box.outcomes = MessageOutcomes(status.last_delivery, status.last_failure)
        box._stored = frozenset(box.pending)
        return box

    def status(self) -> FlagProviderStatus:
        """Return the box as fields of a status; None for empty ones."""
        return FlagProviderStatus(
            pending=tuple(self.pending.values()) or None,
            reported=dict(self.reported) or None,
            recent=tuple(self.recent) or None,
            waiting=len(self.pending),
            dead=self.dead,
            last_dead=self.last_dead,
            last_delivery=self.outcomes.last_delivery,
            last_failure=self.outcomes.last_failure,
            last_handled_test=self.tested,
            failing={name: timestamp(recheck.at) for name, recheck in self.rechecks.items() if recheck.first}
            or None,
        )

    def of_subject(self, subject: str) -> Reported | None:
        """Return the last report about `<alert>/<kind>/<name>`; None: there is none."""
        text = self.reported.get(subject)
        return None if text is None else Reported.of(text)

    def remember(self, subject: str, reported: Reported | None) -> None:
        """Store the last report about a subject; None removes it. Evicts the oldest without incident."""
        self.reported.pop(subject, None)
        if reported is None:
            self.rechecks.pop(subject, None)
            return
        self.reported[subject] = str(reported)
        if len(self.reported) > MOST_REPORTED:
            calm = (name for name, text in self.reported.items() if text.startswith("|"))
            del self.reported[next(calm, next(iter(self.reported)))]

    def push(self, message: Message) -> None:
        """Queue a message, once. Evicts the oldest that neither opens nor ends an incident."""
        short = message.key[:KEY]
        if message.key in self.pending or short in self.recent or short in self._joined:
            return
        group = group_of(message, self.pending.values())
        if group is not None:
            self._characters -= _size(group)
            message = join(group, message)
        self._add(message)
        while len(self.pending) > MOST_PENDING or self._characters > MOST_CHARACTERS:
            plain = (key for key, message in self.pending.items() if message.state is None)
            self.drop(next(plain, next(iter(self.pending))), "more messages waited than may")

    def sendable(self, now: datetime | None = None) -> Iterator[Message]:
        """Return the messages that may be sent, in order; without `now`, also those not due yet."""
        until = "" if now is None else timestamp(now)
        return (
            message
            for key, message in self.pending.items()
            if key in self._stored and (not until or not _waits(message, until))
        )

    def seconds_to_next(self, now: datetime) -> float | None:
        """Return the seconds until a message or failure is due, at least 0.5; None: none waits."""
        until = timestamp(now)
        later = [
            message.after for message in self.pending.values() if message.after and _waits(message, until)
        ]
        moments = [*(recheck.at for recheck in self.rechecks.values()), *map(read_time, later)]
        return max(0.5, (min(moments) - now).total_seconds()) if moments else None

    def mark_stored(self, keys: Collection[str]) -> None:
        """Note the keys of the messages that the API server stores: only these may be sent."""
        self._stored = frozenset(keys)

    def record_delivery(self, key: str, moment: str) -> None:
        """Remove a delivered message, and record its outcome."""
        if (message := self._take(key)) is not None:
            self.recent.extend((key[:KEY], *message.others))
            self._of_alert(message.alert).record_delivery(moment)
        self.outcomes.record_delivery(moment)

    def record_failure(self, alert: str, reason: str, message: str, now: datetime) -> None:
        """Record a failed try of a message of this alert."""
        for outcomes in (self.outcomes, self._of_alert(alert)):
            outcomes.record_failure(reason, message, now)

    def drop(self, key: str, why: str) -> None:
        """Give up a message."""
        message = self._take(key)
        if message is not None:
            self.dead += 1
            self.last_dead = f"{message.reason} of {message.kind}/{message.name}: {why}"

    def count_dropped(self, count: int, why: str) -> None:
        """Count Events that never became messages."""
        self.dead += count
        self.last_dead = f"{count} Events: {why}"

    def _of_alert(self, name: str) -> MessageOutcomes:
        return self.of_alerts.setdefault(name, MessageOutcomes())

    def _add(self, message: Message) -> None:
        self.pending[message.key] = message
        self._joined.update(message.others)
        self._characters += _size(message)

    def _take(self, key: str) -> Message | None:
        message = self.pending.pop(key, None)
        if message is not None:
            self._joined.difference_update(message.others)
            self._characters -= _size(message)
        return message


def _waits(message: Message, now: str) -> bool:
    """Whether it waits for others of its group; it does not if the clock was set back before its own time."""
    return message.after is not None and message.time <= now < message.after


def _size(message: Message) -> int:
    """Return about how many characters it takes in a status."""
    metadata = sum(len(text) for pair in message.metadata.items() for text in pair)
    return 500 + len(message.message) + metadata + sum(map(len, (*message.objects, *message.others)))
