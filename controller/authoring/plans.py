"""What a change of flags does to users: who gets another value, and how many. Pure.

The rules before and after are walked together, condition by condition. Each way through both is a branch,
whose share is exact where both ends are constants or a `fractional` with weights that are written out.
Where a rule is of another form, its answers for sampled or given contexts are counted.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from controller.authoring.change_tests import CoveringTests  # noqa: TC001 - pydantic reads the annotation
from controller.authoring.shares import (
    Assignment,
    Moves,
    assigned,
    attribute_of,
    everybody,
    hash_input,
    moved,
    moves,
    needed,
    synthetic_contexts,
)
from controller.delivery.changed_flags import FlagDifference, differences
from evaluator.flags.candidates import changed_flags
from evaluator.flags.diff import ChangedPart, Diff, diff
from evaluator.flags.model import ABSENT, CONFIDENTIAL_KEY, Bucketing, Flag, FlagSet, Json
from evaluator.flags.references import RuleTooLarge
from evaluator.flags.schedules import ScheduleWindow, window_of
from evaluator.flags.text import normal
from evaluator.resolving.resolve import CompiledFlagSet, compile_flag_set, resolve
from evaluator.resolving.rule_words import clauses, condition, is_truth, sentence, variables
from evaluator.targeting import RuleError, compile_rule
from evaluator.targeting.fractional import read_buckets
from evaluator.targeting.frame import is_static

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from evaluator.resolving.resolution import Resolution

_MOST_BRANCHES: Final = 64
_MOST_FORKS: Final = 2_000
_MOST_MOVES: Final = 20
_NO_VALUE: Final = ""
"""The answer where the flag gives no value: the application's own default."""
_KEY: Final = "targetingKey"
_OWN_KEY: Final = '{"var": "$flagd.flagKey"}'
_READS: Final = ('"var"', '"missing"', '"missing_some"')
"""Operators that read the context, as text: a condition without them holds for all users, or for none."""
_RECORD: Final = ConfigDict(alias_generator=to_camel, populate_by_name=True)

ChangeOfFlag: TypeAlias = Literal["Added", "Changed", "Removed"]
Method: TypeAlias = Literal["Arithmetic", "SyntheticContexts", "GivenContexts"]
_Sides: TypeAlias = tuple[CompiledFlagSet, CompiledFlagSet]


@dataclass(frozen=True, slots=True)
class Move:
    """Users who get another value."""

    before: str
    """The variant before; empty for the application's own default."""
    after: str
    """The variant after, likewise."""
    percent: float
    """Of the users of the branch."""


@dataclass(frozen=True, slots=True)
class UsersAlike:
    """Users whom the rules before and after treat alike."""

    who: str
    """Which users, in words; empty for all."""
    by: str
    """What `percent` is a share of: `user`, or the attributes that are hashed in their place."""
    percent: float
    """The share that gets another value."""
    needless: float
    """What part of it would not have to move for the same shares of values."""
    moves: tuple[Move, ...]
    """By size, 20 at most."""


