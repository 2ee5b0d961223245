"""Reads one layer of a flag set, and assembles flags of the pieces of several. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from evaluator.flags.diff import same
from evaluator.flags.document import SEVERAL, read_documents, without_value
from evaluator.flags.known_operators import shorten
from evaluator.flags.model import ABSENT, EMPTY, Json, Path
from evaluator.flags.problems import Document, Finding, Piece, Severity
from evaluator.flags.recognition import recognise_format
from evaluator.flags.suggestions import Suggestions, Words, unknown_name
from evaluator.flags.text import DEFAULT, Bounds, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


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


FLAGS: Final = "flags"
EVALUATORS: Final = "$evaluators"
METADATA: Final = "metadata"
ARCHIVED: Final = "$archived"
NO_DEFINITIONS: Final = "no-definitions"
OTHER_FORMAT: Final = "other-format"
"""Codes of the notes about documents that are passed over."""
_SECTIONS: Final = frozenset({FLAGS, EVALUATORS, METADATA, ARCHIVED})
_SECTION_WORDS: Final = Words(sorted(_SECTIONS))
_TOP: Final = _SECTIONS | {"$schema"}
_ITEM: Final = KNOWN | {"key"}


@dataclass(frozen=True)
class Layer:
    """The pieces by key. A piece whose value is None removes what lower layers have."""

    flags: Mapping[str, Piece] = field(default_factory=lambda: EMPTY)
    evaluators: Mapping[str, Piece] = field(default_factory=lambda: EMPTY)
    metadata: Mapping[str, Piece] = field(default_factory=lambda: EMPTY)
    archived: Mapping[str, Piece] = field(default_factory=lambda: EMPTY)
    """Keys of flags that are gone, which no flag may have again."""
    others: tuple[tuple[str, Piece], ...] = ()
    """Flags of a list whose key is in `flags` for another flag set."""
    documents: tuple[Document, ...] = ()
    findings: tuple[Finding, ...] = ()
    has_flags: bool = False
    """Whether any document has the key `flags`, even if empty."""


def as_read(document: Document) -> Sequence[Document]:
    """Return the document unchanged."""
    return (document,)


def read_layer(
    files: Iterable[tuple[str, bytes]],
    *,
    bounds: Bounds = DEFAULT,
    prepare: Callable[[Document], Sequence[Document]] = as_read,
) -> Layer:
    """Read documents, as (file name, content), to one layer. Never raises. `prepare` may change each, or make
    several of it.
    """
    reading = _Reading(bounds)
    for file, content in files:
        alone = 0
        for read in read_documents(content, file=file, bounds=bounds):
            for document in prepare(read):
                alone += not document.embedded and not document.passed_over
                if alone > 1 and not document.embedded:
                    reading.add(without_value(document, "several-documents", SEVERAL, document.start))
                else:
                    reading.add(document)
    return Layer(
        flags=reading.flags,
        evaluators=reading.evaluators,
        metadata=reading.metadata,
        archived=reading.archived,
        others=tuple(reading.others),
        documents=tuple(reading.documents),
        findings=tuple(reading.findings),
        has_flags=reading.has_flags,
    )


class _Reading:
    def __init__(self, bounds: Bounds) -> None:
        self.flags: dict[str, Piece] = {}
        self.evaluators: dict[str, Piece] = {}
        self.metadata: dict[str, Piece] = {}
        self.archived: dict[str, Piece] = {}
        self.others: list[tuple[str, Piece]] = []
        self._ids: dict[str, set[str | None]] = {}
        self.documents: list[Document] = []
        self.findings: list[Finding] = []
        self.has_flags = False
        self._bounds = bounds

    def add(self, document: Document) -> None:
        top: Json = document.value
        if _serves_nothing(top) and (foreign := recognise_format(top)) is not None:
            self._pass_over(document, OTHER_FORMAT, foreign)
            return
        misnamed: dict[str, str] = {}
        unknown: dict[str, tuple[Severity, str]] = {}
        if isinstance(top, dict):
            top, misnamed = _named_as_flagd_reads(top, _TOP)
            unknown = {key: unknown_name(key, _SECTION_WORDS) for key in top if key not in _TOP}
            if unknown and _SECTIONS.isdisjoint(top) and not any(near for _, near in unknown.values()):
                message = "the document has none of `flags`, `$evaluators`, `metadata`, and is passed over"
                self._pass_over(document, NO_DEFINITIONS, message)
                return
        self.documents.append(document)
        for finding in document.findings:
            flag = flag_at(document.value, finding.path)
            # What is wrong with a list in a file is placed there.
            self.findings.append(replace(finding, document=finding.document or document, flag=flag))
        if document.value is ABSENT:
            return
        if not isinstance(top, dict):
            message = f"a document must be an object with `flags`, not {shorten(top)}"
            self._error(document, (), "not-an-object", message)
            return
        self._report_case(document, (), document.value, misnamed, None)
        for key, (severity, near) in unknown.items():
            message = f"unknown key {quote(key)}{near}; it is ignored, as by flagd"
            self._find(severity, document, (key,), "unknown-key", message)
        self._add_flags(document, top)
        self._add_section(document, top, EVALUATORS, self.evaluators)
        self._add_section(document, top, METADATA, self.metadata)
        self._add_section(document, top, ARCHIVED, self.archived)

    def _pass_over(self, document: Document, code: str, message: str) -> None:
        # What is wrong within it, such as a tag of another product, is not our business.
        document = replace(document, passed_over=True)
        self.documents.append(document)
        self._find(Severity.NOTE, document, (), code, message)

    def _add_flags(self, document: Document, top: dict[str, Any]) -> None:
        if FLAGS not in top:
            return
        flags = top[FLAGS]
        self.has_flags = True
        if not isinstance(flags, dict | list):
            message = f"`flags` must be an object of flags by key, or a list of flags, not {shorten(flags)}"
            self._error(document, (FLAGS,), "not-flags", message)
            return
        if len(self.flags) + len(flags) > self._bounds.flags:
            message = f"the set has more than {self._bounds.flags} flags; split it"
            self._error(document, (FLAGS,), "too-many-flags", message)
            return
        for key, piece in self._pieces(document, flags):
            self._add_flag(key, piece)

    def _pieces(self, document: Document, flags: Json) -> Iterator[tuple[str, Piece]]:
        if isinstance(flags, dict):
            for key, value in flags.items():
                path = (FLAGS, key)
                named = value
                if isinstance(value, dict):
                    named, misnamed = _named_as_flagd_reads(value, KNOWN)
                    self._report_case(document, path, value, misnamed, key)
                yield key, Piece(named, document, path)
            return
        for index, item in enumerate(flags):
            path = (FLAGS, index)
            if not isinstance(item, dict):
                message = f"a flag in a list must be an object with `key`, not {shorten(item)}"
                self._error(document, path, "not-a-flag", message)
                continue
            named, misnamed = _named_as_flagd_reads(item, _ITEM)
            if not isinstance(named.get("key"), str):
                message = 'a flag in a list needs a key; add "key": "…"'
                self._error(document, path, "missing-flag-key", message)
            else:
                self._report_case(document, path, item, misnamed, named["key"])
                value = {name: part for name, part in named.items() if name != "key"}
                yield named["key"], Piece(value, document, path)

    def _add_flag(self, key: str, piece: Piece) -> None:
        first = self.flags.setdefault(key, piece)
        if first is piece:
            return
        ids = self._ids.setdefault(key, {_flag_set_id(first)})
        own = _flag_set_id(piece)
        if first.document is piece.document and own not in ids:
            ids.add(own)
            self.others.append((key, piece))
        else:

            def message() -> str:
                place = first.place(key=True)
                return f"the flag {quote(key)} is already defined at {place}; keep one of the two"

            self._error(piece.document, piece.path, "duplicate-flag", message, flag=key)

    def _add_section(
        self, document: Document, top: dict[str, Any], name: str, pieces: dict[str, Piece]
    ) -> None:
        section = top.get(name, EMPTY)
        if section is None:
            message = f"`{name}` is null, and counts as empty"
            self._find(Severity.NOTE, document, (name,), "null-section", message)
            return
        if section is not EMPTY and not isinstance(section, dict):
            message = f"`{name}` must be an object, not {shorten(section)}"
            self._error(document, (name,), "not-an-object", message)
            return
        for key, value in section.items():
            piece = Piece(value, document, (name, key))
            first = pieces.setdefault(key, piece)
            if first is not piece and not same(first.value, value):
                message = f"{quote(key)} has another value at {first.place(key=True)}; keep one of the two"
                self._error(document, piece.path, "conflicting-key", message)

    def _error(
        self,
        document: Document,
        path: Path,
        code: str,
        message: str | Callable[[], str],
        flag: str | None = None,
    ) -> None:
        at_key = flag is not None
        self.findings.append(Finding(path, Severity.ERROR, code, message, document, flag, at_key))

    def _report_case(
        self, document: Document, path: Path, value: Json, misnamed: Mapping[str, str], flag: str | None
    ) -> None:
        """Report names in another case: warn where one field is written twice, as one of them is not read."""
        counts = Counter(misnamed.values())
        for written, meant in misnamed.items():
            twice = meant in value or counts[meant] > 1
            severity = Severity.WARNING if twice else Severity.NOTE
            message = f"{quote(written)} is read as {quote(meant)}, as flagd does; write {quote(meant)}"
            self._find(severity, document, (*path, written), "field-case", message, flag)

    def _find(
        self,
        severity: Severity,
        document: Document,
        path: Path,
        code: str,
        message: str,
        flag: str | None = None,
    ) -> None:
        self.findings.append(Finding(path, severity, code, message, document, flag, at_key=True))


def _serves_nothing(top: Json) -> bool:
    """Return whether no flag of a document has variants, as in other tools' formats."""
    flags = top.get(FLAGS) if isinstance(top, dict) else None
    items = flags if isinstance(flags, list) else flags.values() if isinstance(flags, dict) else ()
    return not any(isinstance(item, dict) and isinstance(item.get("variants"), dict) for item in items)


