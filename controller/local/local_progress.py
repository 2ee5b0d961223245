"""What is served of a flag set while overrides or rollouts are in force, and its digest."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from evaluator.flags.accept import effective
from evaluator.flags.canonical import digest
from evaluator.flags.model import DIGEST_KEY

if TYPE_CHECKING:
    from evaluator.flags.accept import Progress
    from evaluator.flags.model import FlagSet


def apply_progress(flag_set: FlagSet, known: str | None, progress: Progress) -> tuple[FlagSet, str | None]:
    """What is served of a set, whose digest is `known`, and the digest of that. Slow for a large set."""
    served = effective(flag_set, progress)
    if served is flag_set:
        return flag_set, known
    served_digest = digest(served)
    metadata = MappingProxyType({**served.metadata, DIGEST_KEY: served_digest})
    return replace(served, metadata=metadata), served_digest
