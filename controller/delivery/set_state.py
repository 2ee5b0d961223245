"""The state of one flag set, as all who show it read it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from controller.delivery.digests import Digests

if TYPE_CHECKING:
    from controller.api.featureflagconfiguration import LaggardStatus
    from controller.api.flagset_status import HeldFlag, HistoryEntry, ProblemStatus
    from controller.api.meta import ObjectKey
    from controller.delivery.actions import Wait


class Where(StrEnum):
    """Where the objects are, hence how a person acts on them."""

    CLUSTER = "cluster"
    LOCAL = "local"
    """In the memory of `flagstaff up`."""


class Verdict(StrEnum):
    """What became of the newest revision."""

    BUILDING = "Building"
    APPLIED = "Applied"
    PARTLY = "Partly"
    """Applied, except flags that are held or left out."""
    REFUSED = "Refused"
    """Nothing of it is applied: its definitions are bad."""
    GUARDED = "Guarded"
    """Nothing of it is applied before a person accepts it."""
    UNREADABLE = "Unreadable"
    """It could not be read, or not be written."""


class Reach(IntEnum):
    """How far a revision has come."""

    UNKNOWN = 0
    """No object has it, as far as can be seen."""
    FETCHED = 1
    """Its source has it, or its FlagSet has tried it."""
    APPLIED = 2
    """Its FlagSet has applied it, whole."""
    DELIVERED = 3
    """The object has it, and evaluators are sent it."""
    SERVED_IN_PART = 4
    """Evaluators serve it, as many as are asked for; rollouts or overrides keep flags of it from users."""
    SERVED_BY_ALL = 5
    """Evaluators serve it, and every user gets all of its flags."""


class StageHealth(StrEnum):
    """How a stage is, in words."""

    READY = "ready"
    WAITING = "in progress"
    FAILED = "failed"
    SUSPENDED = "suspended"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage that a revision passes."""

    title: Literal["Source", "Flag set", "Object", "Proxy", "Evaluators"]
    name: str
    """KIND/NAME; of a proxy its own; empty for evaluators."""
    health: StageHealth
    revision: str = ""
    """The newest revision that has passed it."""
    since: str = ""
    """When it passed, RFC 3339, as far as known."""
    message: str = ""
    """Why it is not ready, or how much of it is."""


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest revision that is known of."""

    revision: str
    """Empty: none is known."""
    verdict: Verdict
    message: str = ""
    """What the object that judged it says."""
    author: str = ""
    problems: tuple[ProblemStatus, ...] = ()
    problem_count: int = 0
    """How many problems there are, also where fewer are listed."""
    removals: tuple[str, ...] = ()
    """Flags that it would remove once it is accepted."""
    blocked: bool = False
    """Whether it stays so until a person changes something."""
    committed_at: str = ""
    """RFC 3339, as these two; empty: not known."""
    seen_at: str = ""
    """When its source saw it first."""
    stored_at: str = ""
    """When its source had stored it."""


Users: TypeAlias = Literal["nobody", "some", "everybody"]


class StepDate(NamedTuple):
    """A step of a candidate that does not begin before a date."""

    number: str
    """`2/4`."""
    users: str
    """`10%`, `audience`."""
    date: str
    """As the FlagRollout has it."""


@dataclass(frozen=True, slots=True)
class CandidateLayer:
    """Flags whose newest definitions not everybody gets, by one candidate of a FlagRollout."""

    rollout: ObjectKey
    candidate: str
    """Its digest; empty: the FlagRollout has not made one of these flags yet."""
    flags: tuple[str, ...]
    phase: str
    """As in the status of the FlagRollout; `Abandoned`: that is gone; empty: not known."""
    users: Users
    """Who gets the newest definitions."""
    revision: str = ""
    author: str = ""
    step: str = ""
    """`2/4`; empty while nobody gets them."""
    share: str = ""
    """`10%`, `audience`."""
    gate: str = ""
    """What an approval would let end."""
    verdict: str = ""
    """The worst of its newest checks."""
    reason: str = ""
    """Why it is held, or why it ended."""
    message: str = ""
    """The cause in words."""
    since: str = ""
    """Since when it is held, or at its step, RFC 3339."""
    dates: tuple[StepDate, ...] = ()
    """Of the steps that have not begun."""


@dataclass(frozen=True, slots=True)
class OverrideLayer:
    """A flag that is set by hand."""

    override: ObjectKey
    flag: str
    variant: str | None
    """None: the flag is disabled."""
    audience: bool
    """Whether it is in force for an audience only."""
    until: str
    """RFC 3339; empty: it has no end."""
    reason: str
    by: str = ""
    """Who set it, as far as admission has recorded it."""
    hides: str = ""
    """What the definition says."""


@dataclass(frozen=True, slots=True)
class RemoteLayer:
    """Flags of a remote provider."""

    name: str
    """Where they come from, without what may be secret."""
    flags: int
    version: str = ""
    stale_since: str = ""
    """Since when the provider does not confirm them; empty while it does."""
    message: str = ""
    """What is wrong with the provider."""


@dataclass(frozen=True, slots=True)
class ToldLayer:
    """Rollouts or overrides of which only a condition tells, where they could not be read."""

    message: str


Layer: TypeAlias = CandidateLayer | OverrideLayer | ToldLayer | RemoteLayer


@dataclass(frozen=True, slots=True)
class Served:
    """Who serves the effective flags."""

    count: int = 0
    total: int | None = None
    """Evaluators that report what they serve; None: not known."""
    laggards: tuple[LaggardStatus, ...] = ()
    """Those that are silent or serve something else, as far as proxies name them."""
    streams: int = 0
    """Subscribers that report nothing: it was delivered to them."""
    since: str = ""
    """When their revision was seen first, RFC 3339; empty: not known."""
    within: str = ""
    """The longest time from then to an evaluator that served it."""

    @property
    def silent(self) -> int:
        """How many of the named laggards are silent."""
        return sum(laggard.silent for laggard in self.laggards)

    @property
    def lagging(self) -> int:
        """How many evaluators do not serve it."""
        return (self.total or 0) - self.count


@dataclass(frozen=True, slots=True)
class SetState:
    """What is served of one flag set, and what is not yet."""

    key: ObjectKey
    """The object that evaluators follow, or that a FlagSet is to write."""
    where: Where
    newest: Newest
    writer: ObjectKey | None = None
    """The FlagSet that writes the object."""
    source: ObjectKey | None = None
    address: str = ""
    """The URL of the source; empty: not known."""
    exists: bool = False
    """Whether the object is there."""
    cluster: str = ""
    """The URL of the API server of another cluster that has it: the status of the FlagSet alone tells of it.
    Empty: it is in the FlagSet's own cluster.
    """
    outdated: bool = False
    """Whether its FlagSet writes another object now."""
    processed: bool = False
    """Whether its status is about it as it is now."""
    revision: str = ""
    """The revision of what the object delivers: the last one that changed its content."""
    applied: str = ""
    """The newest revision that the FlagSet applied."""
    good: str = ""
    """The newest revision in which no flag was held."""
    held: tuple[HeldFlag, ...] = ()
    """Flags that are served as an earlier revision has them."""
    flags: int | None = None
    """How many flags the set has."""
    history: tuple[HistoryEntry, ...] = ()
    """The revisions that were applied, the newest first."""
    layers: tuple[Layer, ...] = ()
    digests: Digests = field(default_factory=Digests)
    served: Served = field(default_factory=Served)
    stages: tuple[Stage, ...] = ()
    waits: tuple[Wait, ...] = ()
    suspended: tuple[ObjectKey, ...] = ()
    """Source, FlagSet and FlagRollouts that are suspended."""
    objects: tuple[ObjectKey, ...] = ()
    """What it was read from."""
    unknown: tuple[str, ...] = ()
    """Kinds of objects that could not be read, so that layers may be missing."""

    @property
    def object_text(self) -> str:
        """What evaluators follow, for people: in local mode nobody knows the object."""
        return "the flag set" if self.where is Where.LOCAL else f"the {self.key.kind}"

    @property
    def candidates(self) -> tuple[CandidateLayer, ...]:
        """The candidates of FlagRollouts."""
        return tuple(layer for layer in self.layers if isinstance(layer, CandidateLayer))

    @property
    def overrides(self) -> tuple[OverrideLayer, ...]:
        """The overrides in force."""
        return tuple(layer for layer in self.layers if isinstance(layer, OverrideLayer))

    @property
    def withheld(self) -> tuple[CandidateLayer | OverrideLayer | ToldLayer, ...]:
        """The layers by which some users do not get flags as the newest applied revision has them."""
        return tuple(
            layer
            for layer in self.layers
            if not isinstance(layer, RemoteLayer)
            and not (isinstance(layer, CandidateLayer) and layer.users == "everybody")
        )
