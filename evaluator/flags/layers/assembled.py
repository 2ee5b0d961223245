"""A flag merged from the pieces of its layers, with the origin of each part."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from evaluator.flags.checking.suggestions import Suggestions
from evaluator.flags.syntax.problems import Severity
from evaluator.flags.syntax.text import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from evaluator.flags.model import Path
    from evaluator.flags.syntax.problems import Finding, Piece

FIELDS: Final = ("state", "variants", "defaultVariant", "targeting", "metadata")
KNOWN: Final = frozenset(FIELDS)

MERGED_BY_KEY: Final = frozenset({"variants", "metadata"})
"""Fields of a flag that merge entry by entry; all others are replaced whole."""


@dataclass(slots=True)
class Assembled:
    """One flag, merged: `value` holds no piece's own mapping where there are several."""

    key: str
    pieces: list[Piece] = field(default_factory=list)
    value: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    suggestions: Suggestions = field(default_factory=Suggestions)
    """Shared by all flags of a set."""

    def lay(self, piece: Piece, *, nulls_remove: bool) -> None:
        """Merge a piece over the earlier ones."""
        self.pieces.append(piece)
        if len(self.pieces) == 1 and not (nulls_remove and _has_null(piece.value)):
            self.value = piece.value
            return
        self.value = merged = dict(self.value)
        for name, part in piece.value.items():
            if part is None:
                # `"defaultVariant": null` asks for the code default, wherever it stands.
                if name not in merged and name != "defaultVariant":
                    self._removes_nothing(piece, merged, name)
                merged.pop(name, None)
            elif name in MERGED_BY_KEY and isinstance(part, dict):
                merged[name] = self._entries(merged.get(name), piece, name)
            else:
                merged[name] = part

    def _entries(self, lower: object, piece: Piece, name: str) -> dict[str, Any]:
        entries = dict(lower) if isinstance(lower, dict) else {}
        for key, part in piece.value[name].items():
            if part is not None:
                entries[key] = part
            elif entries.pop(key, None) is None:
                self._removes_nothing(piece, entries, name, key)
        return entries

    def index(self, *steps: str | int) -> int:
        """Return the index of the last piece that sets or removes the value at `steps`; -1 for none."""
        for index in range(len(self.pieces) - 1, -1, -1):
            value = self.pieces[index].value
            for step in steps:
                if not isinstance(value, dict) or step not in value:
                    break
                value = value[step]
            else:
                return index
        return -1

    def find(
        self,
        severity: Severity,
        code: str,
        message: str | Callable[[], str],
        *steps: str,
        below: Path = (),
        at_key: bool = False,
        index: int | None = None,
    ) -> None:
        """Record a problem at `steps` + `below`, in the piece that set it; at the flag's key if none did."""
        index = self.index(*steps) if index is None else index
        piece, inner = self.pieces[max(index, 0)], (*steps, *below) if index >= 0 else ()
        at_key = at_key or index < 0
        self.findings.append(piece.finding(severity, code, message, self.key, below=inner, at_key=at_key))

    def error(self, code: str, message: str | Callable[[], str], *steps: str) -> None:
        """Record an error: flagd cannot load the flag."""
        self.find(Severity.ERROR, code, message, *steps)

    def warn(self, code: str, message: str | Callable[[], str], *steps: str, at_key: bool = False) -> None:
        """Record a warning: flagd loads the flag, but it is likely a mistake."""
        self.find(Severity.WARNING, code, message, *steps, at_key=at_key)

    def note(self, code: str, message: str, *steps: str) -> None:
        """Record a note at the key that `steps` lead to."""
        self.find(Severity.NOTE, code, message, *steps, at_key=True)

    def _removes_nothing(self, piece: Piece, known: Iterable[str], *steps: str) -> None:
        near = self.suggestions.similar_word(steps[-1], known)
        self.findings.append(removes_nothing(piece, self.key, near, steps))


def removes_nothing(piece: Piece, flag: str | None, near: str | None, below: Path = ()) -> Finding:
    """Return the finding about a null that has nothing in lower layers to remove: a warning where it seems to
    mean the name `near`, which stays.
    """
    message = "null removes what a lower layer defines, and no lower layer defines this"
    if near is None:
        severity, message = Severity.NOTE, f"{message}; the line may go"
    else:
        severity, message = Severity.WARNING, f"{message} (did you mean {quote(near)}?)"
    return piece.finding(severity, "removes-nothing", message, flag, below=below, at_key=True)


def _has_null(value: dict[str, Any]) -> bool:
    return any(
        part is None or (name in MERGED_BY_KEY and isinstance(part, dict) and None in part.values())
        for name, part in value.items()
    )
