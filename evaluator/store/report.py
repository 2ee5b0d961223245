"""A source's content and health as one value, and the health after the next report. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from evaluator.flags.model import EMPTY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.flags.model import FlagSet, Json


@dataclass(frozen=True, slots=True)
class Staleness:
    """Why what is served may be outdated."""

    reason: str
    since: float
    """Unix seconds: the last moment at which it was known to be current."""
    cause: str = ""
    """The CamelCase reason of the source's fault, for programs; may be empty."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a source holds."""

    flag_set: FlagSet | None
    """The flag set; None: the source has none, or none any more."""
    digest: str | None = None
    """Digest of the set, if the caller has it already: computing it takes long for a large set."""
    context: Mapping[str, Json] = field(default_factory=lambda: EMPTY)
    """Values that the source wants in every evaluation context."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a source could not be read, or what it delivered could not be used."""

    reason: str
    cause: str = ""
    """See `Staleness.cause`."""


@dataclass(frozen=True, slots=True)
class Report:
    """The new state of one source."""

    source: str
    at: float
    """Unix seconds: when the source was asked; of a set from disk, when it was last known to be current."""
    content: Content | None = None
    """The new content; None: it is unchanged."""
    fault: Fault | None = None
    """The fault, if the source cannot be read: what is served of it may be outdated."""
    from_disk: bool = False
    """The content is its last good set, and the source has not been read since the start."""


@dataclass(frozen=True, slots=True)
class Health:
    """How current a source is."""

    last_success: float | None = None
    stale: Staleness | None = None
    from_disk: bool = False

    @property
    def stale_since(self) -> str | None:
        """Return since when the source is stale, as answers show it: RFC 3339 in UTC to the second."""
        if self.stale is None:
            return None
        return datetime.fromtimestamp(self.stale.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def with_content(self, source: str, content: Content) -> Report:
        """A report of other content of the source that leaves the health as it is."""
        fault = None if self.stale is None else Fault(self.stale.reason, self.stale.cause)
        known = self.last_success if self.stale is None else self.stale.since
        return Report(source, 0.0 if known is None else known, content, fault, self.from_disk)

    def after(self, report: Report) -> Health:
        """Return the health after a report. A continued fault keeps the time of its first report."""
        fault = report.fault
        if fault is None:
            return Health(report.at, None, report.from_disk)
        success = report.at if report.from_disk else self.last_success
        known = success if self.stale is None else self.stale.since
        since = report.at if known is None else min(known, report.at)
        return Health(
            None if success is None else min(success, since),
            Staleness(fault.reason, since, fault.cause),
            report.from_disk or self.from_disk,
        )
