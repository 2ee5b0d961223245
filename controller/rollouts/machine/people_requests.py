"""The requests that people make by annotations; each names a candidate by its digest. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.api.rollouts.flagrollout import ABORT, APPROVE, PAUSE, PROMOTE, RESUME, RETRY, names_candidate
from controller.delivery.state.digests import short_apart
from controller.delivery.state.state_words import names_text
from controller.runtime.event import Occurrence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from controller.api.rollouts.flagrollout import FlagRolloutSpec
    from controller.api.rollouts.rollout_status import CandidateStatus, FlagRolloutStatus

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


class Requests(NamedTuple):
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
) -> Requests:
    """Read the annotations; each request is acted on once. Without a candidate they wait for one, and a
    request to resume waits for the end of overrides. `overridden`: the digests of candidates under one.
    `new`: of those about which nothing is decided yet, so that requests wait.
    """
    if not status.candidates:
        return Requests({}, status.handled, ())
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
    return Requests(asked, tuple(handled), tuple(events))


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
