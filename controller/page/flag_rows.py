"""The flags of a set as rows, and what the page says of one flag. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Final

from controller.authoring.flag_life import UNKNOWN_USE, FactName, LifeLimits, facts_of, life_of
from controller.delivery.flag_state import FlagState, flag_notes, new_users_text
from controller.flagsets.constant_parts import constant_result
from controller.page.rendering import page_number
from evaluator.flags.model import (
    ABSENT,
    CONFIDENTIAL_KEY,
    EMPTY,
    PROVENANCE_PREFIX,
    Flag,
    FlagSet,
    Json,
    Scalar,
    State,
)
from evaluator.flags.overrides import without_override
from evaluator.flags.references import RuleTooLarge
from evaluator.resolving.resolution import FlagType, flag_type
from evaluator.resolving.rule_words import Clause, clauses, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.page.page_source import FlagChange, ShownSet
    from evaluator.flags.marks import OwnRule
    from evaluator.resolving.resolve import CompiledFlagSet


_OWNERS: Final = ("owner", "team")
_DESCRIPTION: Final = "description"
_OURS: Final = frozenset({*_OWNERS, _DESCRIPTION, "flagSetId"})
CODE_DEFAULT: Final = "the default of the calling code"


def metadata_of(flag: Flag, flag_set: FlagSet) -> Mapping[str, Scalar]:
    """The metadata of a flag, with what it inherits from its set."""
    return flag.metadata_under(flag_set.metadata)


def owner_of(metadata: Mapping[str, Scalar]) -> str:
    """The owner, by `owner` or else `team`; empty: none is named."""
    return next((str(metadata[name]) for name in _OWNERS if name in metadata), "")


def description_of(metadata: Mapping[str, Scalar]) -> str:
    """The description; empty: there is none."""
    return str(metadata.get(_DESCRIPTION, ""))


def other_metadata(metadata: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The metadata that the page shows nowhere else, by name."""
    names = (name for name in metadata if name not in _OURS and not name.startswith(PROVENANCE_PREFIX))
    return {name: metadata[name] for name in sorted(names)}


def kind_of(flag: Flag) -> str:
    """`boolean`, `string`, `integer`, `float` or `object`; empty for a flag without a default variant."""
    kind = flag_type(flag)
    if kind is FlagType.FLOAT and all(isinstance(value, int) for value in flag.variants.values()):
        kind = FlagType.INTEGER
    return "" if kind is None else kind.value.lower()


def expand_rule(rule: Json, flags: CompiledFlagSet) -> Json:
    """A rule with its references expanded, as far as its size allows; ABSENT: none."""
    try:
        return ABSENT if rule is ABSENT else flags.expand(rule)
    except RuleTooLarge:
        return rule


def rule_clauses(rule: Json, flags: CompiledFlagSet) -> tuple[Clause, ...]:
    """The clauses of a rule."""
    return clauses(expand_rule(rule, flags))


def rule_text(state: FlagState, flags: CompiledFlagSet) -> str:
    """The rule of a flag in words; empty: it has none. In a rollout: `10%: v2; else v1`."""
    if len(state.rules) < 2:
        return next((sentence(rule_clauses(own.rule, flags)) for own in state.rules), "")
    new, promoted = (_definition_text(own, state, flags) for own in state.rules)
    return f"{new_users_text(state)}: {new}; else {promoted}"


@dataclass(frozen=True, slots=True)
class ShownDefinition:
    """A definition of a flag: its only one, or one of the two between which a rollout divides users."""

    title: str
    """Who gets it; empty: everybody."""
    clauses: tuple[Clause, ...]
    default: str
    """Its default variant; empty: the caller's own default."""


