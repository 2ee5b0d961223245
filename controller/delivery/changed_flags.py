"""What a revision changed, flag by flag, and how many users that moves. Pure.

Users are counted by real evaluation: those whom a change moves to another variant, and those whom it has to.

The least that any change can move is the total variation distance of the shares of variants before and after:
half of the sum of their differences.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from controller.runtime.plain_text import one_line
from evaluator.flags.canonical import content_metadata, digest
from evaluator.flags.diff import ChangedPart, Diff, same
from evaluator.flags.known_operators import is_scalars
from evaluator.flags.model import ABSENT, CONFIDENTIAL_KEY, Flag, FlagSet, Json, Path
from evaluator.flags.references import Expander, RuleTooLarge
from evaluator.flags.schedules import NOW, window_of
from evaluator.flags.text import json_path
from evaluator.resolving.resolve import CompiledFlagSet, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


TARGETING_KEY: Final = "targetingKey"


@dataclass(frozen=True, slots=True)
class Movement:
    """What a change does to some users."""

    users: int
    """The number of all users."""
    moved: int
    """The number of users who get another variant than before."""
    needed: int
    """The least number of users who must move for the shares that the variants have afterwards."""


def numbered_users(count: int) -> Iterator[dict[str, Json]]:
    """Yield the evaluation contexts of users who have a targeting key and nothing else."""
    for number in range(count):
        yield {TARGETING_KEY: f"user-{number}"}


def answers(flags: CompiledFlagSet, key: str, contexts: Sequence[Mapping[str, Json]], now: int) -> list[str]:
    """Return the variant that each user gets of one flag, or the reason or error in parentheses if there is
    none: `(DEFAULT)` is the application's default. now: Unix seconds.
    """
    return [_answer(flags, key, context, now) for context in contexts]


def _answer(flags: CompiledFlagSet, key: str, context: Mapping[str, Json], now: int) -> str:
    resolution = resolve(flags, key, None, context, now)
    if resolution.variant is not None:
        return resolution.variant
    return f"({resolution.error_code or resolution.reason})"


def movement(before: Sequence[str], after: Sequence[str]) -> Movement:
    """Return how many users moved between two lists of their variants, both in the same order."""
    moved = sum(old != new for old, new in zip(before, after, strict=True))
    arrived = Counter(after) - Counter(before)
    return Movement(len(before), moved, arrived.total())


MOST_LINES: Final = 20
MOST_NAME: Final = 64
"""Characters of a key or a variant's name."""
_VALUE: Final = 64
"""Characters of a value, as JSON."""
_RULE: Final = 200
"""Characters of a part of a rule that has schedules, in words."""
_BEFORE: Final = 12
"""Characters before the first that differs, of values that are long and begin alike."""
_LONG: Final = 50
"""Items of a list, above which only what was added and removed is told."""
_MOST_NAMES: Final = 5
"""Variants, or entries of metadata, of one flag; values of a list."""
_LINE: Final = 500
_DIGEST: Final = 19
"""Characters of a digest."""


class FlagDifference(NamedTuple):
    """What a revision changed of one flag."""

    key: str
    sign: Literal["+", "-", "~"]
    """Whether it is new, gone, or another."""
    words: str
    """What is new; empty of a flag that is gone."""

    @property
    def line(self) -> str:
        """`+ a: on (true)`, `- b`, `~ c: default off → on`."""
        line = f"{self.sign} {one_line(self.key, MOST_NAME)}"
        return f"{line}: {self.words}" if self.words else line

    @property
    def text(self) -> str:
        """The same beside the flag's key: `added, default on (true)`, `removed`, `default off → on`."""
        return {"+": f"added, default {self.words}", "-": "removed"}.get(self.sign, self.words)


def changed_flags(
    old: FlagSet | None, new: FlagSet, changed: Diff, most: int = MOST_LINES, width: int = _LINE
) -> tuple[str, ...]:
    """Lines such as `+ a: on (true)`, `- b`, `~ c: default off → on`, by key; past `most`, only a count."""
    keys = changed.keys
    shown = differences(old, new, changed, len(keys) if len(keys) <= most else most - 1, width)
    lines = tuple(one_line(difference.line, width) for difference in shown)
    return lines if len(keys) <= most else (*lines, f"… and {len(keys) - len(shown)} more")


