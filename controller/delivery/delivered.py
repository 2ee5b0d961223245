"""What evaluators are sent of an object: its flags as progress has them, their digest, and what is wrong.
Pure.

The one function that the proxy, the status of FeatureFlagConfiguration and, through that status, `flagstaff
wait` go by, so that the digest that is served and the digest that is asked for are of the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from controller.api.openfeature.featureflagconfiguration import MissingShardsError, flag_document
from controller.delivery.remote_flags import compose, remote_flags
from evaluator.flags.accept import NO_PROGRESS, Progress, Refused, accept, effective
from evaluator.flags.canonical import digest
from evaluator.flags.checking.known_operators import DEPTH
from evaluator.flags.layers.merge import parse
from evaluator.flags.overrides import end_expired
from evaluator.flags.rollouts import without_rollouts
from evaluator.flags.syntax.problems import Problem, Severity
from evaluator.flags.syntax.text import Bounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.objects.meta import Resource
    from evaluator.flags.model import FlagSet

_FILE: Final = "flags.json"
_BOUNDS: Final = Bounds(document_bytes=256 * 1024 * 1024, flags=1_000_000, nodes=50_000_000)
"""Limits for 256 shards; the API server limits a single object."""
KEPT_BOUNDS: Final = replace(_BOUNDS, depth=2 * DEPTH + 16)
"""Held rules are expanded, hence deeper than any that a person writes."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What one object delivers."""

    flag_set: FlagSet
    """What evaluators read: the desired flags and those of a remote provider, with progress; where it is
    refused, what could be read of the object's own.
    """
    desired: FlagSet
    """The object's own flags without rollouts in progress: the `previous` of its next content."""
    composed: FlagSet
    """The desired flags and those of a remote provider, without progress."""
    digest: str
    """The digest of `flag_set`, `sha256:<hex>`; empty for a refused one, as the wanted content is unknown."""
    problems: tuple[Problem, ...]
    """Errors and warnings, by place; a JSON path is all that is known of a place."""
    held: tuple[str, ...] = ()
    """Keys of the flags that stay at their last good definition, sorted."""
    missing: tuple[str, ...] = ()
    """Keys of bad flags that have no last good definition and so are not delivered, sorted."""
    notes: tuple[Problem, ...] = ()
    """Remarks that are no failures, by place."""
    local_digest: str = ""
    """The digest of the object's own flags, without those of a remote provider and without progress."""

    @property
    def cause(self) -> str:
        """Why it is refused: the first error, with its place."""
        return Refused(self.problems).cause


def delivery_of(
    resource: Resource,
    shard: Callable[[str], Resource | None],
    progress: Progress = NO_PROGRESS,
    previous: bytes | None = None,
) -> Delivered:
    """What `resource` delivers, with the flags of its remote provider by its status. `shard` finds a
    FlagShard beside it by name. `previous` is the last `desired`, or what was served of it, in its canonical
    form with provenance: flags with an error are held at their definitions in it. Takes long for a large set.

    Raises InvalidSpecError where the object has no flags, MissingShardsError where a part of it, or promoted
    definitions, are not there.
    """
    for name in progress.missing:
        raise MissingShardsError(f"FlagShard {name} with promoted definitions is not there")
    document = flag_document(resource, shard)
    remote = remote_flags(resource, shard, KEPT_BOUNDS)
    parsed = parse(document.content, file=_FILE, bounds=_BOUNDS)
    before = None
    if parsed.errors and previous is not None:
        # What is kept of a set may be what was served, with progress, which is never last good.
        kept = end_expired(parse(previous, file=_FILE, bounds=KEPT_BOUNDS).flag_set, None)
        before = without_rollouts(kept, progress.rollouts)
    judged = accept(parsed, before)
    historic = (Problem("", 0, 0, Severity.WARNING, "historic", warning) for warning in document.warnings)
    problems = (*judged.problems, *historic)
    if isinstance(judged, Refused):
        readable = parsed.flag_set
        return Delivered(readable, readable, readable, "", problems, notes=parsed.notes)
    whole = judged.desired if remote is None else compose(judged.desired, remote, judged.missing)
    flag_set = effective(whole, progress)
    content = judged.digest if flag_set is judged.desired else digest(flag_set)
    replaced = remote.flags if remote is not None and remote.overrides else {}
    held, missing = (
        tuple(key for key in keys if key not in replaced) for keys in (judged.held, judged.missing)
    )
    return Delivered(
        flag_set, judged.desired, whole, content, problems, held, missing, parsed.notes, judged.digest
    )
