"""The port of the page: what it shows, as far as one caller may see it. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api.meta import CHANGES, DIFFERENCES, NOTHING, ObjectKey
from controller.authoring.flag_calendar import CalendarEntry, schedule_entries
from controller.delivery.flag_state import FlagState, flag_states
from controller.delivery.set_state import Newest, SetState, Verdict, Where
from controller.runtime.event import as_event
from evaluator.flags.model import EMPTY, REVISION_KEY, FlagSet
from evaluator.host.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from controller.delivery.actions import Wait
    from controller.delivery.promotion import Promotion
    from evaluator.resolving.resolve import CompiledFlagSet


_MOST: Final = 100_000
"""Most evaluators that are read; a proxy has fewer."""


@dataclass(frozen=True, slots=True)
class FleetMember:
    """One evaluator, and what it serves."""

    name: str
    """NAMESPACE/POD, or the name of a process outside pods."""
    revision: str = ""
    """A revision, or a digest where none is known; empty: nothing."""
    node: str = ""
    version: str = ""
    """The version of the evaluator."""
    since: datetime | None = None
    """Since when it lags, or serves what it serves."""
    lagging: bool = False
    silent: bool = False
    verified: bool = True
    """Whether a token proves the name."""

    @property
    def state(self) -> str:
        """`serves it`, `behind` or `silent`."""
        if self.silent:
            return "silent"
        return "behind" if self.lagging else "serves it"


def read_fleets(answers: Iterable[object]) -> dict[str, tuple[FleetMember, ...]]:
    """Members by the object that they follow, NAMESPACE/NAME, sorted; `answers` are of all proxies. What is
    malformed is left out.
    """
    members: dict[str, list[FleetMember]] = {}
    for entry in (entry for answer in answers for entry in _dicts(answer, "flagSets")):
        place = f"{entry.get('namespace')}/{entry.get('name')}"
        members.setdefault(place, []).extend(map(_member, _dicts(entry, "members")))
    return {
        place: tuple(sorted(listed[:_MOST], key=lambda member: (not member.lagging, member.name)))
        for place, listed in members.items()
    }


def time_served_by(members: Sequence[FleetMember], percent: int) -> datetime | None:
    """When `percent` of the evaluators served what they should; None: fewer do."""
    moments = sorted(member.since for member in members if not member.lagging and member.since is not None)
    wanted = ceil(len(members) * percent / 100)
    return moments[wanted - 1] if 0 < wanted <= len(moments) else None


def _dicts(parent: object, field: str) -> list[Mapping[str, Any]]:
    listed = parent.get(field) if isinstance(parent, dict) else None
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


def _member(entry: Mapping[str, Any]) -> FleetMember:
    return FleetMember(
        str(entry.get("name") or ""),
        str(entry.get("revision") or entry.get("digest") or ""),
        str(entry.get("node") or ""),
        str(entry.get("version") or ""),
        parse_time(entry.get("since")),
        lagging=entry.get("lagging") is True,
        silent=entry.get("silent") is True,
        verified=entry.get("verified") is True,
    )


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
        parse_time(event["timestamp"]),
        warning=event["severity"] == "error",
        metadata=event["metadata"],
    )


@dataclass(frozen=True, slots=True)
class FlagChange:
    """One commit that changed a flag."""

    commit: str
    """40 hexadecimal digits, or another revision; empty: unknown."""
    author: str = ""
    """`Name <mail>`."""
    subject: str = ""
    """The first line of the commit's message."""
    at: datetime | None = None
    difference: str = ""
    """What it changed, in words, such as `default off (false) → on (true)`."""


@dataclass(frozen=True, slots=True)
class LayerPlace:
    """Where a layer defines a flag."""

    file: str
    line: int
    """From 1."""


@dataclass(frozen=True, slots=True)
class FlagHistory:
    """Where a flag is defined, and the commits that changed it."""

    changes: tuple[FlagChange, ...] = ()
    """The newest first."""
    places: tuple[LayerPlace, ...] = ()
    """Base first."""
    gap: str = ""
    """Why earlier changes, or the places, are not known; empty: all are."""


@dataclass(frozen=True, slots=True)
class VariantRates:
    """Evaluations of one flag per minute, by variant."""

    times: tuple[int, ...]
    """The ends of the intervals, in Unix seconds."""
    rates: Mapping[str, tuple[float, ...]]
    """Evaluations per minute in each interval, by variant; an empty name: the caller's own default."""


UNDELIVERED: Final = SetState(ObjectKey("", "", ""), Where.LOCAL, Newest("", Verdict.APPLIED))
"""The state of a set that is compared only, and delivered nowhere."""


@dataclass(frozen=True)
class ShownSet:
    """A flag set as the page shows it."""

    name: str
    """NAMESPACE/NAME, or NAME alone without a cluster."""
    flag_set: FlagSet
    """As it is defined, without overrides and rollouts."""
    served: CompiledFlagSet
    """As it is evaluated."""
    revision: str = ""
    """The revision that it was made of, such as `main@sha1:…`."""
    address: str = ""
    """The URL of the source, for links to its Git server."""
    last_changes: Mapping[str, FlagChange] = field(default_factory=lambda: EMPTY)
    """The newest change of each flag, as far as it is known."""
    state: SetState = UNDELIVERED
    title: str = ""
    """How it is called beside others that have the same flag; empty: by its name."""

    @cached_property
    def flags(self) -> Mapping[str, FlagState]:
        """The state of each flag by key, also of those that have no good definition."""
        return flag_states(self.state, self.served.flag_set)

    @cached_property
    def schedules(self) -> tuple[CalendarEntry, ...]:
        """The times in the rules of its flags."""
        return tuple(schedule_entries(self.flag_set, self.flag_set.flags))


class PageSource(Protocol):
    """What one caller may see. Methods may block: they are called in a thread."""

    @property
    def version(self) -> str:
        """A text that changes whenever anything that is shown does."""

    def sets(self) -> Sequence[str]:
        """Return the names of the flag sets that the caller may see, sorted."""

    def shown_set(self, name: str) -> ShownSet | None:
        """Return a flag set; None where there is none, or the caller may not see it."""

    def environments(self, name: str, key: str) -> Sequence[ShownSet]:
        """Return the sets in which the same flag is to be compared, that of `name` among them; empty where
        there is no other.
        """

    def history(self, name: str, key: str) -> FlagHistory:
        """Return the history of a flag of a set that the caller may see."""

    def rates(self, name: str, keys: Sequence[str]) -> Mapping[str, VariantRates]:
        """Return the evaluations of some flags, as far as they are known."""

    def states(self) -> Sequence[SetState]:
        """Return the state of each set, by name, also of those that have no flags yet."""

    def other_waits(self) -> Sequence[Wait]:
        """Return what objects wait for that are about no set."""

    def events(self) -> Sequence[ShownEvent]:
        """Return the last Events about these objects, the newest first."""

    def members(self) -> Mapping[str, Sequence[FleetMember]]:
        """Return evaluators by the object that they follow, NAMESPACE/NAME, as far as a proxy was asked."""

    def promotion(self, rollout: str, revision: str) -> Promotion | None:
        """Return how far a revision is in a FlagRollout, NAMESPACE/NAME; None where there is none, or the
        caller may not see it.
        """

    def faults(self) -> Sequence[str]:
        """Return why something is missing or may be outdated: a sentence for each fault."""
