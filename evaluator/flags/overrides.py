"""What overrides in force make of a flag, which ones fit it, and what it is when they end. Pure.

The moment of expiry is part of the definition: what is made here does not depend on the present time, so
every process has the same digest of it, and an evaluator ends the override by itself. Overrides of one flag
are layers, the later over the earlier: each is taken off alone, whatever lies over it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from evaluator.flags.diff import same
from evaluator.flags.known_operators import DEPTH, NODES
from evaluator.flags.model import (
    ABSENT,
    CONFIDENTIAL_KEY,
    EMPTY,
    PROVIDER_KEY,
    Absent,
    Flag,
    FlagSet,
    Json,
    Scalar,
    State,
)
from evaluator.flags.outcomes import OutcomeReader, variant_named
from evaluator.flags.references import Expander, RuleTooLarge, measure
from evaluator.flags.rules import check_rule
from evaluator.host.times import parse_time, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def rest_of(beneath: Flag) -> list[Json]:
    """Return the arguments of `if` after the variant: the rule for everybody else. A rule that is not to be
    evaluated stands behind `false`; an empty object is no rule, but only as the whole of `targeting`.
    """
    rule = beneath.targeting
    if rule is ABSENT:
        return []
    if rule == {}:
        return [False, None, None]
    return [rule] if beneath.state is State.ENABLED else [False, rule]


def rule_beneath(arguments: list[Json]) -> Json:
    """Return the rule of which `rest_of` made the last of these arguments of `if`."""
    match arguments[2:]:
        case []:
            return ABSENT
        case [rule] | [False, rule]:
            return rule
        case _:
            return {}


def arguments_of(rule: Json) -> list[Json]:
    """Return the arguments of a rule that `with_override` made; empty for any other."""
    match rule:
        case {"if": [{"<": _} | {"and": [_, _]}, str(), *rest]} if len(rule) == 1 and len(rest) <= 3:
            return list(rule["if"])
        case _:
            return []


def may_choose(flag: Flag, name: str) -> bool:
    """Whether a definition may choose a variant that it lacks: its users get an error then, and no value."""
    if flag.state is State.DISABLED or flag.targeting in (ABSENT, {}):
        return False
    # What shared rules come to is not known here.
    outcomes = OutcomeReader({}).of(flag.targeting)
    return outcomes.computed or any(variant_named(literal) == name for _, literal in outcomes.literals)


OVERRIDE_KEY: Final = "flagstaff.dev/override"
"""Metadata key of a flag under an override: the override's name."""
OVERRIDE_REASON_KEY: Final = "flagstaff.dev/override-reason"
OVERRIDE_EXPIRES_KEY: Final = "flagstaff.dev/override-expires"
"""When the override ends: RFC 3339 in UTC, whole seconds. Absent: it has no end."""
OVERRIDE_HIDES_KEY: Final = "flagstaff.dev/override-hides"
"""The state of what the override hides; `ABSENT`: without the override there is no such flag."""
OVERRIDE_BENEATH_KEY: Final = "flagstaff.dev/override-beneath"
"""What else the flag is without the override, a JSON object in a string; absent where there is nothing to
say. `variant`: the name in the override, where the flag has another value by it; `added`: true where the flag
lacks the variant; `default`: the default variant of a disabled flag; `override`: the other keys of metadata
of the override below; `beneath`: what this key says of that.
"""
_MARKS: Final = frozenset({OVERRIDE_KEY, OVERRIDE_REASON_KEY, OVERRIDE_EXPIRES_KEY, OVERRIDE_HIDES_KEY})
OVERRIDE_KEYS: Final = _MARKS | {OVERRIDE_BENEATH_KEY}
MOST_LAYERS: Final = 10
"""Overrides of one flag at once, the latest: every answer of the flag has the metadata of all of them."""

WRAPPED: Final = 2
"""Levels that a rule lies deeper below the condition of an override."""
_FOREVER: Final = 253402300800
"""The start of the year 10000, for an override without an end."""
_EXPIRES: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_ABSENT: Final = "ABSENT"
_RENAMED: Final = "-kept"
"""The end of the name of a variant whose own name the flag has, or may choose, for something else."""

_FAILING: Final = frozenset({"unknown-operator", "unknown-reference"})
"""Findings of a rule that fails for every user."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What an override keeps of the flag set in which it came into force."""

    value: Json | Literal[Absent.ABSENT] = ABSENT
    """The variant's; ABSENT: the flag is disabled, so that it is enough that there was one."""
    rules: Mapping[str, Json] = field(default_factory=lambda: EMPTY)
    """The `$evaluators` that the audience refers to, by name, with references expanded."""


