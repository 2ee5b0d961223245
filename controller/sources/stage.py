"""What wakes the reconciler of FlagSource."""

from __future__ import annotations

from typing import Final

from controller.api import flagsource
from controller.api.flagsource import FlagSourceStatus
from controller.api.kinds import FLAG_SOURCE, SECRET
from controller.api.meta import Resource, secret_names, version_of
from controller.api.status import READY
from controller.runtime.cache import Index
from controller.runtime.quotas import index_of_refused, wake_when_freed
from controller.runtime.watches import Reconciles, Watch, keys_listed_by
from controller.sources.include import included_names

BY_SECRET: Final = Index(
    "FlagSource by Secret",
    frozenset({flagsource.KIND}),
    lambda resource: {name for part in resource.spec.values() for name in secret_names(part)},
)
BY_INCLUDED: Final = Index("FlagSource by included one", frozenset({flagsource.KIND}), included_names)
OVER_QUOTA: Final = index_of_refused(flagsource.KIND)


def stored_bytes(source: Resource) -> int:
    """The size of a FlagSource's artifact, by its status."""
    artifact = FlagSourceStatus.of(source).artifact
    return (artifact.size or 0) if artifact is not None else 0


def _offer(source: Resource | None) -> object:
    """Return the fields that matter to sources that include it."""
    if source is None:
        return None
    status = FlagSourceStatus.of(source)
    ready = status.condition(READY)
    # A change of what it includes itself may end a cycle.
    health = (ready.status, ready.reason, source.suspended, list(included_names(source)))
    return status.content, bool(status.observed_verification), health


FLAG_SOURCES: Final = Reconciles(
    FLAG_SOURCE,
    wakes=(
        Watch(frozenset({SECRET.kind}), changed=version_of, keys=keys_listed_by(BY_SECRET)),
        Watch(frozenset({flagsource.KIND}), changed=_offer, keys=keys_listed_by(BY_INCLUDED)),
        wake_when_freed(flagsource.KIND, OVER_QUOTA, stored_bytes),
    ),
    indexes=(BY_SECRET, BY_INCLUDED, OVER_QUOTA),
)
