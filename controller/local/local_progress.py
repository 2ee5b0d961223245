"""What `flagstaff up` serves while overrides or rollouts are in force, and the flags that its command line
sets.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from controller.api import flagoverride
from controller.api.meta import ObjectKey, Resource
from controller.delivery.overrides import with_kept
from controller.delivery.progress_words import unfit_text
from controller.local.local_objects import NAME, NAMESPACE
from evaluator.flags.accept import Progress, effective
from evaluator.flags.canonical import digest
from evaluator.flags.model import DIGEST_KEY, FlagSet
from evaluator.flags.overrides import Kept, Override, kept_anew, misfit

if TYPE_CHECKING:
    from collections.abc import Sequence


def apply_progress(flag_set: FlagSet, known: str | None, progress: Progress) -> tuple[FlagSet, str | None]:
    """What is served of a set, whose digest is `known`, and the digest of that. Slow for a large set."""
    served = effective(flag_set, progress)
    if served is flag_set:
        return flag_set, known
    served_digest = digest(served)
    metadata = MappingProxyType({**served.metadata, DIGEST_KEY: served_digest})
    return replace(served, metadata=metadata), served_digest


log = logging.getLogger(__name__)


class LocalOverrides:
    """Applies them to each set that is served, with the values that they had at first; what is kept on disk
    stays without them.
    """

    def __init__(self, overrides: Sequence[Override] = ()) -> None:
        self._overrides = tuple(overrides)
        self._kept: dict[str, Kept] = {}
        self._behind: tuple[tuple[str | None, str | None], ...] = ()
        """The digests of what was served last, and those of the sets that it was made of."""

    @property
    def _progress(self) -> Progress:
        return with_kept(Progress(overrides=self._overrides), self._kept)

    def objects(self, flag_set: FlagSet) -> list[Resource]:
        """A FlagOverride for each override that fits, as a cluster would have it."""
        return [
            Resource(
                ObjectKey(flagoverride.KIND, NAMESPACE, override.name),
                uid=override.name,
                generation=0,
                resource_version="",
                spec={
                    "flagSetRef": {"name": NAME},
                    "flag": override.flag,
                    "variant": override.variant,
                    "reason": override.reason,
                },
                status={"state": flagoverride.ACTIVE},
            )
            for override in self._progress.overrides
            if misfit(flag_set.flags.get(override.flag), override, flag_set.evaluators) is None
        ]

    def apply(self, flag_set: FlagSet, known: str | None) -> tuple[FlagSet, str | None]:
        """What is served of a set, whose digest is `known`, and the digest of that. Warns of an override that
        does not fit.
        """
        progress = self._progress
        for override in progress.overrides:
            flag = flag_set.flags.get(override.flag)
            if (unfit := misfit(flag, override, flag_set.evaluators)) is not None:
                log.warning("%s: %s", override.name, unfit_text(unfit, override, flag, flag_set.flags))
        served, digest = apply_progress(flag_set, known, progress)
        self._kept |= kept_anew(served, progress.overrides)
        self._behind = (*self._behind[-1:], (digest, known))
        return served, digest

    def digest_behind(self, digest: str) -> str:
        """The digest, without overrides, of the set that is served with `digest`, or was until now."""
        return dict(self._behind).get(digest) or digest
