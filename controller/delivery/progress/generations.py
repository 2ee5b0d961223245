"""The generation of `fractional` of a set in a rollout: what is served, what waits, and whom a change moves.
Pure.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.delivery.users_moved import answers, numbered_users
from evaluator.flags.checking.references import Expander, RuleTooLarge
from evaluator.flags.model import ABSENT, BUCKETING_KEY, Bucketing, FlagSet, State
from evaluator.resolving.resolve import compile_flag_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evaluator.flags.model import Flag

_USERS: Final = 300
_MOST_FLAGS: Final = 50
"""Most flags that are evaluated for a text."""


def generation_of(flag_set: FlagSet) -> str | None:
    """Return the generation that a set pins; None: each evaluator has its own, v2 unless it is set."""
    pinned = flag_set.metadata.get(BUCKETING_KEY)
    return str(pinned) if pinned in set(Bucketing) else None


def change_text(flag_set: FlagSet, before: str | None, after: str | None) -> str:
    """Return how many sample users a change of a set's generation moves; empty where nothing changes."""
    old, new = (Bucketing.V3 if name == Bucketing.V3 else Bucketing.V2 for name in (before, after))
    if old is new:
        return ""
    drawing = dict(list(_drawing_flags(flag_set))[:_MOST_FLAGS])
    metadata = {key: value for key, value in flag_set.metadata.items() if key != BUCKETING_KEY}
    part = replace(flag_set, flags=drawing, metadata=metadata, others=())
    users = list(numbered_users(_USERS))
    sides = [compile_flag_set(part, bucketing=generation) for generation in (old, new)]
    moved = {
        number
        for key in drawing
        for number, pair in enumerate(zip(*(answers(side, key, users, 0) for side in sides), strict=True))
        if pair[0] != pair[1]
    }
    others = f"{len(moved)} of {_USERS} sample users get another variant of a flag"
    return f"from {old.value} to {new.value}: {others}"


def _drawing_flags(flag_set: FlagSet) -> Iterator[tuple[str, Flag]]:
    expander = Expander(flag_set.evaluators)
    for key, flag in flag_set.flags.items():
        if flag.state is not State.ENABLED or flag.targeting is ABSENT:
            continue
        try:
            rule = expander.expand(flag.targeting)
        except RuleTooLarge:
            continue
        if '"fractional"' in json.dumps(rule):
            yield key, flag


def pending_text(desired: FlagSet, served: FlagSet) -> str:
    """Return that a change of the generation waits for candidates; empty where none does."""
    text = change_text(desired, generation_of(served), generation_of(desired))
    return text and f"The change of bucketing {text}. It waits until the exposed candidates have ended"


def drawn_text(generation: str | None, *, unknown_followers: bool) -> str:
    """Return by which generation users are drawn, where not all followers are known to agree.
    `unknown_followers`: whether some send no receipts; the proxy cannot know their generation.
    """
    if generation is not None and not unknown_followers:
        return ""
    assumed = "" if generation is not None else ", which is assumed as the set pins none"
    text = f"Users are drawn by bucketing {generation or Bucketing.V2.value}{assumed}"
    others = "; followers without receipts, such as in-process providers, may draw them by another"
    return text + (others if unknown_followers else "")
