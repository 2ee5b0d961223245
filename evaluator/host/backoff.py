"""The pauses between tries of what failed."""

from __future__ import annotations

from dataclasses import dataclass

from evaluator.host.times import parse_http_date


@dataclass(frozen=True, slots=True)
class Backoff:
    """A pause that doubles with each failure in a row, in seconds. The defaults are Flux's."""

    first: float = 0.75
    most: float = 900.0
    jitter: float = 0.2
    """The share of the pause by which it is shortened at random, so that those who failed together come back
    apart.
    """

    def delay(self, failures: int, random: float) -> float:
        """Return the seconds to wait after `failures` in a row (1 or more); `random` is from 0 to 1."""
        delay = min(self.most, self.first * 2.0 ** min(failures - 1, 60))
        return delay * (1.0 - self.jitter * random)


def retry_after(text: str, now: float, most: float) -> float:
    """Return the seconds of a `Retry-After`, a number or a date, up to `most`; 0 for none (RFC 9110, 10.2.3).
    `now`: Unix seconds.
    """
    text = text.strip()[:64]
    if text.isascii() and text.isdigit():
        return min(most, float(text))
    moment = parse_http_date(text)
    return 0.0 if moment is None else min(most, max(0.0, moment.timestamp() - now))
