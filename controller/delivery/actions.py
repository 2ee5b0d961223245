"""What a person may do about a state, and what keeps a revision from everybody, as data. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from controller.api import featureflagconfiguration, flagrollout, flagset, flagsource
from controller.api.meta import ACCEPT_REVISION, ObjectKey
from controller.delivery.digests import short


@dataclass(frozen=True, slots=True)
class Effect:
    """What became of a request."""

    message: str
    """The state that was reached, or what is waited for, in one line."""
    done: bool = True
    blocked: bool = False
    """Whether it comes no further until a person changes something."""
    waits_for: tuple[str, ...] = ()
    """The evaluators that do not serve it, as far as proxies name them."""


@dataclass(frozen=True, slots=True)
class CandidateAction:
    """About one candidate of a FlagRollout."""

    rollout: ObjectKey
    candidate: str
    """Its digest."""


@dataclass(frozen=True, slots=True)
class Approve(CandidateAction):
    """Let a step end, or the candidate be promoted after the last one."""

    gate: str
    """The step, from 1, or `promotion`."""


@dataclass(frozen=True, slots=True)
class Abort(CandidateAction):
    """Give everybody the promoted definitions again."""


@dataclass(frozen=True, slots=True)
class Promote(CandidateAction):
    """Give everybody the new definitions."""


@dataclass(frozen=True, slots=True)
class ResumeCandidate(CandidateAction):
    """Let it go on after an override has interrupted it."""


@dataclass(frozen=True, slots=True)
class Retry(CandidateAction):
    """Roll a candidate out again that was stopped."""


@dataclass(frozen=True, slots=True)
class Unpause:
    """Let a paused FlagRollout advance again."""

    rollout: ObjectKey


@dataclass(frozen=True, slots=True)
class PromoteAbandoned:
    """Give everybody what a FlagRollout that is gone holds back."""

    target: ObjectKey
    """The object with the flags."""
    candidate: str
    """The digest of what is held back."""


@dataclass(frozen=True, slots=True)
class FixFlag:
    """Correct a definition, and commit that."""

    file: str
    """From the root of the source; empty: not known."""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class AcceptRevision:
    """Let a revision through that a guard holds back."""

    key: ObjectKey
    """A FlagSet, a FlagSource, or a FeatureFlagConfiguration with a remote provider."""
    revision: str
    """Its digest; what the author of a commit wrote is not in it."""


@dataclass(frozen=True, slots=True)
class EndOverride:
    """End an override before its time."""

    override: ObjectKey


@dataclass(frozen=True, slots=True)
class ResumeObject:
    """Have the controller reconcile an object again."""

    key: ObjectKey


Annotated: TypeAlias = Approve | Abort | Promote | ResumeCandidate | Retry
"""What an annotation of the FlagRollout asks for."""
Action: TypeAlias = (
    Annotated | Unpause | PromoteAbandoned | FixFlag | AcceptRevision | EndOverride | ResumeObject
)
_VERBS = {Approve: "approve", Abort: "abort", Promote: "promote", ResumeCandidate: "resume", Retry: "retry"}
_ANNOTATIONS = {
    Approve: flagrollout.APPROVE,
    Abort: flagrollout.ABORT,
    Promote: flagrollout.PROMOTE,
    ResumeCandidate: flagrollout.RESUME,
    Retry: flagrollout.RETRY,
}
_KIND_WORDS = {flagset.KIND: "set", flagsource.KIND: "source", flagrollout.KIND: "rollout"}
_KUBECTL_KINDS = {featureflagconfiguration.KIND: "ffc"}


def in_cluster(action: Action) -> str:
    """The command that does it; empty where a commit is needed."""
    match action:
        case FixFlag():
            return ""
        case AcceptRevision(key=key, revision=revision):
            return _annotate(key, f"{ACCEPT_REVISION}={revision}")
        case PromoteAbandoned(target=target, candidate=candidate):
            return _annotate(target, f"{flagrollout.PROMOTE}={candidate}")
        case EndOverride(override=key):
            words = ["override", "end", key.name]
        case ResumeObject(key=key):
            words = ["resume", _KIND_WORDS.get(key.kind, key.kind.lower()), key.name]
        case Unpause(rollout=key):
            words = ["rollout", "resume", key.name]
        case _:
            key = action.rollout
            words = ["rollout", _VERBS[type(action)], key.name, "--candidate", _digits(action.candidate)]
    return shlex.join(("flagstaff", *words, "-n", key.namespace))


def in_file(action: Action) -> str:
    """What to change in the file that `flagstaff up --rollout` reads, or in the repository."""
    match action:
        case FixFlag(file=file, line=line):
            place = f"{file}:{line}" if line else file
            text = f"correct {place}, and commit it" if place else "commit a correction"
        case AcceptRevision():
            text = "restart without --prune-guard, or commit the removal in smaller parts"
        case EndOverride(override=key) if key.name.startswith("--"):
            text = f"restart without {key.name}"
        case EndOverride(override=key):
            text = f"remove FlagOverride {key.name}"
        case ResumeObject(key=key):
            text = f"set spec.suspend of {key.kind} {key.name} to false"
        case Unpause(rollout=key):
            text = f"remove spec.pause and the annotation {flagrollout.PAUSE} of FlagRollout {key.name}"
        case PromoteAbandoned(candidate=candidate):
            annotation = f"{flagrollout.PROMOTE}: {_digits(candidate)}"
            text = f"add the FlagRollout again, with the annotation {annotation}"
        case _:
            name, value = annotation_of(replace(action, candidate=_digits(action.candidate)))
            text = f'add to metadata.annotations of FlagRollout {action.rollout.name}: {name}: "{value}"'
    return text


def annotation_of(action: Annotated) -> tuple[str, str]:
    """(name, value) of the annotation of the FlagRollout that asks for it."""
    gate = f"/{action.gate}" if isinstance(action, Approve) else ""
    return _ANNOTATIONS[type(action)], f"{action.candidate}{gate}"


def _annotate(key: ObjectKey, annotation: str) -> str:
    kind = _KUBECTL_KINDS.get(key.kind, key.kind.lower())
    return shlex.join(("kubectl", "-n", key.namespace, "annotate", kind, key.name, "--overwrite", annotation))


def _digits(digest: str) -> str:
    """The digits of a digest that are enough for people."""
    return short(digest.rpartition(":")[2])


class Who(StrEnum):
    """Whose move it is."""

    PERSON = "Person"
    COMMIT = "Commit"
    TIME = "Time"
    SYSTEM = "System"


class Sort(StrEnum):
    """What a wait is about."""

    PROBLEM = "Problem"
    HELD = "Held"
    GUARD = "Guard"
    ROLLOUT = "Rollout"
    OVERRIDE = "Override"
    SUSPENDED = "Suspended"


@dataclass(frozen=True, slots=True)
class Wait:
    """Something that keeps the newest revision from everybody."""

    sort: Sort
    reason: str
    """One stable word, such as `WaitingForApproval`."""
    subject: ObjectKey
    message: str
    who: Who
    since: str = ""
    """RFC 3339, as far as known."""
    actions: tuple[Action, ...] = ()
    """What a person may do about it, the most likely first."""
