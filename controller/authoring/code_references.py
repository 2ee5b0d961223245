"""Finds where code refers to flags, without parsing any language. Pure.

A key counts between quotes, as a generated constant (`FlagKeys.NEW_CART`), as a constant that some file
assigns it to (`NEW_CART = "new-cart"`), and by names that the user lists. Calls of OpenFeature's SDKs show
keys that no definition has. Comments and strings are not told apart, nor scopes: a reference may be none.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

SHORTEST_KEY: Final = 3
"""Shorter keys are in every text."""
LONGEST_LINE: Final = 500
"""Characters of a line that are shown."""
MOST_OF_A_FILE: Final = 1_000
"""References of one file; a list of flags has more."""
_QUOTED: Final = re.compile(rf"""["'`]([^"'`\n\r]{{{SHORTEST_KEY},256}})(?=["'`])""")
# The closing quote is the next one's opening: a stray apostrophe hides no key.
_CONSTANTS: Final = "FlagKeys"
"""The class of the constants that OpenFeature's CLI generates."""
_GENERATED: Final = re.compile(rf"{_CONSTANTS}\s*(?:\.|::)\s*(\w+)")
_ASSIGNMENT: Final = re.compile(r"\b([A-Z][A-Z0-9_]{2,})\b\s*(?::[\w.\[\]&' ]+)?:?=\s*$")
"""What stands before a text that a constant is assigned, in Go, Java, JavaScript, Python, Rust and others."""
_FIRST: Final = re.compile(r"\(\s*(?:ctx\s*,\s*|context\.\w+\(\)\s*,\s*)?")
"""What stands between a call and its key; Go's context comes first."""
_TYPE: Final = re.compile(r"<[^<>()\n]*>\s*$")
_EVALUATION: Final = re.compile(
    r"(?:get|use)?_?(?:boolean|bool|string|integer|int|long|float|double|number|object|structure)_?"
    r"(?:flag)?_?(?:value|details|value_?details|evaluation)(?:_?async)?(?:_?with_?context)?",
    re.IGNORECASE,
)
"""Methods of SDKs: `get_boolean_value`, `BooleanValue`, `getNumberDetails`, `useStringFlagValue`."""
_BEFORE: Final = 80
"""Characters before a text in which these are searched."""
_WORD: Final = re.compile(r"[A-Za-z_]\w{2,}")
_NO_WORD: Final = re.compile(r"\W+")
_PARTS: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+")


def _camel(words: Sequence[str]) -> str:
    return words[0] + "".join(word.capitalize() for word in words[1:])


Form: TypeAlias = Literal["camel", "pascal", "snake", "upper-snake", "kebab", "dot"]
FORMS: Final[Mapping[Form, Callable[[Sequence[str]], str]]] = {
    "camel": _camel,
    "pascal": lambda words: "".join(word.capitalize() for word in words),
    "snake": "_".join,
    "upper-snake": lambda words: "_".join(words).upper(),
    "kebab": "-".join,
    "dot": ".".join,
}
"""The forms of a key by which code may name it: of `new-cart` newCart, NewCart, new_cart and so on."""


class CodeReference(NamedTuple):
    """A place of code that refers to a flag."""

    key: str
    file: str
    line: int
    """From 1."""
    name: str
    """What stands there: the key, or another name of it."""
    text: str
    """The line, shortened."""


@dataclass(frozen=True, slots=True)
class FileReferences:
    """What one file refers to."""

    references: tuple[CodeReference, ...] = ()
    undefined: tuple[CodeReference, ...] = ()
    """Evaluations by an SDK of keys that no definition has."""
    cut: int = 0
    """References that were left out: a file may have MOST_OF_A_FILE."""


@dataclass(frozen=True, slots=True)
class FlagNames:
    """The names by which code may refer to flags."""

    keys: frozenset[str]
    quoted: Mapping[str, str]
    """Keys by what stands between quotes."""
    words: Mapping[str, str]
    """Keys by identifiers."""
    generated: Mapping[str, str]
    """Keys by the names of generated constants."""
    short: tuple[str, ...] = ()
    """Keys that are too short to be searched."""


def flag_names(
    keys: Iterable[str], forms: Iterable[Form] = (), aliases: Mapping[str, Iterable[str]] | None = None
) -> FlagNames:
    """The names of all keys. `forms` are names of FORMS; keys of one word have no form, since `banner` is a
    name in much code. `aliases`: more names by key. A name of two keys counts for the first of them.
    """
    every = sorted(keys)
    names = FlagNames(frozenset(every), {}, {}, {}, tuple(key for key in every if len(key) < SHORTEST_KEY))
    quoted, words, generated = dict[str, str](), dict[str, str](), dict[str, str]()
    chosen = [FORMS[form] for form in forms]
    for key in every:
        parts = [part.lower() for part in _PARTS.findall(key)]
        if len(key) >= SHORTEST_KEY:
            quoted[key] = key
        if parts:
            generated.setdefault(FORMS["upper-snake"](parts), key)
        formed = [form(parts) for form in chosen] if len(parts) > 1 else []
        for name in chain((aliases or {}).get(key, ()), formed):
            (words if name.isidentifier() else quoted).setdefault(name, key)
    return FlagNames(names.keys, quoted, words, generated, names.short)


def constants_in(text: str, names: FlagNames) -> set[tuple[str, str]]:
    """(Name, key) of each constant that is assigned a key."""
    keys = ((quoted.start(), names.quoted.get(quoted[1])) for quoted in _QUOTED.finditer(text))
    assigned = (
        (_ASSIGNMENT.search(text, max(0, at - _BEFORE), at), key) for at, key in keys if key is not None
    )
    return {(constant[1], key) for constant, key in assigned if constant is not None}


def with_constants(names: FlagNames, constants: Iterable[tuple[str, str]]) -> FlagNames:
    """The names, and constants that are assigned one key alone."""
    every = set(constants)
    often = Counter(name for name, _ in every)
    return replace(names, words={**{name: key for name, key in every if often[name] == 1}, **names.words})


def find_references(file: str, text: str, names: FlagNames) -> FileReferences:
    """What the text of a file refers to, in order of lines; a flag counts once a line."""
    lines = _LineNumbers(text)
    references: dict[tuple[int, str], CodeReference] = {}
    for offset, key, name in sorted(_places(text, names)):
        reference = lines.reference(file, offset, key, name)
        references.setdefault((reference.line, key), reference)
    undefined = [lines.reference(file, offset, key, key) for offset, key in _undefined_calls(text, names)]
    return FileReferences(
        tuple(references.values())[:MOST_OF_A_FILE],
        tuple(undefined[:MOST_OF_A_FILE]),
        max(0, len(references) - MOST_OF_A_FILE),
    )


def _undefined_calls(text: str, names: FlagNames) -> Iterator[tuple[int, str]]:
    for quoted in _QUOTED.finditer(text):
        at, key = quoted.start(), quoted[1]
        # Few texts are a first argument, or stand after a context.
        if text[at - 1 : at] in "( \n" and key not in names.quoted and _is_evaluated(text, at):
            yield at + 1, key


def _is_evaluated(text: str, at: int) -> bool:
    """Whether the text at an offset is the key of an evaluation by an SDK."""
    bracket = text.rfind("(", max(0, at - _BEFORE), at)
    if bracket > 0 and text[bracket + 1 : bracket + 2] == ")":
        bracket = text.rfind("(", max(0, at - _BEFORE), bracket)
    if bracket < 0 or _FIRST.fullmatch(text, bracket, at) is None:
        return False
    called = _TYPE.sub("", text[max(0, bracket - _BEFORE) : bracket]).rstrip()
    return _EVALUATION.fullmatch(_NO_WORD.split(called)[-1]) is not None


def _places(text: str, names: FlagNames) -> Iterator[tuple[int, str, str]]:
    """(Offset, key, name) of each reference, in no order."""
    for quoted in _QUOTED.finditer(text):
        if (key := names.quoted.get(quoted[1])) is not None:
            yield quoted.start(1), key, quoted[1]
    for constant in _GENERATED.finditer(text) if _CONSTANTS in text else ():
        if (key := names.generated.get(constant[1])) is not None:
            yield constant.start(1), key, constant[0]
    # Most files have none of them, and a set of their words is made three times as fast as a list of places.
    present = names.words.keys() & set(_WORD.findall(text)) if names.words else ()
    for word in present:
        for place in re.finditer(rf"\b{re.escape(word)}\b", text):
            yield place.start(), names.words[word], word


class _LineNumbers:
    """Finds the line of an offset; offsets must rise."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at, self._line = 0, 1

    def reference(self, file: str, offset: int, key: str, name: str) -> CodeReference:
        """The reference at an offset."""
        if offset < self._at:
            self._at, self._line = 0, 1
        self._line += self._text.count("\n", self._at, offset)
        self._at = offset
        start = self._text.rfind("\n", 0, offset) + 1
        end = self._text.find("\n", offset)
        line = self._text[start : len(self._text) if end < 0 else end].strip()
        return CodeReference(key, file, self._line, name, line[:LONGEST_LINE])
