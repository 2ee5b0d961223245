"""Times of polls and of retries, and how long sources wait. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from evaluator.host.backoff import Backoff
from evaluator.sync.config import InvalidSourceError, SourceConfig

if TYPE_CHECKING:
    from collections.abc import Callable


CAP: Final = 10.0
"""Longest pause between two tries, in seconds."""
_BACKOFF: Final = Backoff(first=0.2, most=CAP, jitter=0.5)
_LOST: Final = Backoff(first=2.0, most=CAP, jitter=0.95)
"""After a source that worked: thousands of evaluators lose a server at once and come to those that are left,
where each costs a handshake, a review of its token and a whole flag set.
"""
_SPREAD: Final = 0.1
"""Part of an interval by which a poll is shifted at random, so that evaluators do not poll in step."""
_LONGEST: Final = 86_400.0
"""Longest pause in seconds: after a change of the clock a source must not wait for years."""


class Schedule:
    """Poll times: each interval, give or take a tenth; with a seed at flagd's times; or by cron, in UTC."""

    def __init__(self, config: SourceConfig, random: Callable[[], float]) -> None:
        """random: returns numbers from 0 to 1. Raises InvalidSourceError for an invalid cron expression."""
        self._interval = config.interval
        self._seed = config.interval_seed
        self._cron = config.cron
        self._random = random
        if self._cron:
            _next(self._cron, datetime(2026, 1, 1, tzinfo=UTC))

    def pause(self, now: float) -> float:
        """Seconds from `now`, in Unix seconds, to the next poll."""
        if self._cron:
            moment = datetime.fromtimestamp(now, UTC)
            return min(_LONGEST, (_next(self._cron, moment) - moment).total_seconds())
        if self._seed:
            past = (now - fnv32a(self._seed.encode()) % self._interval) % self._interval
            return self._interval - past
        return self._interval * (1 + _SPREAD * (2 * self._random() - 1))


def _next(expression: str, moment: datetime) -> datetime:
    # Imported here: only sources with a cron expression need it.
    from cronsim import CronSim, CronSimError  # noqa: PLC0415

    try:
        return next(CronSim(expression, moment))
    except CronSimError as error:
        raise InvalidSourceError(f"cron {expression!r}: {error}") from None
    except StopIteration:
        raise InvalidSourceError(f"cron {expression!r}: this never occurs") from None


def fnv32a(content: bytes) -> int:
    """Return the 32-bit FNV-1a hash, by which flagd shifts polls."""
    value = 0x811C9DC5
    for byte in content:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


class RetryPauses:
    """The pauses of one source: they become longer until `reset`."""

    def __init__(self, random: Callable[[], float]) -> None:
        """random: returns numbers from 0 to 1."""
        self._random = random
        self._failures = 0
        self._spread = False

    def pause(self) -> float:
        """Seconds until the next try."""
        self._failures += 1
        if self._spread:
            self._spread = False
            return _LOST.delay(1, self._random())
        return _BACKOFF.delay(self._failures, self._random())

    def reset(self, *, spread: bool = False) -> None:
        """Make the next pause short again, after a success; `spread`: others lost the same server."""
        self._failures, self._spread = 0, spread


@dataclass(frozen=True, slots=True)
class SourceTiming:
    """All in seconds."""

    poll: float = 1.0
    """Between polls of a file: inotify does not report writes of other machines to a shared file system."""
    longest_writing: float = 5.0
    """After which a file that still changes is reported as a fault."""
    keepalive: float = 40.0
    """Of silence before a ping to a gRPC peer: flagd accepts one every 30 s."""
    ping_timeout: float = 10.0
    """Within which a peer must answer a ping."""
    call: float = 3.0
    """Within which a peer must answer a unary call."""
    confirm: float = 10.0
    """Of silence after which the peer is called: an answer shows that nothing changed."""
    silence: float = 1.0
    """After which a peer that accepted the stream and sends no flags is asked for the reason."""
    proven: float = 1.0
    """Of answering after which a source counts as healthy: its retry pause is reset."""


DEFAULT_TIMING = SourceTiming()
