"""The canonical layout of definitions, tests and policies: fields of flags in one order, one indentation,
quotes around words that other readers of YAML take for something else. Pure.

Comments belong to the entry that they stand above or behind, and move with it. libyaml's events give the
places of values; what stands between two of these is signs, blank lines and comments. What comes out is read
again, and must say what the text said before.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import yaml

from controller.authoring.flag_test_files import TEST_FIELDS, TEST_SUFFIXES
from evaluator.flags.diff import same
from evaluator.flags.document import SEVERAL, Syntax, format_of, read_document
from evaluator.flags.layer import FLAGS
from evaluator.flags.model import ABSENT
from evaluator.flags.yaml_text import is_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evaluator.flags.problems import Document

WIDTH: Final = 100
"""Columns; a list or an object in brackets that is longer gets a line for each part."""
_STEP: Final = 2
_FIELDS: Final = ("key", "state", "variants", "defaultVariant", "targeting", "metadata")
_SOPS: Final = "sops"
_TEMPLATE: Final = re.compile(r"\{\{|\{%|<%")
_REMARK: Final = re.compile(r"#.*")
_PROPERTIES: Final = re.compile(r"[&!][^\s\[\]{},]*(?:\s+[&!][^\s\[\]{},]*)?")
_JSON: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]|[^\s\[\]{},:"]+')
_SPREAD: Final = re.compile(r"[ \t]*(?:#.*)?\n")
_UNREAD: Final = re.compile(r"(?:[\s?,]|#.*)*")
_CHOMPING: Final = re.compile(r"([|>])[-+]?([1-9]?)[-+]?")
_INDICATOR: Final = re.compile(r"([^#]*?[|>][-+]?)([1-9])")
_RESOLVER: Final = yaml.resolver.Resolver()
_CLOSING: Final = {"{": "}", "[": "]"}
_TESTS: Final = "tests"
_TEXT: Final = "tag:yaml.org,2002:str"
_MERGE: Final = "<<"


class FormatRefused(ValueError):
    """The text has an error, or cannot be laid out otherwise; begins with its place."""


class LeftAlone(ValueError):
    """The text is for another program, which reads it as it is laid out."""


def format_document(text: str, name: str) -> str:
    """Return the text in canonical layout, JSON or YAML by the name of its file. Raises FormatRefused and
    LeftAlone.
    """
    text = text.removeprefix("\ufeff")
    before = read_document(text.encode(), file=name)
    _require_own(before)
    ending = "\r\n" if "\r\n" in text else "\n"
    plain = text.replace("\r\n", "\n")
    marks = _yaml_marks if format_of(name) is Syntax.YAML else _json_marks
    try:
        tree = _Reader(plain)
        tree.read(marks(plain))
        _sort_fields(tree.root.value, name)
        made = "\n".join([*tree.lines(), ""]).replace("\n", ending)
    except (yaml.YAMLError, LookupError, ValueError):
        made = ""
    if made == text:
        return made
    after = read_document(made.encode(), file=name)
    if after.findings or not same(after.value, before.value):
        raise FormatRefused(
            f"{name}: error: it has a form that cannot be laid out otherwise; write a simpler one"
        )
    return made


def keep_layout(before: bytes, after: bytes, name: str) -> bytes:
    """Return the new text of a file in canonical layout if its text before was, else as it is."""
    with suppress(FormatRefused, LeftAlone):
        if format_document(before.decode(), name).encode() == before:
            return format_document(after.decode(), name).encode()
    return after


def _require_own(document: Document) -> None:
    """Raises FormatRefused and LeftAlone."""
    value = document.value
    if isinstance(value, dict) and _SOPS in value:
        raise LeftAlone("sops encrypted it, whose MAC counts the order of fields")
    if any(finding.message == SEVERAL for finding in document.findings):
        raise LeftAlone("it has several documents")
    if value is ABSENT and _TEMPLATE.search(document.text):
        raise LeftAlone("it is a template; check what the template makes")
    if document.findings:
        raise FormatRefused("\n".join(map(str, document.problems)))
    if not isinstance(value, dict | list):
        raise FormatRefused(f"{document.file}: error: it has no object, and hence no definitions")


def is_read_otherwise(word: str, *, key: bool = False) -> bool:
    """Whether a word without quotes that is text here is a boolean, a number, a date or null to readers of
    YAML 1.1.
    """
    if not key and not is_text(word):
        return False
    tag: str = _RESOLVER.resolve(yaml.ScalarNode, word, (True, False))  # type: ignore[no-untyped-call]
    return tag != _TEXT


class _Mark(NamedTuple):
    """What a text has at a place: a scalar, or where a container begins or ends."""

    sign: str
    """Empty for a scalar; `{` and `[` where a container in brackets begins, `:` and `-` for one without; `}`
    where one ends; `---`.
    """
    start: int
    end: int
    value: str = ""
    """What a scalar says."""
    style: str = '"'
    """Of a scalar: its quote, `|` or `>`, empty without, `*` for an alias."""


@dataclass(slots=True, eq=False)
class _Part:
    """A value."""

    sign: str = ""
    """As that of a mark; `|` for a scalar that is a block."""
    text: str = ""
    """A scalar as it is to be written; anchor and tag of a container."""
    entries: list[_Entry] = field(default_factory=list)
    column: int = 0
    """That of its entries, in the text that was read."""
    spread: bool = False
    """Whether a new line follows its bracket."""
    bare: bool = False
    """Whether it is a pair in a list, without braces of its own."""
    has_alias: bool = False
    remark: str = ""
    """The comment behind its bracket."""
    tail: list[str] = field(default_factory=list)
    """Comments below its last entry, and blank lines, which are empty."""


@dataclass(slots=True, eq=False)
class _Entry:
    """An entry of a mapping, or an item of a list."""

    lead: list[str] = field(default_factory=list)
    """Comments and blank lines above it."""
    name: str = ""
    """What its key says."""
    key: str = ""
    """Its key as it is to be written, with a colon; a dash or nothing for an item."""
    value: _Part = field(default_factory=_Part)
    head: str = ""
    """The comment behind its colon or dash."""
    between: list[str] = field(default_factory=list)
    """Comments above its value."""
    remark: str = ""
    """The comment behind its value."""


def _yaml_marks(text: str) -> Iterator[_Mark]:
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        start = event.start_mark.index if event.start_mark else 0
        end = event.end_mark.index if event.end_mark else start
        if isinstance(event, yaml.ScalarEvent):
            yield _Mark("", start, end, event.value, event.style or "")
        elif isinstance(event, yaml.AliasEvent):
            yield _Mark("", start, end, style="*")
        elif isinstance(event, yaml.MappingStartEvent):
            yield _Mark("{" if event.flow_style else ":", start, end)
        elif isinstance(event, yaml.SequenceStartEvent):
            yield _Mark("[" if event.flow_style else "-", start, end)
        elif isinstance(event, yaml.CollectionEndEvent):
            yield _Mark("}", start, end)
        elif isinstance(event, yaml.DocumentStartEvent) and event.explicit:
            yield _Mark("---", start, end)


def _json_marks(text: str) -> Iterator[_Mark]:
    for match in _JSON.finditer(text):
        sign = match[0] if match[0] in "{[" else "}" if match[0] in "]}" else ""
        yield _Mark(sign, *match.span(), match[0].strip('"'))


class _Reader:
    """Reads a text into a tree, by its marks."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        """Where the text is read to."""
        self._prologue: list[str] = []
        """The lines down to `---`, if there is one."""
        self.root = _Entry()
        self._rest: list[str] = []
        """Comments at the end that are not the root's."""
        self._said: tuple[_Entry | _Part, str] = self.root, "head"
        """What a comment in the current line is about: an object, and its field."""
        self._open: list[_Part] = []
        self._keyed: _Entry | None = None
        """The entry whose value comes next."""
        self._ended: list[tuple[int, _Part]] = []
        """Containers without brackets that end where the text is read to, inner ones first: a comment in that
        column or behind it is theirs.
        """

    def read(self, marks: Iterator[_Mark]) -> None:
        """Raises ValueError and LookupError for a text of which no tree is made."""
        for mark in marks:
            if mark.sign == "---":
                if self._prologue or self.root.value.sign:
                    raise ValueError(SEVERAL)
                self._prologue = [line.rstrip() for line in self._text[: mark.end].strip().split("\n")]
                self._at = mark.end
            elif mark.sign == "}":
                self._close(mark)
            elif self._open and self._open[-1].sign in "{:" and self._keyed is None:
                self._add_key(mark)
            else:
                entry, self._keyed = self._keyed or self._item(), None
                if mark.sign:
                    self._open_part(mark, entry)
                else:
                    self._add_scalar(mark, entry)
        self._rest = self._gap(len(self._text))
        while self._rest and not self._rest[-1]:
            self._rest.pop()

    def lines(self) -> list[str]:
        """The lines in canonical layout."""
        value, lines = self.root.value, self._prologue
        if lines:
            lines[-1] += _remark(self.root.head)
        lines += _comments(self.root.between, 0)
        if value.sign in "{[":
            lines += _inline(value, 0, 0)
            lines[-1] += _remark(self.root.remark)
        else:
            lines += [*filter(None, [value.text]), *_block(value, 0)]
        lines += _comments(self._rest, 0)
        start = next(number for number, line in enumerate(lines) if line)
        return lines[start:]

    def _add_key(self, mark: _Mark) -> None:
        top = self._open[-1]
        entry = _Entry(self._gap(mark.start), mark.value, f"{self._scalar(mark, key=True)}:")
        if mark.style and mark.style in "|>":
            # The key gets quotes, behind which no header of a block can have a comment.
            entry.lead += _REMARK.findall(self._text[mark.start : mark.end].partition("\n")[0])
        self._place(top, mark.start)
        top.entries.append(entry)
        self._at, self._said, self._keyed = mark.end, (entry, "head"), entry
        if self._text.startswith(":", self._next()):
            entry.between += self._gap(self._next())
            self._at += 1

    def _item(self) -> _Entry:
        """Begin an item of a list, or the root."""
        if not self._open:
            return self.root
        top = self._open[-1]
        entry = _Entry()
        if top.sign == "-":
            start = self._next()
            entry = _Entry(self._gap(start), key="-")
            self._place(top, start)
            self._at, self._said = start + 1, (entry, "head")
        top.entries.append(entry)
        return entry

    def _place(self, part: _Part, start: int) -> None:
        if not part.entries:
            part.column = start - self._text.rfind("\n", 0, start) - 1

    def _add_scalar(self, mark: _Mark, entry: _Entry) -> None:
        if mark.start == mark.end:
            entry.value.text = "null" if self._open[-1].sign == "{" else ""
            return
        self._read_to(mark.start, entry)
        self._at, self._said = mark.end, (entry, "remark")
        if mark.style == "*":
            for part in self._open:
                part.has_alias = True
        if mark.style and mark.style in "|>":
            entry.value = _Part("|", self._block_scalar(mark))
        else:
            entry.value = _Part("", self._scalar(mark))

    def _scalar(self, mark: _Mark, *, key: bool = False) -> str:
        """The text of a scalar, in the quotes that it is to have."""
        text, value = self._text[mark.start : mark.end], mark.value
        if key and "\n" in text:
            return json.dumps(value, ensure_ascii=False)
        if not mark.style:
            quoted = text == value and value != _MERGE * key and is_read_otherwise(value, key=key)
        else:
            quoted = text[:1] == "'" and value.isprintable() and not {*value} & {*'"\\'} and "\n" not in text
        return f'"{value}"' if quoted else text

    def _block_scalar(self, mark: _Mark) -> str:
        """The text of a scalar that is a block, whose lines below the first are not indented."""
        header, *lines = self._text[mark.start : mark.end].split("\n")
        if indicator := _INDICATOR.match(header):
            indent = self._open[-1].column + int(indicator[2])
            header = f"{indicator[1]}{_STEP}{header[indicator.end() :]}"
        else:
            indent = next((len(line) - len(line.lstrip(" ")) for line in lines if line.strip(" ")), 0)
        lines = [line[indent:] for line in lines]
        if lines and not lines[-1]:
            lines.pop()
            self._at -= 1
        elif mark.end == len(self._text):
            # The last line has no end, and so the text has none.
            header = _CHOMPING.sub(r"\1\2-", header, count=1)
        while "+" not in header.partition("#")[0] and lines and not lines[-1]:
            lines.pop()
            self._at = self._text.rindex("\n", 0, self._at)
        return "\n".join([header, *lines])

    def _open_part(self, mark: _Mark, entry: _Entry) -> None:
        part = entry.value = _Part(mark.sign)
        if properties := _PROPERTIES.match(self._text, mark.start):
            self._read_to(mark.start, entry)
            part.text, self._at = " ".join(properties[0].split()), properties.end()
        if mark.sign in "{[":
            start = self._next() if properties else mark.start
            part.bare = self._text[start] != mark.sign
            if not part.bare:
                self._read_to(start, entry)
                self._at, self._said = start + 1, (part, "remark")
                part.spread = _SPREAD.match(self._text, self._at) is not None
        self._open.append(part)

    def _close(self, mark: _Mark) -> None:
        part, self._keyed = self._open.pop(), None
        above = self._open[-1] if self._open else None
        if part.sign in ":-":
            # A comment below a list that is not indented is about what follows the list.
            same_column = above is not None and above.sign == ":" and above.column == part.column
            self._ended.append((part.column + same_column if above else 0, part))
        elif not part.bare:
            part.tail += self._gap(mark.end - 1)
            self._at, self._said = mark.end, (above.entries[-1] if above else self.root, "remark")

    def _next(self) -> int:
        """The offset of what comes next, apart from comments and what only separates."""
        match = _UNREAD.match(self._text, self._at)
        return match.end() if match else self._at

    def _read_to(self, start: int, entry: _Entry) -> None:
        """Read what stands before a value."""
        lines = self._gap(start)
        if entry.key or entry is self.root:
            entry.between += lines
        else:
            entry.lead += lines

    def _gap(self, end: int) -> list[str]:
        """Read what stands before an offset, and return the comments and blank lines, apart from a comment in
        the current line, and those that belong to what has ended.
        """
        between = self._text[self._at : end]
        # Between most parts of a line there are only signs.
        if self._at and not self._ended and "\n" not in between and "#" not in between:
            self._at = end
            return []
        lines = between.split("\n")
        if self._at:
            remark = _REMARK.search(lines.pop(0))
            if remark is not None:
                about, name = self._said
                setattr(about, name, " ".join(filter(None, [getattr(about, name), remark[0].rstrip()])))
        self._at = end
        ended, self._ended = self._ended, []
        lead: list[str] = []
        for line in lines if end == len(self._text) else lines[:-1]:
            remark = _REMARK.search(line)
            if remark is None:
                if not line.strip():
                    lead.append("")
                continue
            while ended and ended[0][0] > remark.start():
                ended.pop(0)
            lead.append(remark[0].rstrip())
            if ended:
                ended[0][1].tail += lead
                lead = []
        return lead