def definitions_of(state: FlagState, flags: CompiledFlagSet) -> tuple[ShownDefinition, ...]:
    """The definitions of a flag without the conditions of rollouts and overrides."""
    titles = ["Without the override" if state.override is not None else ""]
    if len(state.rules) > 1:
        titles = [f"For {new_users_text(state)}: the new definition", "For everybody else: the promoted one"]
    return tuple(
        ShownDefinition(title, rule_clauses(own.rule, flags), default_of(own, state))
        for title, own in zip(titles, state.rules, strict=False)
    )


def default_of(own: OwnRule, state: FlagState) -> str:
    """The default variant of a definition; empty: the caller's own default."""
    return own.default or (state.flag.default_variant if state.flag is not None else None) or ""


def _definition_text(own: OwnRule, state: FlagState, flags: CompiledFlagSet) -> str:
    rule = sentence(rule_clauses(own.rule, flags))
    return f"({rule})" if rule else default_of(own, state) or CODE_DEFAULT


ROWS: Final = 50
"""Rows of one page."""
STATES: Final = {
    "enabled": "Enabled",
    "disabled": "Disabled",
    "rules": "With rules",
    "overridden": "Overridden or rolling out",
    "held": "With a bad definition",
    "constant": "The same for everybody",
    "expired": "Past their date",
}
"""The values of `state=` in the address, with their labels."""
PERIODS: Final = {
    "1h": "the last hour",
    "1d": "the last day",
    "7d": "the last week",
    "30d": "the last 30 days",
}
"""The values of `since=` in the address, with their labels."""
_FACTS: Final = {"constant": FactName.CONSTANT, "expired": FactName.EXPIRED}
_UNITS: Final = {"h": timedelta(hours=1), "d": timedelta(days=1)}
SORTS: Final = {"": "Key", "changed": "Last change"}
"""The values of `sort=` in the address, with their labels."""
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_MOST_OWNERS: Final = 200


@dataclass(frozen=True, slots=True)
class FlagFilter:
    """What the address of the flags view selects."""

    text: str = ""
    """In key, description, owner or rule; upper and lower case are the same."""
    state: str = ""
    owner: str = ""
    since: str = ""
    sort: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> FlagFilter:
        """Read a query; what it does not know counts as absent."""
        return cls(
            query.get("q", "").strip(),
            query.get("state", "") if query.get("state") in STATES else "",
            query.get("owner", ""),
            query.get("since", "") if query.get("since") in PERIODS else "",
            query.get("sort", "") if query.get("sort") in SORTS else "",
            page_number(query),
        )

    @property
    def narrows(self) -> bool:
        """Whether it leaves anything out."""
        return any((self.text, self.state, self.owner, self.since))


@dataclass(frozen=True, slots=True)
class ListedFlag:
    """One flag of the list."""

    key: str
    state: FlagState
    notes: tuple[str, ...]
    """Why not everybody gets its newest definition by its own rules; empty: everybody does."""
    description: str
    kind: str
    enabled: bool
    default: str
    """The default variant; empty: the caller's own default."""
    default_value: object
    """Its value; None beside `confidential`."""
    confidential: bool
    rule: str
    """The rule in words; empty: none."""
    owner: str
    change: FlagChange | None
    expires: datetime | None
    """From when it is past its date."""

    @property
    def served(self) -> bool:
        """Whether it has a good definition."""
        return self.state.flag is not None

    @property
    def split(self) -> bool:
        """Whether a rollout gives users either of two definitions, so that it has no default of its own."""
        return len(self.state.rules) > 1


@dataclass(frozen=True, slots=True)
class SelectedFlags:
    """One page of the flags that a filter selects."""

    rows: tuple[ListedFlag, ...]
    selected: int
    """Flags that the filter selects."""
    total: int
    """All flags."""
    page: int
    pages: int
    owners: tuple[str, ...]
    """All owners, sorted."""


