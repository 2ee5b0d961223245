"""Flags that the command line of `flagstaff up` sets by hand."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.api import flagoverride
from controller.api.objects.meta import ObjectKey, Resource
from controller.local.local_progress import apply_progress
from controller.local.stages.local_objects import NAME, NAMESPACE
from evaluator.flags.accept import Progress
from evaluator.flags.overrides import misfit

if TYPE_CHECKING:
    from evaluator.flags.model import FlagSet
    from evaluator.flags.overrides import Override

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LocalOverrides:
    """Applies them to each set that is served; what is kept on disk stays without them."""

    overrides: tuple[Override, ...] = ()

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
            for override in self.overrides
            if (flag := flag_set.flags.get(override.flag)) is not None
            and misfit(flag, override, flag_set.evaluators) is None
        ]

    def apply(self, flag_set: FlagSet, known: str | None) -> tuple[FlagSet, str | None]:
        """What is served of a set, whose digest is `known`, and the digest of that. Warns of an override that
        does not fit.
        """
        for override in self.overrides:
            flag = flag_set.flags.get(override.flag)
            if flag is None:
                log.warning("%s: there is no such flag", override.name)
            elif (reason := misfit(flag, override, flag_set.evaluators)) is not None:
                log.warning("%s does not fit the flag: %s", override.name, reason)
        return apply_progress(flag_set, known, Progress(overrides=self.overrides))
