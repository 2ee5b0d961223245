"""The evaluators that proxies know, as their `/fleet` lists them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MOST: Final = 100_000
"""Most evaluators that are read; a proxy has fewer."""


@dataclass(frozen=True, slots=True)
class FleetMember:
    """One evaluator, and what it serves."""

    name: str
    """NAMESPACE/POD, or the name of a process outside pods."""
    revision: str = ""
    """A revision, or a digest where none is known; empty: nothing."""
    node: str = ""
    version: str = ""
    """The version of the evaluator."""
    since: datetime | None = None
    """Since when it lags, or serves what it serves."""
    lagging: bool = False
    silent: bool = False
    verified: bool = True
    """Whether a token proves the name."""

    @property
    def state(self) -> str:
        """`serves it`, `behind` or `silent`."""
        if self.silent:
            return "silent"
        return "behind" if self.lagging else "serves it"


def read_fleets(answers: Iterable[object]) -> dict[str, tuple[FleetMember, ...]]:
    """Members by the object that they follow, NAMESPACE/NAME, sorted; `answers` are of all proxies. What is
    malformed is left out.
    """
    members: dict[str, list[FleetMember]] = {}
    for entry in (entry for answer in answers for entry in _dicts(answer, "flagSets")):
        place = f"{entry.get('namespace')}/{entry.get('name')}"
        members.setdefault(place, []).extend(map(_member, _dicts(entry, "members")))
    return {
        place: tuple(sorted(listed[:_MOST], key=lambda member: (not member.lagging, member.name)))
        for place, listed in members.items()
    }


def time_served_by(members: Sequence[FleetMember], percent: int) -> datetime | None:
    """When `percent` of the evaluators served what they should; None: fewer do."""
    moments = sorted(member.since for member in members if not member.lagging and member.since is not None)
    wanted = ceil(len(members) * percent / 100)
    return moments[wanted - 1] if 0 < wanted <= len(moments) else None


def moment(text: object) -> datetime | None:
    """The moment of RFC 3339 text; None for any other."""
    try:
        read = datetime.fromisoformat(str(text or ""))
    except (ValueError, OverflowError):
        return None
    return read if read.tzinfo is not None else None


def _dicts(parent: object, field: str) -> list[Mapping[str, Any]]:
    listed = parent.get(field) if isinstance(parent, dict) else None
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


def _member(entry: Mapping[str, Any]) -> FleetMember:
    return FleetMember(
        str(entry.get("name") or ""),
        str(entry.get("revision") or entry.get("digest") or ""),
        str(entry.get("node") or ""),
        str(entry.get("version") or ""),
        moment(entry.get("since")),
        lagging=entry.get("lagging") is True,
        silent=entry.get("silent") is True,
        verified=entry.get("verified") is True,
    )
