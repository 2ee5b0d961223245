"""Finds where definitions use the key of a flag: rules that need it, and rules that compare their own flag's
key with it; and which flags use a rule of `$evaluators`. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from evaluator.flags.known_operators import PREREQUISITE, is_scalars, prerequisite_of, reference_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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


def evaluator_users(layers: Sequence[Layer], name: str) -> tuple[str, ...]:
    """Keys of the flags that use a rule of `$evaluators`, also by way of others and of prerequisites, sorted.
    A flag has the rule of its uppermost layer.
    """
    rules: dict[tuple[str, bool], Json] = {}
    for layer in layers:
        for key, piece in layer.flags.items():
            if piece.value is None:
                rules.pop((key, True), None)
            elif isinstance(piece.value, dict) and "targeting" in piece.value:
                rules[key, True] = piece.value["targeting"]
        rules |= {(other, False): piece.value for other, piece in layer.evaluators.items()}
    users: defaultdict[tuple[str, bool], list[tuple[str, bool]]] = defaultdict(list)
    for user, rule in rules.items():
        for used in _needed(rule):
            users[used].append(user)
    pending, found = [(name, False)], set[tuple[str, bool]]()
    while pending:
        more = [user for user in users[pending.pop()] if user not in found]
        found.update(more)
        pending += more
    return tuple(sorted(user for user, is_flag in found if is_flag))


def _needed(rule: Json) -> Iterator[tuple[str, bool]]:
    """(name, whether it is a flag) of each evaluator and each flag that a rule refers to."""
    pending = [rule]
    while pending:
        value = pending.pop()
        if (name := reference_name(value)) is not None:
            yield name, False
        elif (use := prerequisite_of(value)) is not None:
            yield use[0], True
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list) and not is_scalars(value):
            pending += value
