"""Metrics of the evaluator's state: what it serves, each source's health, swaps, connections, streams."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from evaluator.server.families import Histograms, PortMetrics, counter, gauge, share_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client.core import Metric

    from evaluator.store.store import ServedSource, Store

LIFETIMES: Final = (1.0, 10.0, 60.0, 300.0, 600.0, 1_800.0, 3_600.0, 21_600.0, 86_400.0)
"""Bucket bounds of the time that a stream was open, in seconds."""


class SourceState(StrEnum):
    """The state of a source in one word; in each state the last good set is served."""

    CURRENT = "current"
    PENDING = "pending"
    """The source has not answered since the start."""
    ABSENT = "absent"
    """The source answers that the flags do not exist, and none were ever known here."""
    DELETED = "deleted"
    """The source answers that the flags do not exist (any more)."""
    FORBIDDEN = "forbidden"
    UNAUTHENTICATED = "unauthenticated"
    DOWN = "down"
    """The source does not answer, or its answer is inconclusive."""
    UNVERIFIED = "unverified"
    """The source's content has no signature that is believed."""
    INVALID = "invalid"
    """The source's content is invalid."""
    FAILED = "failed"
    """Any other fault, named by the reason."""


_STATES: Final = {
    "NotRead": SourceState.PENDING,
    "Forbidden": SourceState.FORBIDDEN,
    "Unauthenticated": SourceState.UNAUTHENTICATED,
    "Unauthorized": SourceState.UNAUTHENTICATED,
    "Unreachable": SourceState.DOWN,
    "Timeout": SourceState.DOWN,
    "Busy": SourceState.DOWN,
    "Ended": SourceState.DOWN,
    "Unverified": SourceState.UNVERIFIED,
    "Invalid": SourceState.INVALID,
    "TooLarge": SourceState.INVALID,
}
"""States by the cause of staleness."""


class OpenStreams(Protocol):
    """An object with open streams."""

    @property
    def streams(self) -> int:
        """Number of open streams."""


class Saving(Protocol):
    """Saves the served set of a source on disk."""

    source: str

    failures: int
    """Number of saves that failed."""

    @property
    def unsaved_seconds(self) -> float:
        """Seconds for which served content has been unsaved; 0 if all is saved."""

    @property
    def last_save_seconds(self) -> float | None:
        """Seconds from serving to saving of the last saved content; None before the first."""


