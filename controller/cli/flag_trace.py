"""The way of a flag back from a cluster to the change request that brought it, and who rolls it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.cli.object_rows import RECORD
from controller.cli.printing import printable, short
from controller.delivery.overrides import names_of
from controller.delivery.rollouts import rollouts_of_set
from controller.delivery.state_words import candidate_text
from evaluator.flags.candidates import matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from controller.api.meta import Resource
    from controller.delivery.flag_state import FlagState


def rollout_text(rollouts: Iterable[Resource], target: Resource, flag: FlagState) -> str | None:
    """How far the FlagRollout of a flag that an object delivers has come; None where there is none."""
    if flag.candidate is not None:
        return candidate_text(flag.candidate)
    here = [rollout for rollout in rollouts if rollout.namespace == target.namespace]
    for rollout, spec in rollouts_of_set(here, names_of(target)):
        if matches(spec.flags, flag.key):
            return f"FlagRollout {rollout.name} rolls its changes out"
    return None


@dataclass(frozen=True, slots=True)
class FlagTrace:
    """One flag, and where it comes from."""

    __pydantic_config__ = RECORD

    flag: str
    """The flag's key."""
    object: str
    """The object that delivers it: KIND/NAMESPACE/NAME."""
    served: str | None = None
    """How many evaluators serve that object's content, of how many there are."""
    default_variant: str | None = None
    """Its default variant."""
    held_from: str | None = None
    """The revision whose definition is served, where a newer one is bad; `nothing`: it has no good one."""
    problem: str | None = None
    """What is wrong with that newer one."""
    rollout: str | None = None
    """The FlagRollout that rolls changes of the flag out, and who gets the newest one."""
    override: str | None = None
    """The override in force."""
    flag_set: str | None = None
    """The FlagSet that writes the object: NAMESPACE/NAME."""
    source: str | None = None
    """Its source: KIND/NAMESPACE/NAME."""
    address: str | None = None
    """The address that the source reads."""
    revision: str | None = None
    """The revision that was applied."""
    places: tuple[str, ...] = ()
    """FILE:LINE in that revision for each layer that has the flag, base first."""
    commit: str | None = None
    """The commit that last changed these lines, or, where that is not known, the one that was applied."""
    author: str | None = None
    """Who wrote the commit."""
    subject: str | None = None
    """The first line of its message."""
    commit_page: str | None = None
    """The page of the commit, where the Git server is known."""
    change_request: str | None = None
    """The page of its pull or merge request, where its subject names one."""
    unknown: str | None = None
    """Why the places are not known."""


def as_text(trace: FlagTrace) -> Iterator[str]:
    """Yield a line for each step of the way."""
    default = f", default {trace.default_variant}" if trace.default_variant else ""
    served = f", served {trace.served}" if trace.served else ""
    steps = {
        "Flag": f"{trace.flag}{default}",
        "Object": f"{trace.object}{served}",
        "Held": trace.held_from and _held_text(trace.held_from, trace.problem),
        "Rollout": trace.rollout,
        "Override": trace.override,
        "Flag set": trace.flag_set,
        "Source": trace.source and f"{trace.source}, {trace.address or 'no address'}",
        "Revision": trace.revision and short(trace.revision),
        "Defined": ", ".join(trace.places) or trace.unknown,
        "Commit": trace.commit and f"{trace.commit[:12]} {trace.subject or ''}".rstrip(),
        "Author": trace.author,
        "Page": trace.commit_page,
        "Request": trace.change_request,
    }
    for name, step in steps.items():
        if step:
            yield printable(f"{f'{name}:':<10}{step}").replace("\n", " ")


def _held_text(revision: str, problem: str | None) -> str:
    served = "not served" if revision == "nothing" else f"served as in {short(revision)}"
    return f"{served}: {problem or 'newer definitions are bad'}"