@dataclass(frozen=True, slots=True)
class Override:
    """A flag that is set by hand, for a while."""

    name: str
    flag: str
    """The flag's key."""
    variant: str | None
    """The variant that it has; None: the flag is disabled."""
    reason: str
    expires: int | None
    """Unix seconds; None: it has no end."""
    audience: Json | Literal[Absent.ABSENT] = ABSENT
    """A rule over the evaluation context; the override is in force where it is truthy."""
    kept: Kept | None = None
    """None: it was not in force yet, so the present definition of the flag decides."""


def is_invalid_audience(audience: Json, evaluators: Mapping[str, Json]) -> bool:
    """Whether an audience has an operator or a reference that does not exist: a rule with it would fail for
    everybody.
    """
    return any(finding.code in _FAILING for finding in check_rule(audience, evaluators=evaluators))


def with_override(flag: Flag | None, override: Override) -> Flag:
    """Return what is served while the override is in force, and by itself no longer from its expiry on. None:
    there is no such flag. The override must fit the flag, and its audience have no references.
    """
    beneath = _absent(override) if flag is None else flag
    notes: dict[str, Json] = {}
    if marks := {key: value for key, value in beneath.metadata.items() if key in _MARKS}:
        notes["override"] = marks
        if inner := _notes(beneath.metadata):
            notes["beneath"] = inner
    variants, name = beneath.variants, override.variant
    if name is not None:
        variants, name = _with_variant(beneath, name, override.kept)
        if name != override.variant:
            notes["variant"] = override.variant
        if len(variants) > len(beneath.variants):
            notes["added"] = True
        if beneath.state is State.DISABLED and beneath.default_variant is not None:
            notes["default"] = beneath.default_variant
    metadata = _metadata(beneath, override, _ABSENT if flag is None else flag.state.value, notes)
    if name is None:
        return replace(beneath, state=State.DISABLED, metadata=metadata)
    return replace(
        beneath,
        state=State.ENABLED,
        variants=variants,
        default_variant=beneath.default_variant if beneath.state is State.ENABLED else None,
        targeting={"if": [_condition(override), name, *rest_of(beneath)]},
        metadata=metadata,
    )


def _absent(override: Override) -> Flag:
    """Return what stands for a flag that does not exist."""
    # A stock evaluator refuses a set with a flag without variants.
    variants = EMPTY if override.variant is not None else MappingProxyType({"none": False})
    return Flag(override.flag, State.DISABLED, variants)


def _with_variant(beneath: Flag, name: str, kept: Kept | None) -> tuple[Mapping[str, Json], str]:
    """Return variants with the value of the override, and the name that it has there."""
    variants = beneath.variants
    if kept is None:
        return variants, name
    if name not in variants and may_choose(beneath, name):
        name += _RENAMED
    while name in variants and not same(variants[name], kept.value):
        name += _RENAMED
    return (variants if name in variants else MappingProxyType({**variants, name: kept.value})), name


def _metadata(
    beneath: Flag, override: Override, hides: str, notes: Mapping[str, Json]
) -> Mapping[str, Scalar]:
    metadata = {key: value for key, value in beneath.metadata.items() if key not in OVERRIDE_KEYS}
    metadata |= {OVERRIDE_KEY: override.name, OVERRIDE_REASON_KEY: override.reason, OVERRIDE_HIDES_KEY: hides}
    if override.expires is not None:
        metadata[OVERRIDE_EXPIRES_KEY] = timestamp(datetime.fromtimestamp(override.expires, UTC))
    if notes:
        metadata[OVERRIDE_BENEATH_KEY] = _text(notes)
    return MappingProxyType(metadata)


def _condition(override: Override) -> Json:
    expires = _FOREVER if override.expires is None else override.expires
    condition: Json = {"<": [{"var": "$flagd.timestamp"}, expires]}
    return condition if override.audience is ABSENT else {"and": [condition, override.audience]}


