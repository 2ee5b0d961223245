"""Finds where definitions use the key of a flag: rules that need it, and rules that compare their own flag's
key with it. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evaluator.flags.known_operators import PREREQUISITE, prerequisite_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evaluator.flags.layer import Layer
    from evaluator.flags.model import Json, Path
    from evaluator.flags.problems import Piece

_OWN_KEY: object = {"var": "$flagd.flagKey"}


class KeyUse(NamedTuple):
    """A key within a rule."""

    name: str
    """The flag or the entry of `$evaluators` that has the rule."""
    piece: Piece
    path: Path
    """The place of the key, from the root of the document."""
    needs: bool
    """Whether the rule needs the flag, as a prerequisite; else it compares its own flag's key with it."""

    @property
    def place(self) -> str:
        """File and line."""
        document = self.piece.document
        return f"{document.file}:{document.place(self.path)[0]}"


def key_uses(layers: Iterable[Layer], key: str) -> Iterator[KeyUse]:
    """Yield where the rules of layers use the key."""
    for layer in layers:
        rules: list[tuple[str, Piece, Path, Json]] = [
            (name, piece, ("targeting",), piece.value["targeting"])
            for name, piece in layer.flags.items()
            if isinstance(piece.value, dict) and "targeting" in piece.value
        ]
        rules += [(name, piece, (), piece.value) for name, piece in layer.evaluators.items()]
        for name, piece, start, rule in rules:
            for path, needs in _uses(rule, key):
                yield KeyUse(name, piece, (*piece.path, *start, *path), needs)


def _uses(rule: Json, key: str) -> Iterator[tuple[Path, bool]]:
    pending: list[tuple[Json, Path]] = [(rule, ())]
    while pending:
        value, path = pending.pop()
        use = prerequisite_of(value)
        if use is not None:
            if use[0] == key:
                yield (*path, PREREQUISITE, 0), True
            continue
        if isinstance(value, list) and any(part in (_OWN_KEY, {"var": ["$flagd.flagKey"]}) for part in value):
            for at, part in enumerate(value):
                if part == key:
                    yield (*path, at), False
                elif isinstance(part, list):
                    yield from (((*path, at, inner), False) for inner, item in enumerate(part) if item == key)
        parts = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        pending += [(part, (*path, step)) for step, part in parts]
