"""The port of the page: what it shows, as far as one caller may see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

from controller.api.objects.meta import ObjectKey
from controller.delivery.state.flag_state import flag_states
from controller.delivery.state.set_state import Newest, SetState, Verdict, Where
from evaluator.flags.model import EMPTY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from controller.delivery.state.flag_state import FlagState
    from controller.delivery.state.wait_model import Wait
    from controller.page.delivery.proxy_members import FleetMember
    from controller.page.delivery.shown_events import ShownEvent
    from evaluator.flags.model import FlagSet
    from evaluator.resolving.resolve import CompiledFlagSet


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
class FlagPlace:
    """Where a layer defines a flag."""

    file: str
    line: int
    """From 1."""


@dataclass(frozen=True, slots=True)
class FlagHistory:
    """Where a flag is defined, and the commits that changed it."""

    changes: tuple[FlagChange, ...] = ()
    """The newest first."""
    places: tuple[FlagPlace, ...] = ()
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

    def faults(self) -> Sequence[str]:
        """Return why something is missing or may be outdated: a sentence for each fault."""