def _flag_set_id(piece: Piece) -> str | None:
    """Return the flag set id of a flag of a list, or of its document; None for none."""
    for value in (piece.value, piece.document.value):
        metadata = value.get(METADATA) if isinstance(value, dict) else None
        named = metadata.get("flagSetId") if isinstance(metadata, dict) else None
        if isinstance(named, str):
            return named
    return None


def _named_as_flagd_reads(
    value: dict[str, Any], known: frozenset[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The object with each name as in `known`, and the names that differed: written name to known name. Of
    two names of one field the later wins, or adds its entries, as in flagd.
    """
    if value.keys() <= known:
        return value, {}
    folded = {name.casefold(): name for name in known}
    unknown = value.keys() - known
    misnamed = {
        name: folded[name.casefold()] for name in value if name in unknown and name.casefold() in folded
    }
    if not misnamed:
        return value, misnamed
    read: dict[str, Any] = {}
    for name, part in value.items():
        field = misnamed.get(name, name)
        lower = read.get(field)
        merges = field in MERGED_BY_KEY and isinstance(lower, dict) and isinstance(part, dict)
        read[field] = {**lower, **part} if merges else part  # type: ignore[dict-item]
    return read, misnamed


def flag_at(value: Json, path: Path) -> str | None:
    """Return the key of the flag that `path` is in; None outside of flags and in their identifying fields."""
    if len(path) < 2 or path[0] != FLAGS or not isinstance(value, dict):
        return None
    key = path[1]
    if isinstance(key, str):
        return key
    flags = value.get(FLAGS)
    item = flags[key] if isinstance(flags, list) and key < len(flags) else None
    if not isinstance(item, dict) or path[2:3] == ("key",):
        return None
    name = item.get("key")
    return name if isinstance(name, str) else None