def differences(
    old: FlagSet | None, new: FlagSet, changed: Diff, most: int = MOST_LINES, width: int = _LINE
) -> tuple[FlagDifference, ...]:
    """What changed of the first `most` flags, by key, in at most `width` characters for each."""
    rules = None if old is None else BothRules(old, new)
    return tuple(_difference(key, rules, new, changed, width) for key in changed.keys[:most])


def _difference(key: str, rules: BothRules | None, new: FlagSet, changed: Diff, width: int) -> FlagDifference:
    old = None if rules is None else rules.old
    before = None if old is None else old.flags.get(key)
    after = new.flags.get(key)
    if after is None:
        return FlagDifference(key, "-", "")
    if any(version is not None and CONFIDENTIAL_KEY in version.metadata for version in (before, after)):
        both = [FlagSet({key: version}) for version in (before, after) if version is not None]
        digests = " → ".join(digest(version)[:_DIGEST] for version in both)
        return FlagDifference(key, "+" if before is None else "~", f"secret {digests}")
    if rules is None or before is None:
        return FlagDifference(key, "+", _default(after))
    # What is inherited from the set counts as the flag's.
    metadata = [
        content_metadata(flag.metadata_under(version.metadata))
        for flag, version in ((before, rules.old), (after, new))
    ]
    parts = _parts(before, after, changed.changed.get(key, ()), metadata[0], metadata[1], rules)
    return FlagDifference(key, "~", one_line("; ".join(parts), width))


def _parts(
    before: Flag,
    after: Flag,
    changes: tuple[ChangedPart, ...],
    metadata: Mapping[str, Json],
    metadata_after: Mapping[str, Json],
    rules: BothRules,
) -> Iterator[str]:
    for change in changes:
        if change is ChangedPart.DEFAULT_VARIANT:
            yield f"default {_default(before)} → {_default(after)}"
        elif change is ChangedPart.STATE:
            yield f"state {before.state} → {after.state}"
        elif change is ChangedPart.VARIANTS:
            yield f"variants {_entries(before.variants, after.variants)}"
        elif change is ChangedPart.METADATA:
            yield f"metadata {_entries(metadata, metadata_after)}".rstrip()
        else:
            why = ", by a rule of $evaluators:" if _same_rule(before, after) else ""
            yield f"targeting{why} {_rule_change(*rules.of(before.key))}"


def _same_rule(before: Flag, after: Flag) -> bool:
    """Whether the rules are the same as they are written: what they refer to is not."""
    one, other = before.targeting, after.targeting
    return one is not ABSENT and other is not ABSENT and same(one, other)


class BothRules:
    """The rules of flags in two sets, ABSENT where there is none."""

    def __init__(self, old: FlagSet, new: FlagSet) -> None:
        self.old = old
        self._new = new

    @cached_property
    def _expanders(self) -> tuple[Expander, Expander]:
        return Expander(self.old.evaluators), Expander(self._new.evaluators)

    def of(self, key: str) -> tuple[Json, Json]:
        """The rules of a flag in both sets: as they are written, or expanded where these are the same."""
        before, after = self.old.flags[key], self._new.flags[key]
        rules = before.targeting, after.targeting
        if _same_rule(before, after):
            with suppress(RuleTooLarge):
                return self._expanders[0].expand(rules[0]), self._expanders[1].expand(rules[1])
        return rules


class Edit(NamedTuple):
    """One changed place of a rule; ABSENT for what is not there."""

    path: Path
    before: Json
    after: Json


def rule_edits(before: Json, after: Json, path: Path = ()) -> Iterator[Edit]:
    """Yield what makes `after` of `before`, if it is done in this order: the smallest parts that differ, and
    schedules whole.
    """
    if window_of(before) and window_of(after):
        if not same(before, after):
            yield Edit(path, before, after)
    elif isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        for key in before:
            yield from rule_edits(before[key], after[key], (*path, key))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _list_edits(before, after, path)
    elif before is ABSENT or after is ABSENT or not same(before, after):
        yield Edit(path, before, after)