def _sort_fields(root: _Part, name: str) -> None:
    """Put the fields of flags into one order, and those of tests in a file of them."""
    tested = name.endswith(TEST_SUFFIXES)
    for entry in root.entries:
        if entry.name == (_TESTS if tested else FLAGS):
            for below in entry.value.entries:
                _sort(below.value, TEST_FIELDS if tested else _FIELDS)


def _sort(part: _Part, fields: Sequence[str]) -> None:
    # An anchor has to stay before its aliases.
    if part.has_alias or part.sign not in {"{", ":"}:
        return
    ranks = {name: rank for rank, name in enumerate(fields)}
    first = part.entries[:1]
    part.entries.sort(key=lambda entry: ranks.get(entry.name, len(ranks)))
    if part.entries[:1] != first:
        lead = part.entries[0].lead
        while lead and not lead[0]:
            lead.pop(0)


def _comments(lines: Sequence[str], indent: int) -> list[str]:
    """Comments, indented, with one blank line for several."""
    return [" " * indent + line if line else "" for before, line in pairwise(["#", *lines]) if line or before]


def _remark(comment: str) -> str:
    return f" {comment}" if comment else ""


def _block(part: _Part, indent: int) -> list[str]:
    """The lines of a container without brackets."""
    lines: list[str] = []
    for entry in part.entries:
        lines += _comments(entry.lead, indent)
        lines += _entry(entry, indent)
    return lines + _comments(part.tail, indent)


