"""Merges two definitions of a flag: a cohort gets the new one, everybody else the old one. Pure.

Which users are in the cohort is decided in the rule itself, by the flag set's generation of `fractional` with
a salt of its own: every evaluator decides the same, a greater share only adds users, and the old and new
definition split their users as they always do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from evaluator.flags.diff import RuleCopier, same
from evaluator.flags.known_operators import DEPTH, NODES
from evaluator.flags.model import ABSENT, BUCKETING_KEY, Bucketing, Flag, FlagSet, Json, State
from evaluator.flags.outcomes import ESCAPED, OutcomeReader, variant_named
from evaluator.flags.overrides import WRAPPED
from evaluator.flags.references import Expander, RuleTooLarge

if TYPE_CHECKING:
    from collections.abc import Mapping


WHOLE: Final = 10_000
"""The share of all users: shares are hundredths of a percent."""
_KEY: Final = {"var": "targetingKey"}
HAS_KEY: Final[Json] = {"and": [{"!!": [_KEY]}, {"starts_with": [_KEY, ""]}]}
"""Whether a context has a targeting key: a text that is not empty. `cat` would fail for other values."""
_FRACTIONAL: Final = "fractional"
_ROOM: Final = 1_000
"""Nodes of a rule that are reserved for an override."""

Incompatibility = Literal[
    "BucketingChanged",
    "TypeChanged",
    "VariantValueChanged",
    "VariantNameEscaped",
    "VariantNotInBoth",
    "RuleTooLarge",
    "InvalidAudience",
]


@dataclass(frozen=True, slots=True)
class Cohort:
    """Who gets the new definitions. Users without targeting key never do."""

    share: int = 0
    """Hundredths of a percent of users, 0 to 10000."""
    audiences: tuple[Json, ...] = ()
    """Rules over the evaluation context; a user for whom a rule is true is in the cohort at any share."""
    excluded: tuple[Json, ...] = ()
    """Rules over the evaluation context; a user for whom a rule is true is not in the cohort."""

    @property
    def percent(self) -> str:
        """The share as people write it: `10`, `0.25`."""
        return f"{self.share / 100:g}"


class TwoDefinitions:
    """Makes the served definitions of flags with a desired and a promoted one."""

    def __init__(self, desired: FlagSet, promoted: FlagSet) -> None:
        """The definitions that this makes are for `desired`, and refer to its `$evaluators`."""
        self._desired = desired
        self._promoted = promoted
        self._copier = RuleCopier(promoted.evaluators, desired.evaluators)
        self._expander = Expander(desired.evaluators)
        self._outcomes = OutcomeReader(desired.evaluators)
        self._promoted_outcomes = OutcomeReader(promoted.evaluators)

    def copy_promoted(self, key: str) -> Flag:
        """Return the promoted definition for everybody, with the desired metadata but for the generation of
        `fractional`.
        """
        new, old = self._desired.flags[key], self._promoted.flags[key]
        rule = self._copier.copy(old.targeting)
        metadata = new.metadata
        if old.metadata.get(BUCKETING_KEY) != metadata.get(BUCKETING_KEY):
            own = {key: value for key, value in old.metadata.items() if key == BUCKETING_KEY}
            kept = {key: value for key, value in metadata.items() if key != BUCKETING_KEY}
            metadata = MappingProxyType({**kept, **own})
        return replace(old, targeting=rule, metadata=metadata, without=new.without)

    def both(self, key: str, condition: Json) -> Flag:
        """Return a definition that gives the desired one to users for whom the condition is true, and the
        promoted one to everybody else.
        """
        new, old = self._desired.flags[key], self._promoted.flags[key]
        new_rule, new_default = _rule(new.targeting), new.default_variant
        old_rule, old_default = _rule(self._copier.copy(old.targeting)), old.default_variant
        variants = {**old.variants, **new.variants}
        if old.state is State.DISABLED:
            # A disabled flag has the caller's own default.
            variants, old_rule, old_default = dict(new.variants), ABSENT, None
        # The result null selects the default variant of its own definition; the merged one has only one.
        default = None
        if old_default is not None and new_default is not None:
            default = new_default if old_rule is ABSENT else old_default
        branches = [_or_default(new_rule, new_default, default), _or_default(old_rule, old_default, default)]
        return replace(
            new,
            variants=MappingProxyType(variants),
            default_variant=default,
            targeting={"if": [condition, *branches]},
        )

    def misfit(self, key: str, condition: Json) -> Incompatibility | None:
        """Return why a definition cannot be served to users with this condition only; None: it can."""
        new, old = self._desired.flags[key], self._promoted.flags[key]
        if draws_otherwise(self._desired, self._promoted, key):
            return "BucketingChanged"
        if old.state is State.ENABLED:
            types = [{_type_of(value) for value in flag.variants.values()} for flag in (new, old)]
            if types[0] and types[1] and types[0] != types[1]:
                return "TypeChanged"
            common = new.variants.keys() & old.variants.keys()
            if not all(same(new.variants[name], old.variants[name]) for name in common):
                return "VariantValueChanged"
        if any(flag.default_variant and not ESCAPED.isdisjoint(flag.default_variant) for flag in (new, old)):
            # No rule can select a variant of this name.
            return "VariantNameEscaped"
        if old.state is State.ENABLED and (
            _may_choose(new, old, self._outcomes) or _may_choose(old, new, self._promoted_outcomes)
        ):
            return "VariantNotInBoth"
        extent = self._expander.extent(self.both(key, condition).targeting)
        fits = extent.depth + WRAPPED <= DEPTH and extent.nodes + _ROOM <= NODES
        return None if fits else "RuleTooLarge"


def cohort_condition(cohort: Cohort, salt: str) -> Json:
    """Return the rule that is true for the users of a cohort. `salt`: the text before the targeting key in
    the hash that decides who is in it.
    """
    excluded = [{"!": [rule]} for rule in cohort.excluded]
    if cohort.share >= WHOLE:
        return {"and": [HAS_KEY, *excluded]} if excluded else HAS_KEY
    ways = list(cohort.audiences)
    if cohort.share > 0:
        bucketing_value = {"cat": [f"{salt}/", _KEY]}
        buckets = [["in", cohort.share], ["out", WHOLE - cohort.share]]
        ways.append({"==": [{_FRACTIONAL: [bucketing_value, *buckets]}, "in"]})
    return {"and": [HAS_KEY, *excluded, {"or": ways}]} if ways else False


def condition_of(flag: Flag) -> Json | None:
    """Return the condition for being in the cohort, of a definition that `TwoDefinitions.both` made; None for
    any other.
    """
    rule = flag.targeting
    parts = rule.get("if") if isinstance(rule, dict) and len(rule) == 1 else None
    return parts[0] if isinstance(parts, list) and len(parts) == 3 else None


def draws_otherwise(desired: FlagSet, promoted: FlagSet, key: str) -> bool:
    """Whether the two definitions of a flag, which may be the same, draw users by different generations of
    `fractional`, which the flags themselves pin.
    """
    flags = desired.flags[key], promoted.flags[key]
    if pinned_generation(flags[0]) is pinned_generation(flags[1]):
        return False
    pairs = zip(flags, (desired.evaluators, promoted.evaluators), strict=True)
    return any(_draws(flag, evaluators) for flag, evaluators in pairs)


def pinned_generation(flag: Flag) -> Bucketing:
    """Return the generation of `fractional` that a flag itself pins; flagd's own, v2, for a flag without."""
    pinned = flag.metadata.get(BUCKETING_KEY) == Bucketing.V3.value
    return Bucketing.V3 if pinned else Bucketing.V2


