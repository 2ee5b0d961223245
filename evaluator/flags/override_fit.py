"""Which overrides fit a flag, what each keeps, and the flags that they make. Pure."""

from __future__ import annotations

import json
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from evaluator.flags.checking.known_operators import DEPTH, NODES
from evaluator.flags.checking.references import Expander, RuleTooLarge, measure
from evaluator.flags.model import ABSENT, CONFIDENTIAL_KEY, PROVIDER_KEY
from evaluator.flags.overrides import (
    MOST_LAYERS,
    WRAPPED,
    Kept,
    is_invalid_audience,
    layers_of,
    with_override,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evaluator.flags.model import Flag, FlagSet, Json
    from evaluator.flags.overrides import Override

MOST_KEPT: Final = 65_536
"""Characters of JSON that are kept of a variant, and of the rules of an audience: both stand in a status."""
_CONDITION: Final = 16
"""Most parts of the condition itself."""

Misfit = Literal["UnknownFlag", "UnknownVariant", "RuleTooLarge", "InvalidAudience"]


def misfit(flag: Flag | None, override: Override, evaluators: Mapping[str, Json]) -> Misfit | None:
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
