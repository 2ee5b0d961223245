"""Finds what stands at a place of a definition file that somebody is writing, so that it need not be
complete. Pure.

Only the text before the place is read, with a mark in place of the word there: what follows may be broken.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import yaml

from evaluator.flags.document import Syntax, format_of
from evaluator.flags.text import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evaluator.flags.model import Json, Path

_MARK: Final = "asked_about_here_by_flagstaff"
"""Stands for the word at the place."""
_DECODER: Final = json.JSONDecoder()
_TRIES: Final = 50
"""How many containers that are not complete are tried as if they were: what is complete is read at once."""
_LARGE: Final = 64 * 1024
"""Characters of YAML that are read whole."""
_TOKEN: Final = re.compile(r'"[^"\\\n]*+(?:\\.?[^"\\\n]*+)*+(?:"|(?=\n)|\Z)|[\[\]{},:]|[^\s\[\]{},:"]+')
_YAML_TOKEN: Final = re.compile(
    r"""\"[^"\\\n]*+(?:\\.?[^"\\\n]*+)*+"?|'[^'\n]*'?|[^\s\[\]{},"'](?:[^\s\[\]{},:]|:(?!\s|\Z))*"""
)
_SIGN: Final = re.compile(r"[\[\]{},]")
_COLON: Final = re.compile(r"[ \t]*:")
_LINE_START: Final = re.compile(r"\s*(?:- +)*\Z")


@dataclass(frozen=True, slots=True)
class Spot:
    """A place of a document."""

    path: Path
    """Of the value there; of the object whose key stands there if it is a key."""
    is_key: bool
    start: int
    """The offset of the word at the place."""
    end: int
    """The offset behind it."""
    word: str
    """Without quotes; empty where nothing is written yet."""
    begun: str
    """What of the word is before the place."""
    has_colon: bool
    """Whether a colon follows."""
    before: Json
    """What was read of the document before the place."""

    def at(self, path: Path) -> Json:
        """The value at `path`, as far as it stands before the place; None for none."""
        value = self.before
        for step in path:
            members = dict(enumerate(value)) if isinstance(value, list) else value
            if not isinstance(members, dict) or step not in members:
                return None
            value = members[step]
        return value


def spots(text: str, offset: int, file: str) -> list[Spot]:
    """What can be meant at `offset`: one key or value; in YAML, a line that has just begun may be both. Empty
    where the text before it cannot be read. Never raises.
    """
    if len(text) > DEFAULT.document_bytes or not 0 <= offset <= len(text):
        return []
    in_yaml = format_of(file) is Syntax.YAML
    line = text.rfind("\n", 0, offset) + 1
    start, end = _word(_YAML_TOKEN if in_yaml else _TOKEN, text, line, offset)
    has_colon = _COLON.match(text, end) is not None
    if _SIGN.search(text, offset, end):
        # A quote that is not closed yet ends at the place.
        end = offset
    word, begun = (text[start:to].strip("\"'") for to in (end, offset))
    found = []
    for reading in _yaml_readings(text, line, start, has_colon) if in_yaml else [_read_json(text[:start])]:
        if reading is not None:
            path, is_key, before = reading
            found.append(Spot(path, is_key, start, end, word, begun, has_colon, before))
    return found


def _word(tokens: re.Pattern[str], text: str, line: int, offset: int) -> tuple[int, int]:
    """Start and end of the word at an offset. What is quoted ends within its line."""
    for match in tokens.finditer(text, line):
        if match.start() > offset:
            break
        touches = offset <= match.end() and (match.start() < offset or match[0][:1] not in "\"'")
        if touches and match[0] not in "[]{},:":
            return match.start(), match.end()
    return offset, offset


_Reading: TypeAlias = "tuple[Path, bool, Json]"
"""Path, whether a key stands there, and what was read before."""


@dataclass(slots=True)
class _Open:
    """A container that is being read."""

    value: dict[str, Json] | list[Json]
    key: str | None = None
    """The key whose value comes next; objects only."""


@dataclass(slots=True)
class _Tree:
    """What has been read."""

    root: Json = None
    stack: list[_Open] = field(default_factory=list)

    @property
    def expects_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None

    def reading(self) -> _Reading:
        """The place that comes next."""
        is_key = self.expects_key
        path: list[str | int] = []
        for opened in self.stack[: len(self.stack) - is_key]:
            # A list has its part that is open already.
            inner = opened is not self.stack[-1]
            path.append(len(opened.value) - inner if isinstance(opened.value, list) else opened.key or "")
        return tuple(path), is_key, self.root

    def open(self, value: dict[str, Json] | list[Json]) -> None:
        self._put(value)
        self.stack.append(_Open(value))

    def close(self) -> None:
        self.stack.pop()
        self.end_value()

    def add(self, value: Json) -> None:
        if self.expects_key:
            self.stack[-1].key = str(value)
        else:
            self._put(value)
            self.end_value()

    def end_value(self) -> None:
        if self.stack:
            self.stack[-1].key = None

    def _put(self, value: Json) -> None:
        if not self.stack:
            self.root = value
            return
        top = self.stack[-1]
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is not None:
            top.value[top.key] = value


def _read_json(text: str) -> _Reading | None:
    tree, at, tries = _Tree(), 0, _TRIES
    while match := _TOKEN.search(text, at):
        sign, at = match[0], match.end()
        if sign in "[{":
            try:
                whole, at = _DECODER.raw_decode(text, match.start()) if tries else (None, at)
            except (ValueError, RecursionError):
                whole = None
                tries -= 1
            if whole is not None:
                tree.add(whole)
            else:
                tree.open({} if sign == "{" else [])
        elif sign in "]}":
            if not tree.stack:
                return None
            tree.close()
        elif sign == ",":
            tree.end_value()
        elif sign != ":":
            tree.add(_scalar(sign))
    return tree.reading()


def _scalar(sign: str) -> Json:
    try:
        return json.loads(sign)
    except ValueError:
        return sign.strip('"')


def _yaml_readings(text: str, line: int, start: int, has_colon: bool) -> Iterator[_Reading]:
    begins = _LINE_START.fullmatch(text, line, start) is not None
    head = text[:start] if start <= _LARGE else _near(text, line, start)
    for ending in (":",) if has_colon else ("", ":") if begins else ("",):
        reading = _read_yaml(f"{head}{_MARK}{ending}")
        if reading is not None:
            yield reading


def _near(text: str, line: int, start: int) -> str:
    """The text before `start` without what precedes the entry of the outermost object that it is in: libyaml
    needs seconds for a large file.
    """
    entry, least = line, _level(text[line:start], mark=True)
    at = line
    while least and at:
        at = text.rfind("\n", 0, at - 1) + 1
        end = text.find("\n", at)
        level = _level(text[at:end])
        if level == 0:
            return text[at : end + 1] + text[entry:start]
        if level is not None and level < least:
            entry, least = at, level
    return text[entry:start]


def _level(line: str, *, mark: bool = False) -> int | None:
    """How far a line is indented, where an item of a list counts as more than its neighbours; None for one
    that begins nothing.
    """
    body = line.lstrip(" ")
    if not mark and body[:1] in {"", "#", "\r", "]", "}"}:
        return None
    return 2 * (len(line) - len(body)) + body.startswith("- ")


def _read_yaml(text: str) -> _Reading | None:
    tree = _Tree()
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.ScalarEvent):
                if event.value == _MARK:
                    return tree.reading()
                tree.add(event.value)
            elif isinstance(event, yaml.AliasEvent):
                tree.add("")
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                if tree.expects_key:
                    return None
                tree.open({} if isinstance(event, yaml.MappingStartEvent) else [])
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                tree.close()
            elif isinstance(event, yaml.DocumentStartEvent):
                tree = _Tree()
    except (yaml.YAMLError, ValueError):
        # Half of a surrogate pair is a ValueError.
        return None
    return None