class StateMetrics:
    """Read at each scrape."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self.ports = PortMetrics()
        self._streams: dict[str, list[OpenStreams]] = {}
        self.saving: Sequence[Saving] = ()
        """Empty without a state folder."""
        self._lifetimes = Histograms(
            LIFETIMES,
            "feature_flag_flagd_sync_stream_duration_seconds",
            "How long SyncFlags streams were open.",
            ("reason",),
        )

    def count_stream_end(self, reason: str, seconds: float) -> None:
        """A SyncFlags stream has ended; `reason` is one of flagd's few words."""
        self._lifetimes.add((reason,), seconds)

    def streams(self, kind: str, kept: OpenStreams) -> None:
        """`kept` has streams of `kind`: `events`, `sync` or `sse`. Several of a kind are summed."""
        self._streams.setdefault(kind, []).append(kept)

    def families(self) -> Iterator[Metric]:
        """Return the present values. Also called outside the loop, so it iterates over copies."""
        yield from self._served_families()
        yield from self._source_families()
        yield from self._save_families()
        yield from self._swap_families()
        yield from self._stream_families()
        yield self._lifetimes.family()
        yield from share_families()

    def _served_families(self) -> Iterator[Metric]:
        snapshot = self._store.snapshot
        info: list[tuple[tuple[str, ...], float]] = []
        if snapshot is not None:
            info.append(((snapshot.revision or "", snapshot.digest), 1))
        yield _gauge(
            "flagstaff_served_revision_info",
            "1 for the revision and digest that are served.",
            ("revision", "digest"),
            info,
        )
        flags = 0 if snapshot is None else len(snapshot.flag_set.flags)
        yield gauge("flagstaff_flags", "Flags that are served.", value=flags)
        success, age = self._store.last_success, self._store.age(self._clock())
        if success is not None and age is not None:
            yield gauge(
                "flagstaff_last_success_timestamp_seconds",
                "When what is served was last known to be current, in Unix time.",
                value=success,
            )
            yield gauge(
                "flagstaff_data_age_seconds",
                "Time since what is served was last known to be current.",
                value=age,
            )

    def _source_families(self) -> Iterator[Metric]:
        now, statuses = self._clock(), self._store.statuses

        def by_source(name: str, what: str, value: Callable[[ServedSource], float | None]) -> Metric:
            samples = [((status.name,), value(status)) for status in statuses]
            return _gauge(name, what, ("source",), ((at, v) for at, v in samples if v is not None))

        yield by_source(
            "flagstaff_source_up",
            "1 while the source answers and what it holds is current; 0 while it is "
            "stale, or has delivered nothing.",
            lambda status: float(status.digest is not None and status.stale is None),
        )
        yield _gauge(
            "flagstaff_source_state",
            "1 for the state that the source is in, 0 for the others.",
            ("source", "state"),
            (((s.name, state_.value), float(state_ is state(s))) for s in statuses for state_ in SourceState),
        )
        yield by_source(
            "flagstaff_source_from_disk",
            "1 while what is served of the source is its last good set and it has not "
            "been read since the start.",
            lambda status: float(status.from_disk),
        )
        yield by_source("flagstaff_source_flags", "Flags that the source holds.", lambda status: status.flags)
        yield by_source(
            "flagstaff_source_last_success_timestamp_seconds",
            "When what the source holds was last known to be current, in Unix time.",
            lambda status: status.last_success,
        )
        yield by_source(
            "flagstaff_source_data_age_seconds",
            "Time since what the source holds was last known to be current.",
            lambda status: age(status, now),
        )
        yield _gauge(
            "flagstaff_source_revision_info",
            "1 for the revision and digest of each source that has delivered.",
            ("source", "revision", "digest"),
            (((s.name, s.revision or "", s.digest), 1) for s in statuses if s.digest is not None),
        )

    def _save_families(self) -> Iterator[Metric]:
        yield _gauge(
            "flagstaff_source_unsaved_seconds",
            "For how long something of the source is served that is not on disk; 0 while there is nothing.",
            ("source",),
            (((writer.source,), writer.unsaved_seconds) for writer in self.saving),
        )
        what = "Failed tries to save the last good set."
        failures = counter("flagstaff_source_save_failures", what, ("source",))
        for saving in self.saving:
            failures.add_metric((saving.source,), saving.failures)
        yield failures
        samples = [((writer.source,), writer.last_save_seconds) for writer in self.saving]
        yield _gauge(
            "flagstaff_source_last_save_duration_seconds",
            "Time from when the source's last change was served until it was on disk.",
            ("source",),
            ((labels, seconds) for labels, seconds in samples if seconds is not None),
        )

    def _swap_families(self) -> Iterator[Metric]:
        swaps = self._store.swaps
        yield counter("flagstaff_swaps", "Changes of what is served.", value=swaps.count)
        yield counter(
            "flagstaff_swap_seconds",
            "Time on the serving loop that swaps took, subscribers' notification included.",
            value=swaps.seconds,
        )
        yield gauge(
            "flagstaff_last_swap_duration_seconds",
            "Time on the serving loop that the last swap took.",
            value=swaps.last,
        )

    def _stream_families(self) -> Iterator[Metric]:
        yield from self.ports.families()
        streams = {kind: sum(counter.streams for counter in kept) for kind, kept in self._streams.items()}
        yield _gauge("flagstaff_streams", "Open streams.", ("kind",), (((k,), n) for k, n in streams.items()))
        if "sync" in streams:
            yield gauge(
                "feature_flag_flagd_sync_active_streams", "Open SyncFlags streams.", value=streams["sync"]
            )
        yield gauge(
            "http_server_active_requests",
            "Open requests: streams, since every other request is answered at once.",
            value=sum(streams.values()),
        )


def age(status: ServedSource, now: float) -> float | None:
    """Seconds since a source's content was last known to be current; None before the first success."""
    return None if status.last_success is None else max(0.0, now - status.last_success)


def state(status: ServedSource) -> SourceState:
    """Return the state of a source."""
    if status.stale is None:
        return SourceState.PENDING if status.digest is None else SourceState.CURRENT
    if status.stale.cause == "NotFound":
        return SourceState.ABSENT if status.digest is None else SourceState.DELETED
    return _STATES.get(status.stale.cause, SourceState.FAILED)


def _gauge(
    name: str, what: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], Any]]
) -> Metric:
    family = gauge(name, what, labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family
