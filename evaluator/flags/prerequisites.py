"""Replaces `{"flag": [key, variant]}` in rules by what the rule of that flag says. Pure.

What comes out is a rule of flagd's own operators, so that every evaluator serves it. Users are in the same
buckets as in the flag itself: where `fractional` hashes the key of the flag that it is in, the copy names it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from evaluator.flags.known_operators import NODES, PREREQUISITE, prerequisite_of
from evaluator.flags.model import (
    ABSENT,
    BUCKETING_KEY,
    CONFIDENTIAL_KEY,
    Bucketing,
    Flag,
    FlagSet,
    Json,
    Scalar,
    State,
)
from evaluator.flags.outcomes import (
    BOOLEAN,
    ESCAPED,
    NULL,
    NUMBER,
    OTHER,
    TEXT,
    bucket_kinds,
    kinds_of,
    variant_named,
)
from evaluator.flags.problems import Finding, Severity
from evaluator.flags.references import Expander, RuleTooLarge, components, excess, is_cycle, measure
from evaluator.flags.rollout_rules import HAS_KEY
from evaluator.flags.suggestions import Suggestions
from evaluator.flags.text import choices, quote, read_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from evaluator.flags.model import Path

_UNKNOWN: Final = "unknown-prerequisite"
_CYCLE: Final = "prerequisite-cycle"
_BAD: Final = "bad-prerequisite"
_MOST_INLINED: Final = 100 * NODES
"""Most parts that prerequisites may add to the rules of one set, in all."""
_LOOPS: Final = frozenset({"map", "filter", "reduce", "all", "some", "none"})
_LONG: Final = 1_000
"""Items of lists that a rule may have to be written into others."""
_OWN_KEY: Final = "$flagd.flagKey"
_TARGETING_KEY: Final = {"var": "targetingKey"}


class UnusableRule(ValueError):
    """The rule of a prerequisite cannot be written into another flag's."""


@dataclass(frozen=True, slots=True)
class Expanded:
    """A flag whose rule had prerequisites."""

    flag: Flag | None
    """With the expanded rule; None where there are errors."""
    needs: tuple[str, ...]
    """The keys of its prerequisites, in order of the rule."""
    findings: tuple[Finding, ...] = ()
    """Errors, or warnings about prerequisites that have some, placed within the rule."""


