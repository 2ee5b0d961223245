"""Parses YAML by the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema). Pure.

libyaml turns text into events; everything above events is here, so nothing recurses and every bound holds
before memory is spent: `on` and `no` are text, keys are text as written, aliases cost what they expand to.
Merge keys (`<<`), which 1.2 lacks, are read all the same: flagd reads them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

from evaluator.flags.json_text import duplicate_key, too_deep, too_many_nodes, unusable_number
from evaluator.flags.problems import EMPTY_DOCUMENT, Finding, Part, Severity, UnreadableError
from evaluator.flags.text import Bounds, Lines, normal_number, quote, read_number

if TYPE_CHECKING:
    from evaluator.flags.model import Json, Path


YAML_PROBLEMS: Final = {
    "found character that cannot start any token": "no value begins with this character; put it in quotes",
    "mapping values are not allowed in this context": "`:` does not fit here; check the indentation, "
    "or put the text in quotes",
    "did not find expected key": "a key was expected; check the indentation of this line and those above",
    "did not find expected '-' indicator": "`- ` was expected; check the indentation of this line",
    "could not find expected ':'": "the `:` after a key is missing, in this line or the one above",
    "block sequence entries are not allowed in this context": "a list cannot begin here; begin a new line",
    "did not find expected ',' or ']'": "`,` or `]` was expected",
    "did not find expected ',' or '}'": "`,` or `}` was expected",
    "did not find expected <document start>": "`---` was expected; check the indentation of this line",
    "did not find expected alphabetic or numeric character": "a name was expected after `*` or `&`; put the "
    "text in quotes",
    "did not find expected node content": "a value was expected",
    "found unexpected end of stream": "the file ends within a quoted text",
    "found unknown escape character": "no such escape; write `\\\\` for a backslash, or use single quotes",
    "control characters are not allowed": "a control character; remove it",
}
"""What libyaml's phrases mean to the author."""


def syntax_error(error: yaml.MarkedYAMLError, text: str) -> UnreadableError:
    """Say what libyaml refused, where, and what to do."""
    opened, mark = error.context_mark, error.problem_mark or error.context_mark
    if opened is not None and mark is not None and mark.line > opened.line and text[opened.index] in "[{\"'":
        # libyaml notices a missing end only where something follows that does not fit, often far below.
        message = f"`{text[opened.index]}` is opened here and not closed"
        return UnreadableError("broken-yaml", message, opened.index)
    if mark is not None and text[mark.index : mark.index + 1] == "\t":
        message = "YAML is not indented by tabs; use spaces"
        return UnreadableError("broken-yaml", message, mark.index)
    problem = error.problem or error.context or "it cannot be read"
    message = f"the YAML is broken here: {YAML_PROBLEMS.get(problem, problem)}"
    return UnreadableError("broken-yaml", message, mark.index if mark else None)