def _draws(flag: Flag, evaluators: Mapping[str, Json]) -> bool:
    """Whether the rule of a flag has `fractional`, or is too large to tell."""
    try:
        rule = ABSENT if flag.targeting is ABSENT else Expander(evaluators).expand(flag.targeting)
    except RuleTooLarge:
        return True
    return rule is not ABSENT and f'"{_FRACTIONAL}"' in json.dumps(rule)


def _rule(rule: Json) -> Json:
    """Return a rule; ABSENT for an empty object, which is no rule only as the whole of `targeting`."""
    return ABSENT if rule == {} else rule


def _may_choose(flag: Flag, other: Flag, reader: OutcomeReader) -> bool:
    """Whether the result of a flag's rule may name a variant that only the other definition has. That is an
    error in its own definition, and would select the variant in a merged one.
    """
    names, rule = other.variants.keys() - flag.variants.keys(), _rule(flag.targeting)
    if rule is ABSENT or not names:
        return False
    outcomes = reader.of(rule)
    return outcomes.computed or any(variant_named(literal) in names for _, literal in outcomes.literals)


def _or_default(rule: Json, default: str | None, inherited: str | None) -> Json:
    """Return a rule whose result is null only if the definition's default variant is the inherited one."""
    if rule is ABSENT:
        return default
    if default == inherited:
        return rule
    # `==` takes false for null.
    return {"if": [{"===": [rule, None]}, default, rule]}


def _type_of(value: Json) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "object"
