"""Advice on content that is not trusted: in a cluster, or on a command line. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api.objects.meta import ACCEPT_REVISION, ObjectKey

if TYPE_CHECKING:
    from collections.abc import Iterable

OF_OPTIONS: Final = "made of --verify-key"
"""The Secret that a command line's keys would be in."""


@dataclass(frozen=True, slots=True)
class TrustAdvice:
    """Parts of sentences."""

    add_key: str
    """Says how to trust another key, and which are trusted."""
    accept: str
    """Says how to accept an older revision, up to its digest."""


def in_cluster(key: ObjectKey, secret: str = "", names: Iterable[str] = ()) -> TrustAdvice:
    """The advice for a FlagSource; `secret` (`namespace/name`) has the keys that `names` are."""
    return TrustAdvice(
        f"add the key to Secret {secret} (it has {', '.join(names)})",
        f"kubectl -n {key.namespace} annotate --overwrite flagsource/{key.name} {ACCEPT_REVISION}=",
    )


def on_command_line(names: Iterable[str]) -> TrustAdvice:
    """`names`: files that --verify-key names."""
    return TrustAdvice(
        f"trust the key by another --verify-key (there are {', '.join(names)})",
        "start flagstaff anew while the source is at ",
    )
