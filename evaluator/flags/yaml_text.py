"""Parses YAML by the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema). Pure.

libyaml turns text into events; everything above events is here, so nothing recurses and every bound holds
before memory is spent: `on` and `no` are text, keys are text as written, aliases cost what they expand to.
Merge keys (`<<`), which 1.2 lacks, are read all the same: flagd reads them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

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


# Most values are scalars; a dict for each would cost more than the value.
_NO_MEMBERS: Final[dict[str | int, tuple[int, _Node]]] = {}


@dataclass(slots=True)
class _Node:
    """A value with its place; containers have their parts, their size and their height."""

    value: Json
    offset: int
    members: dict[str | int, tuple[int, _Node]] = field(default_factory=lambda: _NO_MEMBERS)
    size: int = 1
    height: int = 0


class YamlPlaces:
    """Start offset of each part of a YAML text; the target of an alias has the place of its anchor."""

    def __init__(self, root: _Node) -> None:
        self._root = root

    def locate(self, path: Path, *, key: bool = False) -> int:
        """Return the offset of the value at `path` (or of its key); if missing, of its nearest ancestor."""
        node = self._root
        for index, step in enumerate(path):
            member = node.members.get(step)
            if member is None:
                return node.offset
            if key and index == len(path) - 1:
                return member[0]
            node = member[1]
        return node.offset


def read_yaml(text: str, bounds: Bounds) -> list[Part]:
    """Read every document of the text, but for empty ones beside others. Raises UnreadableError if there is
    no value.
    """
    composer = _Composer(bounds, Lines(text))
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            composer.take(event)
    except yaml.MarkedYAMLError as error:
        raise syntax_error(error, text) from None
    except yaml.YAMLError as error:
        words = f"the YAML cannot be read: {' '.join(str(error).split())}"
        raise UnreadableError("broken-yaml", words) from None
    parts = composer.parts
    if not parts:
        raise EMPTY_DOCUMENT
    return [part for part in parts if part.value is not None] or parts[:1]


@dataclass(slots=True)
class _Open:
    """A container that is being read."""

    node: _Node
    anchor: str | None
    path: Path
    key: tuple[str, int] | None = None
    """The key (with its offset) whose value comes next; mappings only."""
    merging: bool = False
    """Whether that key is `<<`."""
    merged: list[_Node] = field(default_factory=list)
    """Mappings after `<<`, whose members the mapping takes where it has none of its own."""


class _Composer:
    def __init__(self, bounds: Bounds, lines: Lines) -> None:
        self.parts: list[Part] = []
        self.findings: list[Finding] = []
        self._start = 0
        self._bounds = bounds
        self._lines = lines
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Node] = {}
        self._nodes = 0
        self._expanded = 0

    def take(self, event: yaml.Event) -> None:
        offset = _offset(event)
        if isinstance(event, yaml.ScalarEvent):
            if self._expects_key():
                self._take_key(event, offset)
            else:
                self._add(_Node(self._resolve(event), offset), event.anchor)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._open(event, offset)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._add(self._expand(event.anchor, offset), None)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._start, self.findings = offset, []
            self._anchors.clear()

    def _expects_key(self) -> bool:
        if not self._stack:
            return False
        top = self._stack[-1]
        return top.key is None and isinstance(top.node.value, dict)

    def _path(self) -> Path:
        """Return the path of the next value."""
        if not self._stack:
            return ()
        top = self._stack[-1]
        return (*top.path, top.key[0] if top.key else len(top.node.value))

    def _take_key(self, event: yaml.ScalarEvent, offset: int) -> None:
        self._stack[-1].merging = event.value == _MERGE and event.implicit[0]
        self._stack[-1].key = (event.value, offset)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Node(event.value, offset)

    def _find(self, code: str, message: str, offset: int, *steps: str | int) -> None:
        path = (*self._stack[-1].path, *steps) if steps else self._path()
        self.findings.append(Finding(path, Severity.ERROR, code, message, offset=offset))

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent, offset: int) -> None:
        if self._expects_key():
            raise UnreadableError("complex-key", "a key must be text, not a list or a mapping", offset)
        if len(self._stack) >= self._bounds.depth:
            raise too_deep(self._bounds, offset)
        mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", _TAG + ("map" if mapping else "seq")):
            self._refuse_tag(event.tag, offset)
        node = _Node({} if mapping else [], offset, {})
        self._stack.append(_Open(node, event.anchor, self._path()))
        # Its anchor is defined when it is closed: an alias within it would form a cycle.
        if event.anchor is not None:
            self._anchors.pop(event.anchor, None)

    def _close(self) -> None:
        done = self._stack.pop()
        for merged in done.merged:
            for step, member in merged.members.items():
                if step not in done.node.members:
                    done.node.members[step] = member
                    done.node.value[step] = merged.value[step]
        self._add(done.node, done.anchor)

    def _add(self, node: _Node, anchor: str | None) -> None:
        self._nodes += 1
        if self._nodes > self._bounds.nodes:
            raise too_many_nodes(self._bounds)
        if anchor is not None:
            self._anchors[anchor] = node
        if not self._stack:
            self.parts.append(Part(node.value, self.findings, YamlPlaces(node), self._start))
            return
        top = self._stack[-1]
        parent = top.node
        parent.size += node.size
        parent.height = max(parent.height, node.height + 1)
        if isinstance(parent.value, list):
            parent.members[len(parent.value)] = (node.offset, node)
            parent.value.append(node.value)
        elif top.key is not None:
            if top.merging:
                self._merge(top, node)
            else:
                self._set(parent, top.key, node)
            top.key = None

    def _merge(self, top: _Open, node: _Node) -> None:
        nodes = [node]
        if isinstance(node.value, list):
            nodes = [entry for _, entry in node.members.values()]
        if all(isinstance(member.value, dict) for member in nodes):
            top.merged += nodes
        else:
            message = "<< takes a mapping, or a list of some, whose fields are to be merged here"
            self._find("merge-key", message, node.offset, _MERGE)

    def _set(self, parent: _Node, at: tuple[str, int], node: _Node) -> None:
        key, offset = at
        if key in parent.members:
            first = self._lines.place(parent.members[key][0])
            self.findings.append(duplicate_key(self._path(), key, first, offset))
        parent.members[key] = (offset, node)
        parent.value[key] = node.value

    def _expand(self, anchor: str | None, offset: int) -> _Node:
        if self._expects_key():
            raise UnreadableError("complex-key", "a key must be text, not an alias", offset)
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
        return _Node(node.value, offset, node.members, node.size, node.height)

    def _refuse_tag(self, tag: str | None, offset: int) -> None:
        message = f"the tag {quote(tag)} has no meaning in JSON; remove it"
        self._find("unknown-tag", message, offset)

    def _resolve(self, event: yaml.ScalarEvent) -> Json:
        text, tag, offset = event.value, event.tag, _offset(event)
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
            self.findings.append(unusable_number(self._path(), text, offset))
            return None
        if _DECIMAL.fullmatch(text):
            value = read_number(text)
        elif _OTHER_BASE.fullmatch(text):
            value = normal_number(int(text, 0)) if len(text) <= 200 else None
        else:
            return text
        if value is None:
            self.findings.append(unusable_number(self._path(), text, offset))
        return value


def is_text(plain: str) -> bool:
    """Whether a scalar without quotes is text."""
    return not (
        plain in _NULL
        or plain in _BOOL
        or any(form.fullmatch(plain) for form in (_NOT_FINITE, _DECIMAL, _OTHER_BASE))
    )


def _offset(event: yaml.Event) -> int:
    return event.start_mark.index if event.start_mark else 0
