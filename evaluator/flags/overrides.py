"""What an override in force makes of a flag, and what the flag is again when it ends. Pure.

The moment of expiry is part of the definition: what is made here does not depend on the present time, so
every process has the same digest of it, and an evaluator ends the override by itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from evaluator.flags.checking.known_operators import DEPTH, NODES
from evaluator.flags.checking.references import measure
from evaluator.flags.checking.rules import check_rule
from evaluator.flags.model import ABSENT, Absent, Flag, FlagSet, Json, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OVERRIDE_KEY: Final = "flagstaff.dev/override"
"""Metadata key of a flag under an override: the override's name."""
OVERRIDE_REASON_KEY: Final = "flagstaff.dev/override-reason"
OVERRIDE_EXPIRES_KEY: Final = "flagstaff.dev/override-expires"
"""When the override ends: RFC 3339 in UTC, whole seconds. Absent: it has no end."""
OVERRIDE_HIDES_KEY: Final = "flagstaff.dev/override-hides"
"""The state of the definition that the override hides."""
OVERRIDE_KEYS: Final = frozenset(
    {OVERRIDE_KEY, OVERRIDE_REASON_KEY, OVERRIDE_EXPIRES_KEY, OVERRIDE_HIDES_KEY}
)

WRAPPED: Final = 2
"""Levels that a rule lies deeper below the condition of an override."""
_CONDITION: Final = 16
"""Most parts of the condition itself."""
_FOREVER: Final = 253402300800
"""The start of the year 10000, for an override without an end."""
_EXPIRES: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")

_FAILING: Final = frozenset({"unknown-operator", "unknown-reference"})
"""Findings of a rule that fails for every user."""

Misfit = Literal["UnknownVariant", "AudienceOfDisabledFlag", "RuleTooLarge", "InvalidAudience"]


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


def misfit(flag: Flag, override: Override, evaluators: Mapping[str, Json]) -> Misfit | None:
    """Why an override cannot be in force for a flag of a set with these `$evaluators`; None: it can."""
    if override.variant is None:
        return None
    if override.variant not in flag.variants:
        return "UnknownVariant"
    if flag.state is State.DISABLED and override.audience is not ABSENT:
        # Everybody else would have an enabled flag.
        return "AudienceOfDisabledFlag"
    extents = [measure(rule) for rule in (flag.targeting, override.audience) if rule is not ABSENT]
    deepest = max((extent.depth for extent in extents), default=0)
    if deepest + WRAPPED > DEPTH or sum(extent.nodes for extent in extents) + _CONDITION > NODES:
        return "RuleTooLarge"
    if override.audience is not ABSENT and is_invalid_audience(override.audience, evaluators):
        return "InvalidAudience"
    return None


def is_invalid_audience(audience: Json, evaluators: Mapping[str, Json]) -> bool:
    """Whether an audience has an operator or a reference that does not exist: a rule with it would fail for
    everybody.
    """
    return any(finding.code in _FAILING for finding in check_rule(audience, evaluators=evaluators))


def with_override(flag: Flag, override: Override) -> Flag:
    """Return what is served while the override is in force, and by itself no longer from its expiry on."""
    metadata = {
        **{key: value for key, value in flag.metadata.items() if key not in OVERRIDE_KEYS},
        OVERRIDE_KEY: override.name,
        OVERRIDE_REASON_KEY: override.reason,
        OVERRIDE_HIDES_KEY: flag.state.value,
    }
    if override.expires is not None:
        moment = datetime.fromtimestamp(override.expires, UTC)
        metadata[OVERRIDE_EXPIRES_KEY] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    marked = MappingProxyType(metadata)
    if override.variant is None:
        return replace(flag, state=State.DISABLED, metadata=marked)
    return replace(flag, state=State.ENABLED, targeting=_wrap(flag.targeting, override), metadata=marked)


def _wrap(rule: Json, override: Override) -> Json:
    expires = _FOREVER if override.expires is None else override.expires
    condition: Json = {"<": [{"var": "$flagd.timestamp"}, expires]}
    if override.audience is not ABSENT:
        condition = {"and": [condition, override.audience]}
    if rule is ABSENT:
        return {"if": [condition, override.variant]}
    if rule == {}:
        # An empty object is no rule, but only as the whole of `targeting`.
        return {"if": [condition, override.variant, False, override.variant]}
    return {"if": [condition, override.variant, rule]}


def without_override(flag: Flag) -> Flag:
    """Return the definition that an override hides; a flag without one as it is."""
    if OVERRIDE_HIDES_KEY not in flag.metadata:
        return flag
    targeting = flag.targeting
    if flag.state is State.ENABLED:
        # Only a variant leaves a flag enabled, and it wraps the rule.
        targeting = _unwrap(targeting)
    hidden = flag.metadata[OVERRIDE_HIDES_KEY]
    metadata = {key: value for key, value in flag.metadata.items() if key not in OVERRIDE_KEYS}
    state = State.DISABLED if hidden == State.DISABLED.value else State.ENABLED
    return replace(flag, state=state, targeting=targeting, metadata=MappingProxyType(metadata))


def override_condition(flag: Flag) -> Json | None:
    """Return the condition under which the override of a flag sets the variant; None: it has no override."""
    parts = _parts(flag.targeting)
    return parts[0] if parts else None


def _unwrap(rule: Json) -> Json:
    parts = _parts(rule)
    if not parts:
        return rule
    if len(parts) == 3:
        return parts[2]
    return ABSENT if len(parts) == 2 else {}


def _parts(rule: Json) -> list[Json]:
    """Return the arguments of a rule that `_wrap` made; empty for any other."""
    parts = rule.get("if") if isinstance(rule, dict) and len(rule) == 1 else None
    return parts if isinstance(parts, list) and 2 <= len(parts) <= 4 else []


def expiry_of(flag: Flag) -> int | None:
    """When the override of a flag ends, in Unix seconds; None: it has none, or one without an end."""
    text = flag.metadata.get(OVERRIDE_EXPIRES_KEY) if flag.metadata else None
    if not isinstance(text, str) or not _EXPIRES.fullmatch(text):
        return None
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return None


def next_expiry(flags: Iterable[Flag]) -> int | None:
    """When the first override of these flags ends, in Unix seconds; None: none does."""
    return min((moment for flag in flags if (moment := expiry_of(flag)) is not None), default=None)


def end_expired(flag_set: FlagSet, now: float | None) -> FlagSet:
    """Return the set with the hidden definition of each flag whose override has ended by `now`, or of every
    one where that is None; the same set where there is none.
    """
    hidden = {
        key: without_override(flag)
        for key, flag in flag_set.flags.items()
        if flag.metadata and OVERRIDE_HIDES_KEY in flag.metadata and _has_ended(flag, now)
    }
    if not hidden:
        return flag_set
    return replace(flag_set, flags=MappingProxyType({**flag_set.flags, **hidden}))


def _has_ended(flag: Flag, now: float | None) -> bool:
    if now is None:
        return True
    moment = expiry_of(flag)
    return moment is not None and moment <= now


def override_flags(
    flags: Mapping[str, Flag], evaluators: Mapping[str, Json], overrides: Iterable[Override]
) -> dict[str, Flag]:
    """Return the flags with overrides, by key. Of several for one flag, the first that fits counts."""
    made: dict[str, Flag] = {}
    for override in overrides:
        flag = flags.get(override.flag)
        if flag is None or override.flag in made:
            continue
        if misfit(flag, override, evaluators) is None:
            made[override.flag] = with_override(flag, override)
    return made