def _entry(entry: _Entry, indent: int) -> list[str]:
    """The lines of an entry of a container without brackets."""
    value, inner, start = entry.value, indent + _STEP, " " * indent + entry.key
    if value.sign in {":", "-"}:
        lines = _block(value, inner)
        if entry.key == "-" and not (entry.head or entry.between or value.text or value.entries[0].lead):
            return [f"{start} {lines[0][inner:]}", *lines[1:]]
        first = f"{start} {value.text}".rstrip() + _remark(entry.head)
        return [first, *_comments(entry.between, inner), *lines]
    if value.sign == "|":
        header, *content = value.text.split("\n")
        lines = [header, *(" " * inner + line if line else "" for line in content)]
        if entry.head or entry.between:
            return [
                start + _remark(entry.head),
                *_comments(entry.between, inner),
                " " * inner + header,
                *lines[1:],
            ]
        return [f"{start} {header}", *lines[1:]]
    return _with_value(entry, start, inner if entry.key == "-" else indent)


def _with_value(entry: _Entry, start: str, indent: int, comma: str = "") -> list[str]:
    """The lines of an entry whose value is a scalar or in brackets; `start` is what comes before it."""
    lines: list[str] = []
    between = [*filter(None, entry.between)]
    if entry.head or between:
        inner = indent + _STEP
        lines = [start + _remark(entry.head), *_comments(between, inner)]
        if not entry.value.sign and not entry.value.text:
            return lines
        start, indent = " " * inner, inner
    elif entry.key:
        start += " "
    first, *rest = _inline(entry.value, indent, len(start))
    lines += [f"{start}{first}".rstrip(), *rest]
    lines[-1] += comma + _remark(entry.remark)
    return lines