class Prerequisites:
    """The prerequisites of one flag set."""

    def __init__(
        self,
        flags: Mapping[str, Flag],
        expander: Expander,
        faulty: Mapping[str, Severity],
        *,
        v3: bool,
        others: Sequence[FlagSet] = (),
    ) -> None:
        """`flags` are those without an error; `faulty` are those with an error, or warnings alone. `v3`: the
        generation of `fractional`. `others`: sets that may be needed, the first that has a flag counts.
        """
        self._flags = dict(flags)
        self._expander = expander
        self._faulty = dict(faulty)
        self._v3 = v3
        self._others = [(other, Expander(other.evaluators)) for other in others]
        self._suggestions = Suggestions()
        self._conditions: dict[tuple[str, str], Json] = {}
        self._sizes: dict[tuple[str, str], int] = {}
        self._inlined = 0

    def expand(self, keys: list[str]) -> Iterator[tuple[str, Expanded]]:
        """Yield each of the flags `keys`, whose rules have prerequisites, by key; those that others need
        before the others.
        """
        rules = {key: self._expander.expand(self._flags[key].targeting) for key in keys}
        uses = {key: list(_uses(rule, ())) for key, rule in rules.items()}
        edges = {
            key: tuple(dict.fromkeys(target for _, target, _ in found if target in rules))
            for key, found in uses.items()
        }
        for members in components(edges):
            for key in members:
                if is_cycle(members, edges):
                    expanded = self._refuse_cycle(key, uses[key], edges)
                else:
                    expanded = self._expand_rule(key, rules[key], uses[key])
                if expanded.flag is None:
                    self._faulty[key] = Severity.ERROR
                else:
                    self._flags[key] = expanded.flag
                    if expanded.findings:
                        self._faulty[key] = Severity.WARNING
                yield key, expanded

    def _refuse_cycle(
        self, key: str, uses: list[tuple[Path, str, str]], edges: Mapping[str, tuple[str, ...]]
    ) -> Expanded:
        cycle = _cycle_from(key, edges)
        if cycle is None:
            path, target, _ = uses[0]
            message = f"{quote(target)} depends on itself; correct that first"
        else:
            path = next(place for place, target, _ in uses if target == cycle[1])
            chain = " needs ".join(quote(name) for name in cycle)
            message = f"flags need each other: {chain}; take one of these conditions out"
        return Expanded(None, _needs(uses), (Finding(path, Severity.ERROR, _CYCLE, message),))

    def _expand_rule(self, key: str, rule: Json, uses: list[tuple[Path, str, str]]) -> Expanded:
        findings = [finding for use in uses if (finding := self._problem(*use)) is not None]
        if not findings:
            findings = [
                Finding(
                    path, Severity.WARNING, _BAD, f"the flag {quote(target)} has a warning; correct it first"
                )
                for path, target, _ in uses
                if target in self._faulty
            ]
        if all(finding.severity is not Severity.ERROR for finding in findings):
            size = sum(self._sizes[target, variant] for _, target, variant in uses)
            self._inlined += size
            if size > NODES or self._inlined > _MOST_INLINED:
                message = (
                    f"with its prerequisites written out the rule has more than {NODES} parts, or all rules "
                    f"together more than {_MOST_INLINED}; need fewer flags, or simpler ones"
                )
                findings.append(Finding(uses[0][0], Severity.ERROR, "rule-too-large", message))
        if any(finding.severity is Severity.ERROR for finding in findings):
            return Expanded(None, _needs(uses), tuple(findings))
        made = self._substitute(rule)
        if not isinstance(made, dict):
            made = {"!!": [made]}
        for beyond in excess(measure(made)):
            message = f"with its prerequisites written out, {beyond.message}"
            return Expanded(None, _needs(uses), (replace(beyond, path=uses[0][0], text=message),))
        return Expanded(replace(self._flags[key], targeting=made), _needs(uses), tuple(findings))

    def _problem(self, path: Path, key: str, variant: str) -> Finding | None:
        """Return why a flag cannot be a prerequisite; None: its condition is made."""
        if any(step in _LOOPS and inner == 1 for step, inner in pairwise(path)):
            message = "within a loop, a rule knows the element alone, and no user; take this out of the loop"
            return Finding(path, Severity.ERROR, _BAD, message)
        if self._faulty.get(key) is Severity.ERROR:
            message = f"the flag {quote(key)} has an error, so no flag can need it; correct it first"
            return Finding(path, Severity.ERROR, _BAD, message)
        flag = self._flags.get(key)
        other = None if flag is not None else next((one for one in self._others if key in one[0].flags), None)
        if other is not None:
            flag = other[0].flags[key]
        if flag is None:
            near = self._suggestions.did_you_mean(key, self._flags)
            where = " here or in a set that this one depends on" if self._others else ""
            message = (
                f"this needs the flag {quote(key)}, which is not defined{where}{near}; "
                "define it, or take this out"
            )
            return Finding(path, Severity.ERROR, _UNKNOWN, message)
        if variant not in flag.variants:
            near = self._suggestions.did_you_mean(variant, flag.variants)
            known = choices(flag.variants)
            message = f"the flag {quote(key)} has no variant {quote(variant)}{near}; its variants are {known}"
            return Finding(path, Severity.ERROR, _UNKNOWN, message)
        if (key, variant) not in self._conditions:
            try:
                condition = self._condition(flag, variant, other)
            except UnusableRule as unusable:
                return Finding(path, Severity.ERROR, _BAD, f"the flag {quote(key)} {unusable}")
            self._conditions[key, variant] = condition
            extent = measure(condition)
            self._sizes[key, variant] = extent.nodes + extent.members
        return None

    def _condition(self, flag: Flag, variant: str, other: tuple[FlagSet, Expander] | None) -> Json:
        """Return the rule that is true for the users who get the variant. `other`: the set that the flag is
        of. Raises UnusableRule.
        """
        expander = self._expander
        if other is not None:
            expander = other[1]
            if CONFIDENTIAL_KEY in flag.metadata:
                raise UnusableRule("has values of Secrets, which no other set may repeat")
            if (_generation(other[0], flag) == Bucketing.V3) is not self._v3 and _divides(expander, flag):
                raise UnusableRule(
                    "divides users by another generation of bucketing than this set; pin one for both"
                )
        if flag.state is State.DISABLED:
            # Whoever asks for it gets the application's own default, and no variant.
            return False
        otherwise = variant == flag.default_variant
        rule = flag.targeting
        if rule is ABSENT or rule == {}:
            return otherwise
        extent = expander.extent(rule)
        if excess(extent):
            raise UnusableRule("has a rule that is too large to be written into another")
        rule = expander.expand(rule)
        if rule == {}:
            return otherwise
        return _gives(self._write_key(rule, flag.key), variant, otherwise=otherwise)

    def _write_key(self, rule: Json, key: str) -> Json:
        """Return the rule with the key of the flag that it is in written out. Within loops `$flagd` and the
        targeting key are those of the element, so nothing there depends on the flag.
        """
        if isinstance(rule, list):
            return [self._write_key(item, key) for item in rule]
        if not isinstance(rule, dict) or len(rule) != 1:
            return rule
        ((operator, arguments),) = rule.items()
        if operator == "var":
            name = arguments[0] if isinstance(arguments, list) and arguments else arguments
            return key if name == _OWN_KEY else {operator: self._write_key(arguments, key)}
        if operator in _LOOPS and isinstance(arguments, list):
            parts = [item if at == 1 else self._write_key(item, key) for at, item in enumerate(arguments)]
            return {operator: parts}
        made = self._write_key(arguments, key)
        if operator == "fractional" and isinstance(made, list) and made:
            return self._write_seed(made, key)
        return {operator: made}

    def _write_seed(self, arguments: list[Json], key: str) -> Json:
        first, buckets = (
            (None, arguments) if isinstance(arguments[0], list) else (arguments[0], arguments[1:])
        )
        if first is not None and (self._v3 or kinds_of(first, {}).isdisjoint({NULL, OTHER})):
            return {"fractional": arguments}
        if self._v3:
            message = (
                "divides users by its own key, which bucketing v3 hashes in a form that no rule of another "
                'flag can; have it divide them by {"cat": […]}'
            )
            raise UnusableRule(message)
        # flagd's `cat` takes spaces off both ends.
        seed = {"substr": [{"cat": [".", key, _TARGETING_KEY, "."]}, 1, -1]}
        own = {"if": [HAS_KEY, {"fractional": [seed, *buckets]}, None]}
        if first is None:
            return own
        # Where there is nothing to hash, flagd hashes the flag's key and the targeting key.
        return {"if": [{"===": [first, None]}, own, {"fractional": arguments}]}

    def _substitute(self, rule: Json) -> Json:
        if isinstance(rule, list):
            return [self._substitute(item) for item in rule]
        if not isinstance(rule, dict):
            return rule
        use = prerequisite_of(rule)
        if use is not None:
            return self._conditions[use]
        return {operator: self._substitute(arguments) for operator, arguments in rule.items()}


