"""Keys of one flag set, of which one is beyond ASCII, that look alike by Unicode (UTS #39). Pure."""

from __future__ import annotations

import functools
import unicodedata
from typing import TYPE_CHECKING, Final

from evaluator.flags.syntax.problems import Finding, Severity, problems_of
from evaluator.flags.syntax.text import DEFAULT, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from evaluator.flags.layers.layer import Layer
    from evaluator.flags.syntax.problems import Piece, Problem

_FORMAT: Final = "Cf"
"""Unicode's category of characters that are not seen, such as a zero-width space."""


def look_alikes(layers: Sequence[Layer], keys: Iterable[str]) -> tuple[Problem, ...]:
    """Warn of each of `keys` beyond ASCII that looks like another, with the places of both."""
    known = sorted(keys, key=lambda key: (not key.isascii(), key))
    if not known or known[-1].isascii():
        return ()
    pieces = _first_pieces(layers)
    firsts: dict[str, str] = {}
    findings = []
    for key in known:
        first = firsts.setdefault(_skeleton(key), key)
        if first != key:
            findings.append(_finding(key, first, pieces))
    return problems_of(findings, DEFAULT)


def _finding(key: str, other: str, pieces: Mapping[str, Piece]) -> Finding:
    piece = pieces[key]
    text = functools.partial(_message, key, other, pieces[other])
    return Finding(piece.path, Severity.WARNING, "look-alike", text, piece.document, key, at_key=True)


def _message(key: str, other: str, piece: Piece) -> str:
    beyond = dict.fromkeys(
        character for character in key if not character.isascii() and character not in other
    )
    names = ", ".join(
        f"U+{ord(character):04X} {unicodedata.name(character, '')}".strip() for character in [*beyond][:3]
    )
    return (
        f"the flag {quote(key)} looks like {quote(other)} ({piece.place(key=True)}) and is another one"
        f"{f': it has {names}' if names else ''}; rename one of them"
    )


def _first_pieces(layers: Sequence[Layer]) -> dict[str, Piece]:
    by_key: dict[str, Piece] = {}
    for layer in layers:
        for key, piece in layer.flags.items():
            by_key.setdefault(key, piece)
    return by_key


def _skeleton(text: str) -> str:
    """Return the same text for all texts that look the same."""
    seen = (
        character
        for character in unicodedata.normalize("NFD", text)
        if unicodedata.category(character) != _FORMAT
    )
    table = _table()
    return unicodedata.normalize("NFD", "".join(_prototype(character, table) for character in seen))


def _prototype(character: str, table: Mapping[str, tuple[str, ...]]) -> str:
    """Return one character for all that look alike, which the table lists beside each other."""
    others = table.get(character, ())
    if len(others) != 1:
        return character
    [other] = others
    if len(other) > 1 or len(table.get(other, ())) > 1:
        return other
    return min(character, other)


@functools.cache
def _table() -> dict[str, tuple[str, ...]]:
    # A megabyte, which few need.
    from confusable_homoglyphs.confusables import confusables_data  # noqa: PLC0415

    # Characters that are written from right to left are between marks.
    return {
        name.strip("\u200e"): tuple(entry["c"].strip("\u200e") for entry in others)
        for name, others in confusables_data.items()
    }
