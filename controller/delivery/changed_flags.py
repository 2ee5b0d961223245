"""What a revision changed, flag by flag, for those who are alerted: names alone, never a value. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.delivery.problems import one_line
from evaluator.flags.canonical import digest
from evaluator.flags.diff import Change
from evaluator.flags.model import CONFIDENTIAL_KEY, FlagSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evaluator.flags.diff import Diff
    from evaluator.flags.model import Flag

MOST_LINES: Final = 20
_NAME: Final = 64
"""Characters of a key or a variant's name."""
_DIGEST: Final = 19
"""Characters of a digest."""


def changed_flags(
    old: FlagSet | None, new: FlagSet, changed: Diff, most: int = MOST_LINES
) -> tuple[str, ...]:
    """`+ added: on`, `- removed`, `~ changed: default off → on, targeting`: a line a flag, sorted by key, at
    `most`, with the rest counted in the last one.
    """
    keys = changed.keys
    if len(keys) > most:
        shown = most - 1
        return (*(_line(key, old, new, changed) for key in keys[:shown]), f"… and {len(keys) - shown} more")
    return tuple(_line(key, old, new, changed) for key in keys)


def _line(key: str, old: FlagSet | None, new: FlagSet, changed: Diff) -> str:
    name = one_line(key, _NAME)
    before = None if old is None else old.flags.get(key)
    after = new.flags.get(key)
    if after is None:
        return f"- {name}"
    if any(each is not None and CONFIDENTIAL_KEY in each.metadata for each in (before, after)):
        return f"{'+' if before is None else '~'} {name}: secret {_digests(before, after)}"
    if before is None:
        return f"+ {name}: {_variant(after)}"
    return f"~ {name}: {', '.join(_parts(before, after, changed.changed.get(key, ())))}"


def _digests(before: Flag | None, after: Flag) -> str:
    """`sha256:1a2b3c4d → sha256:…` of the definitions."""
    told = [digest(FlagSet({each.key: each}))[:_DIGEST] for each in (before, after) if each is not None]
    return " → ".join(told)


def _parts(before: Flag, after: Flag, changes: tuple[Change, ...]) -> Iterator[str]:
    for each in changes:
        if each is Change.DEFAULT_VARIANT:
            yield f"default {_variant(before)} → {_variant(after)}"
        elif each is Change.STATE:
            yield f"state {before.state} → {after.state}"
        else:
            yield each.value


def _variant(flag: Flag) -> str:
    return "no default" if flag.default_variant is None else one_line(flag.default_variant, _NAME)