def select_flags(shown: ShownSet, chosen: FlagFilter, now: datetime) -> SelectedFlags:
    """The flags that `chosen` selects."""
    owners = {key: owner_of(metadata_in(shown, key)) for key in shown.flags}
    keys = [key for key in shown.flags if _is_selected(shown, key, owners[key], chosen, now)]
    if chosen.sort == "changed":
        keys.sort(key=lambda key: _change_time(shown.last_changes.get(key)), reverse=True)
    pages = max(1, ceil(len(keys) / ROWS))
    page = min(chosen.page, pages)
    rows = tuple(flag_row(shown, key) for key in keys[(page - 1) * ROWS : page * ROWS])
    known = sorted({owner for owner in owners.values() if owner})[:_MOST_OWNERS]
    return SelectedFlags(rows, len(keys), len(owners), page, pages, tuple(known))


def flag_row(shown: ShownSet, key: str) -> ListedFlag:
    """The row of a flag that the set has, or would have if its definition were not bad."""
    flag, state = definition_in(shown, key), shown.flags[key]
    metadata = metadata_in(shown, key)
    confidential = CONFIDENTIAL_KEY in metadata
    default = (flag.default_variant if flag is not None else None) or ""
    return ListedFlag(
        key,
        state,
        flag_notes(state),
        description_of(metadata),
        "" if flag is None else kind_of(flag),
        flag is not None and flag.state is State.ENABLED,
        default,
        None if confidential or flag is None else flag.variants.get(default),
        confidential,
        rule_text(state, shown.served),
        owner_of(metadata),
        shown.last_changes.get(key),
        life_of(metadata).expires,
    )


def definition_in(shown: ShownSet, key: str) -> Flag | None:
    """The definition of a flag that is served without overrides; None: it has no good one."""
    flag = shown.flags[key].flag
    return None if flag is None else without_override(flag)


def metadata_in(shown: ShownSet, key: str) -> Mapping[str, Scalar]:
    """The metadata of a flag, with what it inherits from its set."""
    flag = definition_in(shown, key)
    return EMPTY if flag is None else metadata_of(flag, shown.flag_set)


def _is_selected(shown: ShownSet, key: str, owner: str, chosen: FlagFilter, now: datetime) -> bool:
    if chosen.owner and owner != chosen.owner:
        return False
    if chosen.state in _FACTS:
        if not _has_fact(shown, key, _FACTS[chosen.state], now):
            return False
    elif chosen.state and not _has_state(shown.flags[key], definition_in(shown, key), chosen.state):
        return False
    if chosen.since:
        count, unit = int(chosen.since[:-1]), chosen.since[-1]
        if _change_time(shown.last_changes.get(key)) < now - count * _UNITS[unit]:
            return False
    return not chosen.text or _has_text(shown.flags[key], metadata_in(shown, key), chosen.text.casefold())


def _has_fact(shown: ShownSet, key: str, wanted: FactName, now: datetime) -> bool:
    flag = definition_in(shown, key)
    if flag is None:
        return False
    constant = constant_result(flag.targeting, shown.flag_set.evaluators)
    metadata = metadata_of(flag, shown.flag_set)
    facts = facts_of(flag, metadata, constant, UNKNOWN_USE, now, LifeLimits())
    return any(fact.name is wanted for fact in facts)


def _has_state(state: FlagState, flag: Flag | None, wanted: str) -> bool:
    if wanted == "held":
        return state.held
    if wanted == "overridden":
        return any((state.override, state.override_layer, state.rollout, state.candidate))
    if wanted == "rules":
        return any(own.rule is not ABSENT and own.rule != {} for own in state.rules)
    return flag is not None and (flag.state is State.ENABLED) == (wanted == "enabled")


def _has_text(state: FlagState, metadata: Mapping[str, Scalar], text: str) -> bool:
    texts: Sequence[str] = (state.key, description_of(metadata), owner_of(metadata))
    if any(text in part.casefold() for part in texts):
        return True
    rules = [own.rule for own in state.rules if own.rule is not ABSENT]
    return text in json.dumps(rules, ensure_ascii=False, default=str).casefold()


def _change_time(change: FlagChange | None) -> datetime:
    return _LONG_AGO if change is None or change.at is None else change.at