def _generation(flag_set: FlagSet, flag: Flag) -> Scalar:
    return flag.metadata_under(flag_set.metadata).get(BUCKETING_KEY, Bucketing.V2)


def _divides(expander: Expander, flag: Flag) -> bool:
    with suppress(RuleTooLarge):
        return flag.targeting is not ABSENT and '"fractional"' in json.dumps(expander.expand(flag.targeting))
    return False


def is_shared_list(rule: Json) -> bool:
    """Return whether a shared rule has a long list, and means the same in every flag, whatever its key."""
    if measure(rule).members <= _LONG:
        return False
    text = json.dumps(rule)
    return '"fractional"' not in text and _OWN_KEY not in text


def uses_prerequisites(rule: Json) -> bool:
    """Return whether the rule itself has one, not counting what it refers to."""
    return next(_uses(rule, ()), None) is not None


def tainted(evaluators: Mapping[str, Json]) -> frozenset[str]:
    """Return the names of shared rules with a prerequisite, or with a reference to such a rule."""
    found = {name for name, body in evaluators.items() if uses_prerequisites(body)}
    links = {name: {target for target, _, _ in measure(body).references} for name, body in evaluators.items()}
    while more := {name for name, targets in links.items() if name not in found and targets & found}:
        found |= more
    return frozenset(found)


