"""The input of a rollout's state machine, with the requests of people, and its decision. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.api.flagrollout import (
    ABORT,
    APPROVE,
    PAUSE,
    PROMOTE,
    RESUME,
    RETRY,
    FlagRolloutSpec,
    names_candidate,
)
from controller.api.meta import NOTHING, ObjectKey
from controller.delivery.actions import Action, in_cluster
from controller.delivery.digests import short_apart
from controller.delivery.state_words import names_text
from controller.runtime.event import Occurrence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from typing import Literal

    from controller.api.rollout_status import (
        CandidateStatus,
        FlagRolloutStatus,
        MetricStatus,
        PromotedRevision,
        StepServed,
    )
    from controller.rollouts.rollout_ports import HookAnswer


_NAMES: Final = {"approve": APPROVE, "promote": PROMOTE, "abort": ABORT, "resume": RESUME}
_DIGEST: Final = re.compile(r"(?:sha256:)?[0-9a-f]{12,64}")
_MOST_SHOWN: Final = 80
"""Most characters of what a person wrote that a message repeats."""
_MOST: Final = 64
"""Most requests that are acted on."""
_LONGEST: Final = 512


class Asked(NamedTuple):
    """What people newly ask for one candidate."""

    approvals: tuple[str, ...] = ()
    """Gates: steps, or `promotion`."""
    promote: bool = False
    abort: bool = False
    resume: bool = False


class PeopleRequests(NamedTuple):
    """The new requests of all annotations."""

    asked: Mapping[str, Asked]
    """By the digest of the candidate."""
    handled: tuple[str, ...]
    """For the status: all that were acted on, and are still there."""
    events: tuple[Occurrence, ...]


def requests(
    status: FlagRolloutStatus,
    annotations: Mapping[str, str],
    overridden: Collection[str],
    new: Collection[str],
) -> PeopleRequests:
    """Read the annotations; each request is acted on once. Without a candidate they wait for one, and a
    request to resume waits for the end of overrides. `overridden`: the digests of candidates under one.
    `new`: of those about which nothing is decided yet, so that requests wait.
    """
    if not status.candidates:
        return PeopleRequests({}, status.handled, ())
    asked: dict[str, Asked] = {}
    events, handled = [], []
    for name, value in _present(annotations):
        request = f"{name}={value}"[:_LONGEST]
        if request in status.handled:
            handled.append(request)
            continue
        digest, _, gate = value.partition("/")
        candidate = named_candidate(status.candidates, digest)
        waits = candidate is not None and (
            candidate.digest in new or (name == "resume" and candidate.digest in overridden)
        )
        if waits:
            continue
        handled.append(request)
        if candidate is None:
            events.append(_refusal(name, value, status.candidates))
            continue
        before = asked.get(candidate.digest, Asked())
        approvals = (gate.partition("/")[0],) if name == "approve" and gate else ()
        asked[candidate.digest] = Asked(
            (*before.approvals, *approvals),
            before.promote or name == "promote",
            before.abort or name == "abort",
            before.resume or name == "resume",
        )
    return PeopleRequests(asked, tuple(handled), tuple(events))


def _present(annotations: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    count = 0
    for name, key in _NAMES.items():
        for value in _parts(annotations.get(key, "")):
            if count < _MOST:
                yield name, value
            count += 1


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def named_candidate(candidates: Iterable[CandidateStatus], digest: str) -> CandidateStatus | None:
    """Return the candidate of a digest, of which 12 digits are enough; None: there is none, or several."""
    named = [one for one in candidates if names_candidate(digest, one.digest)]
    return named[0] if len(named) == 1 else None


def is_paused(spec: FlagRolloutSpec, annotations: Mapping[str, str], candidate: CandidateStatus) -> bool:
    """Whether somebody has paused the candidate, or all, in the spec or by annotation."""
    text = annotations.get(PAUSE, "")
    if spec.pause or text.lower() == "true":
        return True
    return names_candidate(text, candidate.digest)


def retry_token(spec: FlagRolloutSpec, annotations: Mapping[str, str]) -> str:
    """Return the token that rolls candidates that were stopped out again when it changes."""
    return "/".join(filter(None, (spec.retry, annotations.get(RETRY, "")[:_LONGEST])))[:_LONGEST]


def candidates_to_retry(
    candidates: Sequence[CandidateStatus], annotations: Mapping[str, str]
) -> tuple[CandidateStatus, ...]:
    """Return the candidates that a new token is about: those that the annotation names, or all."""
    digests = [part.partition("/")[0] for part in _parts(annotations.get(RETRY, ""))]
    if not any(map(_DIGEST.fullmatch, digests)):
        return tuple(candidates)
    named = (named_candidate(candidates, digest) for digest in digests)
    return tuple(candidate for candidate in named if candidate is not None)


def _refusal(name: str, value: str, candidates: Sequence[CandidateStatus]) -> Occurrence:
    named = value.partition("/")[0][:_MOST_SHOWN]
    digest, others = short_apart(named, [candidate.digest for candidate in candidates])
    listed = names_text(others)
    return Occurrence(
        "ApprovalForAnotherRevision",
        f"the annotation {_NAMES[name]} is about {digest}, and the candidates are {listed}: it has no effect",
        warning=True,
        version=value,
    )


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """Why a definition cannot be served to some users only."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Commit:
    """Where a definition comes from."""

    revision: str | None = None
    author: str | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """The present state of a rollout's flags, evaluators, checks and requests."""

    rollout: ObjectKey
    promoted: PromotedRevision
    """The definitions that everybody else gets; their shard is written before the status."""
    revision: str = ""
    """The commit of the flag set; empty: it names none."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """The digest of each definition that differs from the promoted one, by key."""
    commits: Mapping[str, Commit] = field(default_factory=dict)
    """Where these definitions come from, by key."""
    promoted_definitions: Mapping[str, str] = field(default_factory=dict)
    """The digests of promoted definitions of flags that differ, and of those under an override, by key."""
    absent: frozenset[str] = frozenset()
    """Keys with a promoted definition that is kept while the flag is not in the set."""
    disabled: frozenset[str] = frozenset()
    """Keys of flags that Git disables."""
    misfits: Mapping[str, Incompatibility] = field(default_factory=dict)
    """By key."""
    audiences: tuple[dict[str, Any] | None, ...] = ()
    """The audience of each step of the spec, with references expanded; None: the step has a share."""
    bucketing: Literal["v2", "v3"] | None = None
    """The generation of `fractional` that is served."""
    overrides: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of the overrides in force, by the key of their flag."""
    override_audiences: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """The audience of each of these overrides that has one, with references expanded, by its name."""
    served: Mapping[str, StepServed] = field(default_factory=dict)
    """How many evaluators serve what the status says of a candidate, by its digest; absent: it is not
    delivered yet.
    """
    promotions: Mapping[str, PromotedRevision] = field(default_factory=dict)
    """The promoted definitions after the promotion of one candidate, by its digest, of those in phase
    `Promoting`.
    """
    metrics: Mapping[str, tuple[MetricStatus, ...]] = field(default_factory=dict)
    """The checks made now, by candidate."""
    answers: Mapping[str, Mapping[str, HookAnswer]] = field(default_factory=dict)
    """The answers of webhooks that were called now, by candidate and name."""
    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """The annotations of the FlagRollout, with people's requests."""
    advise: Callable[[Action], str] = in_cluster
    """Says how a person does something."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The input of one decision about one candidate, beside its status."""

    spec: FlagRolloutSpec
    now: datetime
    rollout: ObjectKey
    asked: Asked
    """What people ask for."""
    misfit: Incompatibility | None = None
    served: StepServed | None = None
    metrics: tuple[MetricStatus, ...] | None = None
    """The checks made now; None: none was due."""
    answers: Mapping[str, HookAnswer] = field(default_factory=dict)
    """The answers of webhooks that were called now, by name."""
    overrides: tuple[str, ...] = ()
    """Names of the overrides in force of its flags."""
    hidden_from: tuple[dict[str, Any], ...] = ()
    """The audiences of these overrides; an empty one is everybody."""
    missing: str = ""
    """`FlagAbsent` or `FlagDisabled` where Git does not have its flags, or disables them."""
    paused: bool = False
    skips: str = ""
    """Why it needs no steps: `skipAnalysis` or `rollbackWindow`; empty: it does."""
    promotion: PromotedRevision | None = None
    """The promoted definitions after its promotion; None: it cannot be promoted now."""
    audiences: tuple[dict[str, Any] | None, ...] = ()
    """See Observation."""
    bucketing: Literal["v2", "v3"] | None = None
    advise: Callable[[Action], str] = in_cluster


@dataclass(frozen=True, slots=True)
class Decision:
    """The next state of the rollout."""

    status: FlagRolloutStatus
    """The whole status; writing it publishes the steps."""
    events: tuple[Occurrence, ...]
    requeue_after: float | None
    """Seconds until the next decision is due; None: only a change of an object makes one due."""