@dataclass(frozen=True, slots=True)
class FlagPlan:
    """What a change does to the users of one flag."""

    __pydantic_config__ = _RECORD

    key: str
    change: ChangeOfFlag
    words: str
    """What differs in the definition."""
    method: Method | None = None
    """How the share was found; absent where there is nothing to find."""
    least: float | None = None
    """The share of users who get another value, in percent: in the branch with the smallest. Absent for a
    flag that is added.
    """
    most: float | None = None
    """In the branch with the largest share; equal to `least` where it is the same for all users."""
    of_contexts: float | None = None
    """The share of the given contexts that get another value, beside arithmetic."""
    branches: tuple[UsersAlike, ...] = ()
    """Those with users who get another value."""
    rollout: str | None = None
    """The FlagRollout that serves the change in steps."""
    override: str | None = None
    """The FlagOverride that decides now what users of the flag get."""
    references: int | None = None
    """How often the code refers to the flag; absent where no code was searched."""
    requests: str | None = None
    """How often evaluators were asked for the flag, and which; absent where no Prometheus was asked."""
    tests: CoveringTests | None = None
    """What tests say about the change; absent where there are none at all."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What is known beside the definitions."""

    contexts: Sequence[Mapping[str, Json]] = ()
    """Those of real users; without any, synthetic ones are made for the rules that need them."""
    rollouts: Mapping[str, str] = field(default_factory=dict)
    """The names of FlagRollouts that roll a change out, by flag."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """The names of FlagOverrides in force, by flag."""


def rollouts_by_flag(
    rollouts: Iterable[tuple[str, Sequence[str]]], before: FlagSet, after: FlagSet
) -> dict[str, str]:
    """The names of the FlagRollouts that roll a change out, by the keys of its flags: of several for one flag
    the first. `rollouts`: their names, and the patterns of their flags.
    """
    names: dict[str, str] = {}
    for name, patterns in rollouts:
        for key in changed_flags(after, before, patterns):
            names.setdefault(key, name)
    return names


def plan_flags(
    before: FlagSet, after: FlagSet, now: int, known: Beside, *, measure: bool = True
) -> tuple[FlagPlan, ...]:
    """What `after` does to users in place of `before`, for each flag that differs, by key. now: Unix
    seconds. `measure`: whether the share of users is asked for.
    """
    changed = diff(before, after)
    sides = compile_flag_set(before), compile_flag_set(after)
    flags = []
    for difference in differences(before, after, changed, len(changed.keys)):
        key = difference.key
        if measure:
            planned = _plan_flag(sides, difference, changed.changed.get(key, ()), known.contexts, now)
        else:
            planned = FlagPlan(key, _change_of(changed, key), difference.text)
        flags.append(replace(planned, rollout=known.rollouts.get(key), override=known.overrides.get(key)))
    return tuple(flags)


def _change_of(changed: Diff, key: str) -> ChangeOfFlag:
    if key in changed.changed:
        return "Changed"
    return "Added" if key in changed.added else "Removed"


def _plan_flag(
    sides: _Sides,
    difference: FlagDifference,
    parts: tuple[ChangedPart, ...],
    contexts: Sequence[Mapping[str, Json]],
    now: int,
) -> FlagPlan:
    key, words = difference.key, difference.text
    before, after = (side.flag_set.flags.get(key) for side in sides)
    if before is None and after is not None:
        served = "" if _is_confidential(after) else sentence(clauses(after.targeting))
        return FlagPlan(key, "Added", f"{words}; {served}" if served else words)
    if parts == (ChangedPart.METADATA,) and not _draws_otherwise(sides, key):
        return FlagPlan(key, "Changed", words, "Arithmetic", 0.0, 0.0)
    return FlagPlan(
        key, "Removed" if after is None else "Changed", words, *_effect(sides, key, contexts, now)
    )


def _is_confidential(flag: Flag) -> bool:
    return CONFIDENTIAL_KEY in flag.metadata


def _draws_otherwise(sides: _Sides, key: str) -> bool:
    return len({side.bucketing_of(side.flag_set.flags[key]) for side in sides}) > 1


class _Effect(NamedTuple):
    method: Method
    least: float
    most: float
    of_contexts: float | None
    branches: tuple[UsersAlike, ...]


def _effect(sides: _Sides, key: str, contexts: Sequence[Mapping[str, Json]], now: int) -> _Effect:
    """How many users get another value of a flag of the first side, and who."""
    hidden = any(_is_confidential(flag) for side in sides if (flag := side.flag_set.flags.get(key)))
    comparison = BothDefinitions(sides, key)
    try:
        ways = comparison.ways()
    except NotArithmeticError:
        given = contexts or [*synthetic_contexts([comparison.rules[0], comparison.rules[1]])]
        pairs = comparison.counted(given, now)
        branch = comparison.branch("", "user", pairs)
        percent = float(100 * moved(pairs))
        method: Method = "GivenContexts" if contexts else "SyntheticContexts"
        return _Effect(method, percent, percent, None, (branch,) if percent else ())
    shares = [100 * moved(way.pairs) for way in ways]
    branches = tuple(
        comparison.branch(
            "" if hidden or way.condition is True else condition(way.condition).text, way.by, way.pairs
        )
        for way, share in zip(ways, shares, strict=True)
        if share
    )
    least, most = float(min(shares)), float(max(shares))
    of_contexts = float(100 * moved(comparison.counted(contexts, now))) if contexts else None
    return _Effect("Arithmetic", least, most, of_contexts, branches)


class Audience(NamedTuple):
    """Users whom the rule of a flag treats alike."""

    who: str
    """As in UsersAlike."""
    by: str
    """As in UsersAlike."""
    shares: tuple[tuple[str, float], ...]
    """(variant, or empty for the application's own default; percent), the largest first."""


def audiences(flag_set: FlagSet, key: str, now: int) -> tuple[Method, tuple[Audience, ...]]:
    """Who gets what of a flag, and how that was found; nobody is told of one whose rule is confidential.
    now: Unix seconds.
    """
    flag = flag_set.flags[key]
    if _is_confidential(flag):
        return "Arithmetic", ()
    side = compile_flag_set(replace(flag_set, flags={key: flag}))
    alone = BothDefinitions((side, side), key)
    try:
        return "Arithmetic", tuple(alone.audience(way) for way in alone.ways())
    except NotArithmeticError:
        contexts = [*synthetic_contexts([alone.rules[0]])]
        return "SyntheticContexts", (alone.audience(Way(True, "user", alone.counted(contexts, now))),)


class NotArithmeticError(Exception):
    """A rule has a form whose shares only contexts show."""


class Way(NamedTuple):
    """A way through both rules."""

    condition: Json
    """True of its users, and of no others."""
    by: str
    """As in UsersAlike."""
    pairs: Moves


_Ends: TypeAlias = tuple[Json, Json]
"""What a way through both rules ends at."""
_Found: TypeAlias = "dict[str, tuple[Json, _Ends]]"
"""The condition of the users who come to the same ends, true for all, by these ends as text."""


class BothDefinitions:
    """One flag on both sides."""

    def __init__(self, sides: _Sides, key: str) -> None:
        self._sides, self._key = sides, key
        self.rules = tuple(_rule(side, key) for side in sides)
        self._names: dict[str, str] = {_NO_VALUE: ""}
        self._values: dict[int, tuple[Resolution, str]] = {}
        self._assumed: dict[str, bool] = {}
        self._sets: dict[str, tuple[str, frozenset[str]] | None] = {}
        self._windows: dict[str, ScheduleWindow | None] = {}
        self._forks = 0

    def ways(self) -> list[Way]:
        """All ways through both rules, those with the same ends as one. Raises NotArithmeticError."""
        found = self._walk()
        if len(found) > _MOST_BRANCHES:
            raise NotArithmeticError
        return [self._way(who, ends) for who, ends in found.values()]

    def counted(self, contexts: Sequence[Mapping[str, Json]], now: int) -> Moves:
        """The share of contexts for each pair of answers."""
        counts = Counter(
            tuple(self._answer(resolve(side, self._key, None, context, now)) for side in self._sides)
            for context in contexts
        )
        return {(old, new): Fraction(count, len(contexts)) for (old, new), count in counts.items()}

    def branch(self, who: str, by: str, pairs: Moves) -> UsersAlike:
        """What users of a branch get, with the names of variants."""
        share = moved(pairs)
        ordered = sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
        shown = tuple(
            Move(self._names[old], self._names[new], float(100 * part))
            for (old, new), part in ordered
            if old != new
        )
        return UsersAlike(
            who, by, float(100 * share), float(100 * (share - needed(pairs))), shown[:_MOST_MOVES]
        )

    def audience(self, way: Way) -> Audience:
        """What users of a way get after the change, with the names of variants."""
        shares: Counter[str] = Counter()
        for (_, after), share in way.pairs.items():
            shares[self._names[after]] += share  # type: ignore[assignment] # a share, not a count
        ordered = sorted(shares.items(), key=lambda share: (-share[1], share[0]))
        who = "" if way.condition is True else condition(way.condition).text
        return Audience(who, way.by, tuple((name, float(100 * share)) for name, share in ordered))

    def _walk(self) -> _Found:
        ends = []
        for rule in self.rules:
            end = self._descend(rule)
            if isinstance(end, _Asked):
                return self._fork(end)
            ends.append(end.value)
        return {json.dumps(ends, sort_keys=True): (True, (ends[0], ends[1]))}

    def _fork(self, asked: _Asked) -> _Found:
        self._forks += 1
        if self._forks > _MOST_FORKS:
            raise NotArithmeticError
        sides = []
        for holds in (True, False):
            self._assumed[asked.text] = holds
            sides.append(self._walk())
            del self._assumed[asked.text]
        one, other = sides
        return {
            text: (_either(asked.condition, one.get(text), other.get(text)), ends)
            for text, (_, ends) in {**one, **other}.items()
        }

    def _descend(self, node: Json) -> _Asked | _End:
        """Where a rule ends, as far as conditions are known, or the next condition to assume."""
        while isinstance(node, dict) and len(node) == 1:
            ((operator, given),) = node.items()
            if is_truth(node):
                truth = self._truth(node)
                return truth if isinstance(truth, _Asked) else _End(truth)
            if operator not in {"if", "?:"} or not isinstance(given, list):
                break
            chosen = self._choose(given)
            if isinstance(chosen, _Asked):
                return chosen
            node = chosen.value
        return _End(node)

    def _choose(self, given: list[Json]) -> _Asked | _End:
        """Which argument of an `if` counts."""
        for asked, outcome in zip(given[:-1:2], given[1::2], strict=False):
            truth = self._truth(asked)
            if isinstance(truth, _Asked):
                return truth
            if truth:
                return _End(outcome)
        return _End(given[-1] if len(given) % 2 else None)

    def _truth(self, node: Json) -> _Asked | bool:
        """Whether a condition holds, as far as conditions are known."""
        if not isinstance(node, dict) or len(node) != 1:
            if isinstance(node, list) and not is_static(node):
                raise NotArithmeticError
            return bool(node)
        ((operator, given),) = node.items()
        arguments = given if isinstance(given, list) else [given]
        if operator in {"!", "!!"} and len(arguments) == 1:
            truth = self._truth(arguments[0])
            return truth if isinstance(truth, _Asked) else truth is (operator == "!!")
        if operator in {"!=", "!=="}:
            truth = self._truth({operator.replace("!", "=", 1): given})
            return truth if isinstance(truth, _Asked) else not truth
        if operator in {"if", "?:"} and isinstance(given, list):
            chosen = self._choose(given)
            return chosen if isinstance(chosen, _Asked) else self._truth(chosen.value)
        window = window_of(node)
        if window is None and operator in {"and", "or"} and arguments and isinstance(given, list):
            return self._join(operator, arguments)
        return self._ask(node, operator, arguments, window)

    def _join(self, operator: str, arguments: list[Json]) -> _Asked | bool:
        for argument in arguments:
            truth = self._truth(argument)
            if isinstance(truth, _Asked) or truth is (operator == "or"):
                return truth
        return operator == "and"

    def _ask(
        self, node: Json, operator: str, arguments: list[Json], window: ScheduleWindow | None
    ) -> _Asked | bool:
        text = json.dumps(node, sort_keys=True)
        if '"fractional"' in text:
            raise NotArithmeticError
        if not any(name in text.replace(_OWN_KEY, "") for name in _READS):
            with contextlib.suppress(RuleError):
                rule = compile_rule({"!!": [node]}, bucketing=Bucketing.V2, flag_key=self._key)
                return bool(rule({"$flagd": {"flagKey": self._key, "timestamp": 0}}))
        if text not in self._sets:
            self._sets[text], self._windows[text] = _values_of(operator, arguments), window
        known = self._assumed[text] if text in self._assumed else self._implied(text)
        return _Asked(node, text) if known is None else known

    def _implied(self, text: str) -> bool | None:
        """Whether a condition that lists the values of an attribute holds, by what others of it say."""
        if (window := self._windows[text]) is not None:
            return self._implied_by_times(window)
        own = self._sets[text]
        for other, holds in self._assumed.items():
            listed = self._sets[other]
            if own is None or listed is None or own[0] != listed[0]:
                continue
            if holds and listed[1] <= own[1]:
                return True
            if (holds and listed[1].isdisjoint(own[1])) or (not holds and own[1] <= listed[1]):
                return False
        return None

    def _implied_by_times(self, own: ScheduleWindow) -> bool | None:
        """Whether a schedule holds at each time at which those that are assumed hold or not, as assumed."""
        assumed = [
            (window, holds)
            for text, holds in self._assumed.items()
            if (window := self._windows[text]) is not None
        ]
        windows = (own, *(window for window, _ in assumed))
        times = {0, *(end for window in windows for end in (window.start, window.end) if end is not None)}
        found = {
            own.holds(time) for time in times if all(window.holds(time) is holds for window, holds in assumed)
        }
        return found.pop() if len(found) == 1 else None

    def _way(self, who: Json, ends: _Ends) -> Way:
        hashed: dict[str, None] = {}
        before, after = (self._assignment(index, end, hashed) for index, end in enumerate(ends))
        if not hashed.keys().isdisjoint(_listed(who)):
            # These users are few, and their hashes are not spread evenly.
            raise NotArithmeticError
        by = ["user" if name == _KEY else name for name in hashed]
        return Way(who, " and ".join(by) or "user", moves(before, after))

    def _assignment(self, index: int, end: Json, hashed: dict[str, None]) -> Assignment:
        side = self._sides[index]
        flag = side.flag_set.flags.get(self._key)
        if flag is None:
            return everybody(_NO_VALUE)
        given = end.get("fractional") if isinstance(end, dict) and len(end) == 1 else None
        if not isinstance(given, list) or not given:
            if not is_static(end):
                raise NotArithmeticError
            return everybody(self._answer(side[self._key].targeted_resolution(end, None)))
        entries = given if isinstance(given[0], list) else given[1:]
        buckets = read_buckets(entries) if is_static(entries) else None
        hash_ = hash_input(self._key, given, side.bucketing_of(flag))
        if buckets is None or hash_ is None:
            raise NotArithmeticError
        hashed.update(dict.fromkeys(hash_[1]))
        answers = [self._answer(side[self._key].targeted_resolution(one, None)) for one in buckets.results]
        return assigned(hash_[0], buckets, answers)

    def _answer(self, resolution: Resolution) -> str:
        """The value in a form that is the same for the same value."""
        if resolution.variant is None or resolution.value is ABSENT:
            return _NO_VALUE
        known = self._values.get(id(resolution))
        if known is None:
            text = json.dumps(normal(resolution.value), sort_keys=True)
            # The resolution is kept with it, or another one could get its id.
            known = self._values[id(resolution)] = resolution, text
            self._names.setdefault(text, resolution.variant)
        return known[1]


class _Asked(NamedTuple):
    """A condition of which nothing is known."""

    condition: Json
    text: str


class _End(NamedTuple):
    """The part of a rule that gives the result."""

    value: Json


def _rule(side: CompiledFlagSet, key: str) -> Json:
    """The rule that decides, its references expanded; null where every user gets the default."""
    flag = side.flag_set.flags.get(key)
    if flag is None or side[key].run is None:
        return None
    try:
        return side.expand(flag.targeting)
    except RuleTooLarge:
        return {"too large": flag.targeting}


def _either(asked: Json, one: tuple[Json, _Ends] | None, other: tuple[Json, _Ends] | None) -> Json:
    """The condition of users for whom `asked` holds and that of `one`, or neither `asked` and that of
    `other`.
    """
    if one is not None and other is not None:
        if one[0] is True:
            return True if other[0] is True else _join("or", asked, other[0])
        if other[0] is True:
            return _join("or", {"!": [asked]}, one[0])
        return {"or": [_join("and", asked, one[0]), _join("and", {"!": [asked]}, other[0])]}
    if one is not None:
        return asked if one[0] is True else _join("and", asked, one[0])
    rest = True if other is None else other[0]
    return {"!": [asked]} if rest is True else _join("and", {"!": [asked]}, rest)


def _join(operator: str, first: Json, rest: Json) -> Json:
    flat = rest.keys() == {operator} and window_of(rest) is None
    return {operator: [first, *(rest[operator] if flat else [rest])]}


def _values_of(operator: str, arguments: list[Json]) -> tuple[str, frozenset[str]] | None:
    """The attribute and its texts of which a condition asks for one; None for other conditions."""
    if operator not in {"==", "===", "in"} or len(arguments) != 2:
        return None
    subject, listed = arguments
    if operator != "in":
        subject, listed = (listed, [subject]) if isinstance(subject, str) else (subject, [listed])
    names = [*attribute_of(subject)]
    if not names or not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        return None
    return names[0], frozenset(listed)


def _listed(who: Json) -> Iterator[str]:
    """Yield the attributes of which a condition lists the values that users have."""
    pending = [who]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            ((operator, given),) = node.items()
            if operator in {"and", "or"}:
                pending.extend(given)
            elif operator in {"==", "===", "in"}:
                yield from variables(node)
