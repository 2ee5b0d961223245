"""The flags of a set as rows: filtered, sorted, a page at a time. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Final

from controller.page.flag_facts import description_of, kind_of, metadata_of, owner_of, rule_sentence
from controller.page.visit import page_number
from evaluator.flags.model import ABSENT, CONFIDENTIAL_KEY, HELD_FROM_KEY, State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.page.page_source import FlagChange, ShownSet
    from evaluator.flags.model import Flag, Scalar

ROWS: Final = 50
"""Rows of one page."""
STATES: Final = {
    "enabled": "Enabled",
    "disabled": "Disabled",
    "rules": "With rules",
    "overridden": "Overridden or rolling out",
    "held": "Held at an older definition",
}
"""The values of `state=` in the address, with their labels."""
PERIODS: Final = {
    "1h": "the last hour",
    "1d": "the last day",
    "7d": "the last week",
    "30d": "the last 30 days",
}
"""The values of `since=` in the address, with their labels."""
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
class FlagRow:
    """One flag of the list."""

    key: str
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
    in_force: str
    held_from: str
    """The older revision whose definition is served; empty: it is not held."""


@dataclass(frozen=True, slots=True)
class Selection:
    """One page of the flags that a filter selects."""

    rows: tuple[FlagRow, ...]
    selected: int
    """Flags that the filter selects."""
    total: int
    """All flags."""
    page: int
    pages: int
    owners: tuple[str, ...]
    """All owners, sorted."""


def select_flags(shown: ShownSet, chosen: FlagFilter, now: datetime) -> Selection:
    """The flags that `chosen` selects."""
    flag_set = shown.flag_set
    owners = {key: owner_of(metadata_of(flag, flag_set)) for key, flag in flag_set.flags.items()}
    keys = [key for key in sorted(flag_set.flags) if _is_selected(shown, key, owners[key], chosen, now)]
    if chosen.sort == "changed":
        keys.sort(key=lambda key: _change_time(shown.last_changes.get(key)), reverse=True)
    pages = max(1, ceil(len(keys) / ROWS))
    page = min(chosen.page, pages)
    rows = tuple(flag_row(shown, key) for key in keys[(page - 1) * ROWS : page * ROWS])
    known = sorted({owner for owner in owners.values() if owner})[:_MOST_OWNERS]
    return Selection(rows, len(keys), len(owners), page, pages, tuple(known))


def flag_row(shown: ShownSet, key: str) -> FlagRow:
    """The row of a flag that the set has."""
    flag = shown.flag_set.flags[key]
    metadata = metadata_of(flag, shown.flag_set)
    confidential = CONFIDENTIAL_KEY in metadata
    default = flag.default_variant or ""
    return FlagRow(
        key,
        description_of(metadata),
        kind_of(flag),
        flag.state is State.ENABLED,
        default,
        None if confidential else flag.variants.get(default),
        confidential,
        rule_sentence(flag, shown.served),
        owner_of(metadata),
        shown.last_changes.get(key),
        shown.in_force.get(key, ""),
        str(metadata.get(HELD_FROM_KEY, "")),
    )


def _is_selected(shown: ShownSet, key: str, owner: str, chosen: FlagFilter, now: datetime) -> bool:
    flag = shown.flag_set.flags[key]
    if chosen.owner and owner != chosen.owner:
        return False
    if chosen.state and not _has_state(shown, flag, chosen.state):
        return False
    if chosen.since:
        count, unit = int(chosen.since[:-1]), chosen.since[-1]
        if _change_time(shown.last_changes.get(key)) < now - count * _UNITS[unit]:
            return False
    return not chosen.text or _has_text(flag, metadata_of(flag, shown.flag_set), chosen.text.casefold())


def _has_state(shown: ShownSet, flag: Flag, state: str) -> bool:
    if state == "rules":
        return flag.targeting is not ABSENT and flag.targeting != {}
    if state == "overridden":
        return flag.key in shown.in_force
    if state == "held":
        return HELD_FROM_KEY in flag.metadata
    return (flag.state is State.ENABLED) == (state == "enabled")


def _has_text(flag: Flag, metadata: Mapping[str, Scalar], text: str) -> bool:
    texts: Sequence[str] = (flag.key, description_of(metadata), owner_of(metadata))
    if any(text in part.casefold() for part in texts):
        return True
    rule = "" if flag.targeting is ABSENT else json.dumps(flag.targeting, ensure_ascii=False, default=str)
    return text in rule.casefold()


def _change_time(change: FlagChange | None) -> datetime:
    return _LONG_AGO if change is None or change.at is None else change.at