def _list_edits(before: list[Json], after: list[Json], path: Path) -> Iterator[Edit]:
    if min(len(before), len(after)) > _LONG and is_scalars(before) and is_scalars(after):
        # Of a long list, it is told which values are new and which are gone, not where.
        if not same(before, after):
            yield Edit(path, before, after)
        return
    shared = min(len(before), len(after))
    start = end = 0
    if len(before) != len(after):
        while start < shared and same(before[start], after[start]):
            start += 1
        while end < shared - start and same(before[-1 - end], after[-1 - end]):
            end += 1
    for at in range(start, shared - end):
        yield from rule_edits(before[at], after[at], (*path, at))
    at = shared - end
    # Each goes from, or comes to, the place at which the list then has it.
    for gone in reversed(range(at, len(before) - end)):
        yield Edit((*path, gone), before[gone], ABSENT)
    for new in range(at, len(after) - end):
        yield Edit((*path, new), ABSENT, after[new])


def _rule_change(before: Json, after: Json) -> str:
    """Both rules where they are short, else each place that differs."""
    edits = [*rule_edits(before, after)]
    if max(len(_text(before)), len(_text(after))) <= _VALUE or any(not edit.path for edit in edits):
        return _part_change(before, after)
    places = ", ".join(f"{json_path(edit.path)}: {_part_change(edit.before, edit.after)}" for edit in edits)
    return places if len(edits) == 1 else f"at {len(edits)} places: {places}"


def _part_change(before: Json, after: Json) -> str:
    """As `_change`, with schedules in words, beside which more is shown."""
    texts = _text(before), _text(after)
    worded = [
        _in_words(part) if NOW in text else text for part, text in zip((before, after), texts, strict=True)
    ]
    if (*worded,) == texts:
        return _change(before, after)
    limits = (_VALUE if words == text else _RULE for words, text in zip(worded, texts, strict=True))
    return " → ".join(map(one_line, worded, limits))


def _in_words(rule: Json) -> str:
    """A rule as JSON, with each schedule in words in its place."""
    if (window := window_of(rule)) is not None:
        return f"the time {window.words()}"
    if isinstance(rule, dict):
        return f"{{{','.join(f'{_text(key)}:{_in_words(value)}' for key, value in rule.items())}}}"
    return f"[{','.join(map(_in_words, rule))}]" if isinstance(rule, list) else _text(rule)


def _default(flag: Flag) -> str:
    name = flag.default_variant
    if name is None:
        return "no default"
    value = f" ({one_line(_text(flag.variants[name]), _VALUE)})" if name in flag.variants else ""
    return f"{one_line(name, MOST_NAME)}{value}"


def _entries(before: Mapping[str, Json], after: Mapping[str, Json]) -> str:
    """`on: 1 → 2, new: none → 3`."""
    values = [(name, before.get(name, ABSENT), after.get(name, ABSENT)) for name in {**before, **after}]
    differing = [
        f"{one_line(name, MOST_NAME)}: {_change(one, other)}"
        for name, one, other in values
        if one is ABSENT or other is ABSENT or not same(one, other)
    ]
    more = len(differing) - _MOST_NAMES
    return ", ".join((*differing[:_MOST_NAMES], *((f"{more} more",) if more > 0 else ())))


def _change(before: Json, after: Json) -> str:
    if isinstance(before, list) and isinstance(after, list) and min(len(before), len(after)) > _LONG:
        return _values_change(before, after)
    one, other = _text(before), _text(after)
    start = 0
    if max(len(one), len(other)) > _VALUE:
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
        start = alike - _BEFORE if alike > _VALUE // 2 else 0
    return f"{_from(one, start)} → {_from(other, start)}"


def _values_change(before: list[Json], after: list[Json]) -> str:
    """`3 added (u1, u2, u3), 1 removed (u9)`, of long lists."""
    one, other = Counter(map(_plain, before)), Counter(map(_plain, after))
    changes = [(other - one, "added"), (one - other, "removed")]
    told = [
        f"{values.total()} {word} ({one_line(', '.join(islice(values, _MOST_NAMES)), _VALUE)})"
        for values, word in changes
        if values
    ]
    return ", ".join(told) or "the same values in another order"


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else _text(value)


def _from(text: str, start: int) -> str:
    return one_line(text, _VALUE) if start == 0 else f"…{one_line(text[start:], _VALUE - 1)}"


def _text(value: Json) -> str:
    return "none" if value is ABSENT else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
