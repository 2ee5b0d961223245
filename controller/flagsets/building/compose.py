"""Decides from a revision's tree and the last good flag set what the next flag set is. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from controller.flagsets.building.commit_provenance import PLACES, without_forgeries
from controller.flagsets.preparing.patches import Patch, apply_patches
from controller.flagsets.preparing.preparation import NO_STEPS, Preparation, Steps
from controller.flagsets.reading.layers import DEFAULT_PATHS, LayersRefused, read_layers
from controller.runtime.user_text.plain_text import one_line
from evaluator.flags.accept import Policy, Refused, accept
from evaluator.flags.canonical import digest
from evaluator.flags.diff import Diff, diff, keep_unchanged
from evaluator.flags.layers.merge import merge
from evaluator.flags.model import BUCKETING_KEY, DIGEST_KEY, HELD_FROM_KEY, REVISION_KEY, Bucketing, FlagSet

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from evaluator.flags.model import Scalar
    from evaluator.flags.syntax.problems import Problem

_PLACE: Final = attrgetter("file", "line", "column")
_FLAG_SET_ID: Final = "flagSetId"
_NOTHING: Final = Diff((), MappingProxyType({}), ())
FEWEST: Final = 5
"""Fewer removed flags are never held, unless they are all that there were."""
PART: Final = 4
"""More than one in so many removed flags is held."""
_NAMED: Final = 5
_KEY_CHARACTERS: Final = 64


class FailurePolicy(StrEnum):
    """What a problem holds back."""

    PER_FLAG = "PerFlag"
    """The flag that has it; its siblings move on."""
    ATOMIC = "Atomic"
    """The whole revision."""


@dataclass(frozen=True, slots=True)
class Composition:
    """The result of composing a revision."""

    flag_set: FlagSet
    """The flag set to serve: `previous` itself if nothing changed; empty if there is no good one."""
    digest: str
    """The digest of `flag_set`: `sha256:<hex>`."""
    problems: tuple[Problem, ...]
    """Sorted by place."""
    held: tuple[str, ...]
    """Keys of the flags that stay at their last good definition, sorted."""
    changed: Diff
    """The changes from `previous` (or nothing) to `flag_set`."""
    accepted: bool
    """False: the revision was refused as a whole."""
    missing: tuple[str, ...] = ()
    """Keys of bad flags that have no last good definition and so are not served, sorted."""


def compose(  # noqa: PLR0913 - one decision, all of it named at the call
    tree: Mapping[str, bytes],
    paths: Sequence[str],
    *,
    provenance: Mapping[str, Scalar],
    previous: FlagSet | None,
    policy: FailurePolicy = FailurePolicy.PER_FLAG,
    lenient: bool = False,
    default_flag_set_id: str | None = None,
    bucketing: Bucketing = Bucketing.V2,
    skipped: Collection[str] = (),
    steps: Steps = NO_STEPS,
    patches: Sequence[Patch] = (),
) -> Composition:
    """Read the layers `paths` (base first) of `tree`, merge them, and hold back what is bad.

    Unless `lenient`, warnings count as errors. `skipped` is what the tree lists and does not hold, as
    Fetched.skipped has it. `bucketing` pins a generation other than flagd's own, v2, where the set pins none.
    Each document goes through the `steps`, the merged layers through the `patches`.
    Never raises for what a tree may hold.
    """
    preparation = Preparation(steps)
    try:
        layers = read_layers(tree, paths or DEFAULT_PATHS, skipped, preparation.documents)
    except LayersRefused as refusal:
        return refuse_revision(previous, refusal.problems)
    layers, moved = apply_patches(layers, patches)
    preparation.add_moves(moved)
    parsed = merge(layers)
    flag_set, forged = without_forgeries(parsed.flag_set, layers)
    flag_set = keep_unchanged(flag_set, previous)
    parsed = replace(
        parsed,
        flag_set=_with_set_metadata(preparation.with_secret_marks(flag_set), default_flag_set_id, bucketing),
        problems=tuple(sorted((*parsed.problems, *forged), key=_PLACE)) if forged else parsed.problems,
        warned=parsed.warned | {problem.flag for problem in forged if problem.flag is not None},
    )
    judged = accept(parsed, previous, Policy(warnings=not lenient, whole=policy is FailurePolicy.ATOMIC))
    if isinstance(judged, Refused):
        return refuse_revision(previous, preparation.reportable(judged.problems))
    flag_set = _with_provenance(judged.flag_set, judged.digest, provenance, previous, judged.held)
    return Composition(
        flag_set=flag_set,
        digest=judged.digest,
        problems=preparation.reportable(judged.problems),
        held=judged.held,
        changed=_NOTHING if flag_set is previous else diff(previous or FlagSet(), flag_set),
        accepted=True,
        missing=judged.missing,
    )


def _with_set_metadata(flag_set: FlagSet, flag_set_id: str | None, bucketing: Bucketing) -> FlagSet:
    defaults: dict[str, Scalar] = {}
    if flag_set_id is not None:
        defaults[_FLAG_SET_ID] = flag_set_id
    if bucketing is not Bucketing.V2:
        defaults[BUCKETING_KEY] = bucketing.value
    if not defaults.keys() - flag_set.metadata.keys():
        return flag_set
    return replace(flag_set, metadata=MappingProxyType({**defaults, **flag_set.metadata}))


def refuse_revision(previous: FlagSet | None, problems: Iterable[Problem]) -> Composition:
    """A revision of which nothing is delivered: `previous` stays, whole."""
    flag_set = previous if previous is not None else FlagSet()
    return Composition(
        flag_set=flag_set,
        digest=digest(flag_set),
        problems=tuple(problems),
        held=tuple(sorted(flag_set.flags)),
        changed=_NOTHING,
        accepted=False,
    )


def _with_provenance(
    flag_set: FlagSet,
    content: str,
    provenance: Mapping[str, Scalar],
    previous: FlagSet | None,
    held: Sequence[str],
) -> FlagSet:
    """The set with its provenance, which names the revision that last changed `content`, its digest."""
    if previous is None or REVISION_KEY not in previous.metadata or digest(previous) != content:
        places = {**provenance, DIGEST_KEY: content}
    elif {key for key, flag in previous.flags.items() if HELD_FROM_KEY in flag.metadata} <= set(held):
        return previous
    else:
        # A flag recovered to what it was held at: it must no longer say that it is held.
        places = {key: previous.metadata[key] for key in PLACES if key in previous.metadata}
    metadata = MappingProxyType({**flag_set.metadata, **places})
    return replace(flag_set, metadata=metadata)


@dataclass(frozen=True, slots=True)
class BulkRemoval:
    """Flags that a revision would remove."""

    keys: tuple[str, ...]
    """Sorted; never empty."""
    total: int
    """Flags that are served now."""

    def __str__(self) -> str:
        """`removes 8 of 10 flags: banner, checkout, …`, on one line however keys are written."""
        named = ", ".join(one_line(key, _KEY_CHARACTERS) for key in self.keys[:_NAMED])
        more = ", …" if len(self.keys) > _NAMED else ""
        if self.total == 1:
            return f"removes the only flag: {named}"
        amount = f"{len(self.keys)} of {self.total}" if len(self.keys) < self.total else f"all {self.total}"
        return f"removes {amount} flags: {named}{more}"


def bulk_removal(before: FlagSet | None, after: FlagSet) -> BulkRemoval | None:
    """Return the removed flags if they are all, or five and more than a quarter; None for fewer."""
    if before is None or not before.flags:
        return None
    gone, total = before.flags.keys() - after.flags.keys(), len(before.flags)
    if len(gone) == total or (len(gone) >= FEWEST and len(gone) * PART > total):
        return BulkRemoval(tuple(sorted(gone)), total)
    return None
