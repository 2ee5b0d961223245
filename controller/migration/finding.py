"""A finding: what becomes of one field in a migration. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Path: TypeAlias = tuple[str | int, ...]


class Fate(StrEnum):
    """The outcome of a field, from harmless to one that keeps pods from being created."""

    KEPT = "kept"
    """Means the same here."""
    CHANGED = "changed"
    """Works here, in another way."""
    IGNORED = "ignored"
    """Has no effect here."""
    REFUSED = "refused"
    """Must be changed before the cut-over."""


@dataclass(frozen=True, slots=True)
class FieldFinding:
    """One field of one object."""

    fate: Fate
    path: Path
    """The path of the field within the object."""
    message: str = ""
    """What happens here, and what to do."""
    broken: str = ""
    """What is silently broken under OpenFeature Operator today; empty: nothing."""

    @property
    def field(self) -> str:
        """The path as people write it: `spec.sources[0].provider`."""
        return "".join(
            f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path
        ).removeprefix(".")


def leaves(value: Any, path: Path) -> Iterator[Path]:
    """The paths of all values below `path`; what is empty counts as one."""
    if isinstance(value, dict) and value:
        for name, child in value.items():
            yield from leaves(child, (*path, str(name)))
    elif isinstance(value, list) and value:
        for number, child in enumerate(value):
            yield from leaves(child, (*path, number))
    else:
        yield path