_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_DECIMAL: Final = re.compile(r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?", re.ASCII)
_OTHER_BASE: Final = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MERGE: Final = "<<"
_TAG: Final = "tag:yaml.org,2002:"
_SCALAR_TAGS: Final[dict[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
}


@dataclass(slots=True)
class _Place:
    """Where a value starts, and the places of its parts."""

    offset: int
    members: dict[str | int, _Place]
    key_offset: int
    """That of its key; its own for an item of a list."""


# Most values are scalars; a dict for each would cost more than the value.
_NO_MEMBERS: Final[dict[str | int, _Place]] = {}


class _TextPlaces:
    """The places of all documents of a text. Who asks for one has found a problem: they take another pass."""

    def __init__(self, text: str, bounds: Bounds) -> None:
        self._text = text
        self._bounds = bounds

    @cached_property
    def roots(self) -> list[_Place]:
        """That of each document."""
        return _compose(self._text, self._bounds, placed=True).roots


class YamlPlaces:
    """Start offset of each part of a YAML document; the target of an alias has the place of its anchor."""

    def __init__(self, of_text: _TextPlaces, number: int) -> None:
        self._of_text = of_text
        self._number = number

    def locate(self, path: Path, *, key: bool = False) -> int:
        """Return the offset of the value at `path` (or of its key); if missing, of its nearest ancestor."""
        place = self._of_text.roots[self._number]
        for index, step in enumerate(path):
            member = place.members.get(step)
            if member is None:
                return place.offset
            if key and index == len(path) - 1:
                return member.key_offset
            place = member
        return place.offset


def read_yaml(text: str, bounds: Bounds) -> list[Part]:
    """Read every document of the text, but for empty ones beside others. Raises UnreadableError if there is
    no value.
    """
    composer = _compose(text, bounds)
    if composer.repeated:
        # The problem names both places.
        composer = _compose(text, bounds, placed=True)
    places = _TextPlaces(text, bounds)
    if composer.roots:
        places.roots = composer.roots
    parts = [
        Part(value, findings, YamlPlaces(places, number), start)
        for number, (value, findings, start) in enumerate(composer.documents)
    ]
    if not parts:
        raise EMPTY_DOCUMENT
    return [part for part in parts if part.value is not None] or parts[:1]


def _compose(text: str, bounds: Bounds, *, placed: bool = False) -> _Composer:
    """Read the text. Raises UnreadableError."""
    composer = _Composer(bounds, Lines(text), placed=placed)
    try:
        for event in iter(yaml.CSafeLoader(text).get_event, None):
            composer.take(event)
    except yaml.MarkedYAMLError as error:
        raise syntax_error(error, text) from None
    except yaml.YAMLError as error:
        words = f"the YAML cannot be read: {' '.join(str(error).split())}"
        raise UnreadableError("broken-yaml", words) from None
    return composer


class _Node(NamedTuple):
    """A value that is read."""

    value: Json
    size: int
    """How many values it is, itself and those in it."""
    height: int
    """How many containers are inside each other, itself not counted."""
    place: _Place | None


@dataclass(slots=True)
class _Open:
    """A container that is being read."""

    value: Any
    place: _Place | None
    anchor: str | None
    is_mapping: bool
    size: int = 1
    height: int = 0
    key: str | None = None
    """The key whose value comes next, and its offset; mappings only."""
    key_offset: int = 0
    merging: bool = False
    """Whether that key is `<<`."""
    merged: tuple[tuple[dict[str, Json], _Place | None], ...] = ()
    """Mappings after `<<`, whose members the mapping takes where it has none of its own."""


class _Composer:
    """Makes values of events; places only if `placed`, which takes as long again."""

    def __init__(self, bounds: Bounds, lines: Lines, *, placed: bool) -> None:
        self.documents: list[tuple[Json, list[Finding], int]] = []
        """Value, problems and offset of each."""
        self.roots: list[_Place] = []
        self.repeated = False
        """Whether a mapping has a key twice."""
        self._findings: list[Finding] = []
        self._start = 0
        self._bounds = bounds
        self._lines = lines
        self._placed = placed
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Node] = {}
        self._nodes = 0
        self._expanded = 0

    def take(self, event: yaml.Event) -> None:
        offset = event.start_mark.index if event.start_mark else 0
        if isinstance(event, yaml.ScalarEvent):
            top = self._stack[-1] if self._stack else None
            if top is not None and top.is_mapping and top.key is None:
                self._take_key(top, event, offset)
            else:
                place = _Place(offset, _NO_MEMBERS, offset) if self._placed else None
                self._add(self._resolve(event, offset), 1, 0, place, event.anchor)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._open(event, offset)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._expand(event.anchor, offset)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._start, self._findings = offset, []
            self._anchors.clear()

    def _path(self) -> Path:
        """Return the path of the next value."""
        return tuple(len(one.value) if one.key is None else one.key for one in self._stack)

    def _take_key(self, top: _Open, event: yaml.ScalarEvent, offset: int) -> None:
        top.merging = event.value == _MERGE and event.implicit[0]
        top.key, top.key_offset = event.value, offset
        if event.anchor is not None:
            place = _Place(offset, _NO_MEMBERS, offset) if self._placed else None
            self._anchors[event.anchor] = _Node(event.value, 1, 0, place)

    def _find(self, code: str, message: str, offset: int) -> None:
        self._findings.append(Finding(self._path(), Severity.ERROR, code, message, offset=offset))

    def _refuse_as_key(self, what: str, offset: int) -> None:
        if self._stack and self._stack[-1].is_mapping and self._stack[-1].key is None:
            raise UnreadableError("complex-key", f"a key must be text, not {what}", offset)

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent, offset: int) -> None:
        self._refuse_as_key("a list or a mapping", offset)
        if len(self._stack) >= self._bounds.depth:
            raise too_deep(self._bounds, offset)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", _TAG + ("map" if is_mapping else "seq")):
            self._refuse_tag(event.tag, offset)
        place = _Place(offset, {}, offset) if self._placed else None
        self._stack.append(_Open({} if is_mapping else [], place, event.anchor, is_mapping))
        # Its anchor is defined when it is closed: an alias within it would form a cycle.
        if event.anchor is not None:
            self._anchors.pop(event.anchor, None)

    def _close(self) -> None:
        done = self._stack.pop()
        for value, place in done.merged:
            for step in value:
                if step not in done.value:
                    done.value[step] = value[step]
                    if done.place is not None and place is not None:
                        done.place.members[step] = place.members[step]
        self._add(done.value, done.size, done.height, done.place, done.anchor)

    def _add(self, value: Json, size: int, height: int, place: _Place | None, anchor: str | None) -> None:
        self._nodes += 1
        if self._nodes > self._bounds.nodes:
            raise too_many_nodes(self._bounds)
        if anchor is not None:
            self._anchors[anchor] = _Node(value, size, height, place)
        if not self._stack:
            self.documents.append((value, self._findings, self._start))
            if place is not None:
                self.roots.append(place)
            return
        top = self._stack[-1]
        top.size += size
        if height >= top.height:
            top.height = height + 1
        if not top.is_mapping:
            if place is not None and top.place is not None:
                top.place.members[len(top.value)] = place
            top.value.append(value)
        elif top.key is not None:
            if top.merging:
                self._merge(top, value, place)
            else:
                self._set(top, top.key, value, place)
            top.key = None

    def _merge(self, top: _Open, value: Json, place: _Place | None) -> None:
        merged = [(value, place)]
        if isinstance(value, list):
            merged = [(item, place and place.members[at]) for at, item in enumerate(value)]
        if all(isinstance(item, dict) for item, _ in merged):
            top.merged += tuple(merged)
        else:
            message = "<< takes a mapping, or a list of some, whose fields are to be merged here"
            self._find("merge-key", message, top.key_offset)

    def _set(self, top: _Open, key: str, value: Json, place: _Place | None) -> None:
        self.repeated = self.repeated or key in top.value
        if place is not None and top.place is not None:
            place.key_offset = top.key_offset
            if key in top.value:
                first = self._lines.place(top.place.members[key].key_offset)
                self._findings.append(duplicate_key(self._path(), key, first, top.key_offset))
            top.place.members[key] = place
        top.value[key] = value

    def _expand(self, anchor: str | None, offset: int) -> None:
        self._refuse_as_key("an alias", offset)
        node = self._anchors.get(anchor or "")
        if node is None:
            message = (
                f"the alias {quote(anchor)[1:-1]} has no complete anchor before it; define the anchor first"
            )
            raise UnreadableError("unknown-alias", message, offset)
        self._expanded += node.size
        if self._expanded > self._bounds.alias_nodes:
            message = f"aliases expand to more than {self._bounds.alias_nodes} values; write fewer"
            raise UnreadableError("alias-bomb", message, offset)
        if len(self._stack) + node.height > self._bounds.depth:
            raise too_deep(self._bounds, offset)
        place = _Place(offset, node.place.members, offset) if node.place is not None else None
        self._add(node.value, node.size, node.height, place, None)

    def _refuse_tag(self, tag: str | None, offset: int) -> None:
        message = f"the tag {quote(tag)} has no meaning in JSON; remove it"
        self._find("unknown-tag", message, offset)

    def _resolve(self, event: yaml.ScalarEvent, offset: int) -> Json:
        text, tag = event.value, event.tag
        if tag is None and not event.implicit[0]:
            return text
        if tag in ("!", f"{_TAG}str"):
            return text
        value = self._resolve_plain(text, offset)
        if tag is None:
            return value
        expected = _SCALAR_TAGS.get(tag.removeprefix(_TAG))
        if expected is None:
            self._refuse_tag(tag, offset)
        elif type(value) not in expected:
            message = f"{quote(text)} is not of the type that its tag names; correct one of the two"
            self._find("unknown-tag", message, offset)
        return value

    def _resolve_plain(self, text: str, offset: int) -> Json:
        if text in _NULL:
            return None
        if text in _BOOL:
            return _BOOL[text]
        if _NOT_FINITE.fullmatch(text):
            self._findings.append(unusable_number(self._path(), text, offset))
            return None
        if _DECIMAL.fullmatch(text):
            value = read_number(text)
        elif _OTHER_BASE.fullmatch(text):
            value = normal_number(int(text, 0)) if len(text) <= 200 else None
        else:
            return text
        if value is None:
            self._findings.append(unusable_number(self._path(), text, offset))
        return value


def is_text(plain: str) -> bool:
    """Whether a scalar without quotes is text."""
    return not (
        plain in _NULL
        or plain in _BOOL
        or any(form.fullmatch(plain) for form in (_NOT_FINITE, _DECIMAL, _OTHER_BASE))
    )