def _uses(rule: Json, path: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield place, key and variant of each prerequisite of a rule that is within bounds."""
    pending = [(rule, path)]
    while pending:
        value, here = pending.pop()
        use = prerequisite_of(value)
        if use is not None:
            yield (*here, PREREQUISITE), *use
            continue
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        inner = [(part, (*here, step)) for step, part in parts if isinstance(part, (dict, list))]
        pending += reversed(inner)


def _needs(uses: list[tuple[Path, str, str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(target for _, target, _ in uses))


def _cycle_from(key: str, edges: Mapping[str, tuple[str, ...]]) -> list[str] | None:
    """Return a shortest way along the edges from `key` back to it."""
    came: dict[str, str] = {}
    pending = [key]
    for name in pending:
        for target in edges[name]:
            if target == key:
                way = [key, name]
                while way[-1] != key:
                    way.append(came[way[-1]])
                return way[::-1]
            if target not in came:
                came[target] = name
                pending.append(target)
    return None


def _gives(rule: Json, variant: str, *, otherwise: bool) -> Json:
    """Return a rule that is true where the result of `rule` selects the variant. `otherwise`: whether it is
    the default variant, which the result null selects.
    """
    if rule is None:
        return otherwise
    if not isinstance(rule, dict):
        return variant_named(rule) == variant
    if len(rule) != 1:
        return False
    ((operator, arguments),) = rule.items()
    if operator in ("if", "?:") and isinstance(arguments, list) and len(arguments) > 1:
        last = len(arguments) - 1
        made = [
            _gives(part, variant, otherwise=otherwise) if at % 2 or at == last else part
            for at, part in enumerate(arguments)
        ]
        return {operator: made if last % 2 == 0 else [*made, otherwise]}
    kinds = kinds_of(rule, {})
    if operator == "fractional":
        kinds = bucket_kinds(arguments) or kinds
    if kinds == {BOOLEAN}:
        return rule if variant == "true" else {"!": [rule]} if variant == "false" else False
    named: list[Json] = []
    if kinds & {TEXT, OTHER} and ESCAPED.isdisjoint(variant):
        named.append(variant)
    if kinds & {BOOLEAN, OTHER} and variant in ("true", "false"):
        named.append(variant == "true")
    if kinds & {NUMBER, OTHER} and (number := _number_named(variant)) is not None:
        named.append(number)
    if kinds & {NULL, OTHER} and otherwise:
        named.append(None)
    ways = [{"===": [rule, result]} for result in named]
    return {"or": ways} if len(ways) > 1 else ways[0] if ways else False


def _number_named(variant: str) -> Json:
    """Return the number whose text the variant's name is; None: there is none."""
    try:
        number = read_number(variant)
    except ValueError:
        return None
    return number if number is not None and variant_named(number) == variant else None