def _inline(part: _Part, indent: int, column: int) -> list[str]:
    """The lines of a scalar, or of a container in brackets whose end is indented by `indent`; the first line
    begins in `column`.
    """
    if not part.sign:
        first, *rest = part.text.split("\n")
        return [first, *(" " * (indent + _STEP) + line.lstrip() if line.strip() else "" for line in rest)]
    whole = _one_line(part)
    if whole is not None and column + len(whole) < WIDTH:
        return [whole]
    inner = indent + _STEP
    lines = [f"{part.text} {part.sign}".lstrip() + _remark(part.remark)]
    for entry in part.entries:
        comma = "," if entry is not part.entries[-1] else ""
        lines += _comments(entry.lead, inner)
        lines += _with_value(entry, " " * inner + entry.key, inner, comma)
    tail = part.tail
    while tail and not tail[-1]:
        tail = tail[:-1]
    return [*lines, *_comments(tail, inner), " " * indent + _CLOSING[part.sign]]


def _one_line(part: _Part) -> str | None:
    """A scalar, or a container in brackets, in one line; None if it has to have several."""
    if not part.sign:
        return None if "\n" in part.text else part.text
    if (part.spread and part.entries) or part.remark or any(part.tail):
        return None
    parts = []
    for entry in part.entries:
        value = _one_line(entry.value)
        if value is None or any([*entry.lead, *entry.between, entry.head, entry.remark]):
            return None
        parts.append(f"{entry.key} {value}".strip())
    return f"{part.text} {part.sign}".lstrip() + ", ".join(parts) + _CLOSING[part.sign]