def _take_off(flag: Flag) -> tuple[Flag | None, Override] | None:
    """Return the flag without its latest override, and that; None: it has none."""
    metadata = flag.metadata
    name, reason, hides = (
        metadata.get(key) for key in (OVERRIDE_KEY, OVERRIDE_REASON_KEY, OVERRIDE_HIDES_KEY)
    )
    notes = _notes(metadata)
    if not isinstance(name, str) or not isinstance(reason, str) or hides not in (*State, _ABSENT):
        return None
    plain = {key: value for key, value in metadata.items() if key not in OVERRIDE_KEYS}
    marks = {key: value for key, value in notes.get("override", {}).items() if key in _MARKS}
    if "beneath" in notes:
        marks[OVERRIDE_BENEATH_KEY] = _text(notes["beneath"])
    beneath = replace(flag, metadata=MappingProxyType({**plain, **marks}))
    variant, audience, kept = None, ABSENT, Kept()
    if flag.state is State.ENABLED:
        # Only a variant leaves a flag enabled, and it wraps the rule.
        arguments = arguments_of(flag.targeting)
        if not arguments or arguments[1] not in flag.variants:
            return None
        condition, served = arguments[:2]
        audience = condition["and"][1] if "and" in condition else ABSENT
        variant, kept = notes.get("variant", served), Kept(flag.variants[served])
        variants = {key: value for key, value in flag.variants.items() if key != served}
        beneath = replace(
            beneath,
            variants=MappingProxyType(variants) if "added" in notes else flag.variants,
            default_variant=notes.get("default", flag.default_variant),
            targeting=rule_beneath(arguments),
        )
    override = Override(name, flag.key, variant, reason, _expiry(metadata), audience, kept)
    return (None if hides == _ABSENT else replace(beneath, state=State(str(hides)))), override


def _text(notes: Mapping[str, Json]) -> str:
    return json.dumps(notes, sort_keys=True, separators=(",", ":"))


def _notes(metadata: Mapping[str, Scalar]) -> dict[str, Any]:
    """Return what OVERRIDE_BENEATH_KEY says, as far as it has the right types."""
    text = metadata.get(OVERRIDE_BENEATH_KEY)
    try:
        notes = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}
    types = {"variant": str, "added": bool, "default": str, "override": dict, "beneath": dict}
    listed = notes.items() if isinstance(notes, dict) else ()
    return {key: value for key, value in listed if key in types and isinstance(value, types[key])}


def _expiry(metadata: Mapping[str, Scalar]) -> int | None:
    text = metadata.get(OVERRIDE_EXPIRES_KEY)
    if not isinstance(text, str) or not _EXPIRES.fullmatch(text):
        return None
    moment = parse_time(text)
    return None if moment is None else int(moment.timestamp())


def layers_of(flag: Flag) -> tuple[Flag | None, tuple[Override, ...]]:
    """Return (the definition without overrides, the overrides with what each keeps, the latest first)."""
    overrides: list[Override] = []
    beneath: Flag | None = flag
    while beneath is not None and beneath.metadata and OVERRIDE_HIDES_KEY in beneath.metadata:
        taken = _take_off(beneath)
        if taken is None:
            break
        beneath, override = taken
        overrides.append(override)
    return beneath, tuple(overrides)


def without_override(flag: Flag) -> Flag | None:
    """Return the definition that overrides hide, a flag without one as it is; None: there is no such flag."""
    return layers_of(flag)[0]


def override_condition(flag: Flag) -> Json | None:
    """Return the condition under which an override decides for a user; None: the flag has no override."""
    conditions = [_condition(override) for override in layers_of(flag)[1]]
    return {"or": conditions} if len(conditions) > 1 else next(iter(conditions), None)


def next_expiry(flags: Iterable[Flag]) -> int | None:
    """When the first override of these flags ends, in Unix seconds; None: none does."""
    marked = (flag for flag in flags if flag.metadata and OVERRIDE_HIDES_KEY in flag.metadata)
    ends = (override.expires for flag in marked for override in layers_of(flag)[1])
    return min((end for end in ends if end is not None), default=None)


def end_expired(flag_set: FlagSet, now: float | None) -> FlagSet:
    """Return the set without the overrides that have ended by `now`, or without any where that is None; the
    same set where there is none.
    """
    flags = dict(flag_set.flags)
    changed = False
    for key, flag in flag_set.flags.items():
        beneath, overrides = layers_of(flag)
        lasting = [override for override in overrides if now is not None and not _has_ended(override, now)]
        if len(lasting) == len(overrides):
            continue
        changed = True
        for override in reversed(lasting):
            beneath = with_override(beneath, override)
        if beneath is None:
            del flags[key]
        else:
            flags[key] = beneath
    return replace(flag_set, flags=MappingProxyType(flags)) if changed else flag_set


def _has_ended(override: Override, now: float) -> bool:
    return override.expires is not None and override.expires <= now


MOST_KEPT: Final = 65_536
"""Characters of JSON that are kept of a variant, and of the rules of an audience: both stand in a status."""
_CONDITION: Final = 16
"""Most parts of the condition itself."""

Incompatibility = Literal["UnknownFlag", "UnknownVariant", "RuleTooLarge", "InvalidAudience"]


def misfit(flag: Flag | None, override: Override, evaluators: Mapping[str, Json]) -> Incompatibility | None:
    """Why an override cannot be in force for a flag of a set with these `$evaluators`; None: it can. A flag
    that is None does not exist.
    """
    if override.kept is None and flag is None:
        return "UnknownFlag"
    if override.variant is None:
        return None
    if override.kept is None and flag is not None and override.variant not in flag.variants:
        return "UnknownVariant"
    if not _resolves(flag, override, evaluators):
        return "InvalidAudience"
    try:
        audience = _with_own_audience(override, evaluators).audience
    except RuleTooLarge:
        return "RuleTooLarge"
    own = ABSENT if flag is None else flag.targeting
    extents = [measure(rule) for rule in (own, audience) if rule is not ABSENT]
    deepest = max((extent.depth for extent in extents), default=0)
    fits = deepest + WRAPPED <= DEPTH and sum(extent.nodes for extent in extents) + _CONDITION <= NODES
    return None if fits else "RuleTooLarge"


def _resolves(flag: Flag | None, override: Override, evaluators: Mapping[str, Json]) -> bool:
    """Whether all that the audience names exists, for this flag."""
    if override.audience is ABSENT:
        return True
    if flag is not None and PROVIDER_KEY in flag.metadata:
        # The shared rules of the provider are not in this set, and one of the same name is another rule.
        evaluators = {}
    return not is_invalid_audience(override.audience, _rules_of(override, evaluators))


def _rules_of(override: Override, evaluators: Mapping[str, Json]) -> Mapping[str, Json]:
    return evaluators if override.kept is None else {**evaluators, **override.kept.rules}


def override_flags(
    flags: Mapping[str, Flag], evaluators: Mapping[str, Json], overrides: Iterable[Override]
) -> dict[str, Flag]:
    """Return the flags with overrides, by key; the later of `overrides` lie over the earlier."""
    made: dict[str, Flag] = {}
    for override in latest_of_each(overrides):
        flag = made.get(override.flag) or flags.get(override.flag)
        if misfit(flag, override, evaluators) is None:
            made[override.flag] = with_override(flag, _with_own_audience(override, evaluators))
    return made


def latest_of_each(overrides: Iterable[Override]) -> list[Override]:
    """Return the overrides that may be in force beside each other: of each flag the MOST_LAYERS latest."""
    by_flag: dict[str, list[Override]] = {}
    for override in overrides:
        by_flag.setdefault(override.flag, []).append(override)
    return [override for listed in by_flag.values() for override in listed[-MOST_LAYERS:]]


def _with_own_audience(override: Override, evaluators: Mapping[str, Json]) -> Override:
    """Return the override with the references of its audience expanded: what they refer to may change."""
    if override.audience is ABSENT or not measure(override.audience).references:
        return override
    return replace(override, audience=Expander(_rules_of(override, evaluators)).expand(override.audience))


def kept_of(flag_set: FlagSet, override: Override) -> Kept | None:
    """Return what an override keeps from now on, of a set with overrides that `override_flags` made. None: it
    is not in force there, or the value has words of a Secret, or value or rules are larger than MOST_KEPT:
    the flag's present definition decides then.
    """
    flag = flag_set.flags.get(override.flag)
    layers = () if flag is None else layers_of(flag)[1]
    layer = next((layer for layer in layers if layer.name == override.name), None)
    if flag is None or CONFIDENTIAL_KEY in flag.metadata or layer is None or layer.kept is None:
        return None
    rules = dict(layer.kept.rules)
    if override.audience is not ABSENT:
        known = _rules_of(override, flag_set.evaluators)
        expander = Expander(known)
        names = {name for name, _, _ in measure(override.audience).references}
        rules = {name: expander.expand(known[name]) for name in sorted(names)}
    value = layer.kept.value
    texts = (json.dumps(part) for part in (rules, *(() if value is ABSENT else (value,))))
    if max(map(len, texts)) > MOST_KEPT:
        return None
    return Kept(value, MappingProxyType(rules))


def kept_anew(flag_set: FlagSet, overrides: Iterable[Override]) -> Mapping[str, Kept]:
    """Return what those of the overrides keep, by their names, that are in force in a set with them and keep
    nothing yet.
    """
    found = {one.name: kept_of(flag_set, one) for one in overrides if one.kept is None}
    return MappingProxyType({name: kept for name, kept in found.items() if kept is not None})
