"""The language server of `flagstaff lsp`: what an editor asks and is told, over `check_set` and
`writing_help`. Imported by that verb alone, as its library belongs to an extra.
"""

from __future__ import annotations

import asyncio
import json
import posixpath
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer

from controller.authoring.cursor import spots
from controller.authoring.document_format import FormatRefused, LeftAlone, format_document, is_read_otherwise
from controller.authoring.writing_help import (
    Written,
    evaluator_words,
    field_words,
    flag_words,
    name_at,
    places,
    suggestions,
    uses,
)
from controller.cli.edited_files import CheckedSet, EditedSet, check_set, is_checked, layers_around, schema_of
from controller.runtime.clock import now
from evaluator.flags.document import Syntax, format_of
from evaluator.flags.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pygls.workspace import PositionCodec

    from controller.authoring.cursor import Spot
    from controller.authoring.writing_help import Suggestion
    from evaluator.flags.model import Path as DocumentPath
    from evaluator.flags.problems import Document, Problem

_PAUSE: Final = 0.3
"""Seconds without a keystroke before files are checked."""
_PATIENCE: Final = 10.0
"""Seconds that a question waits for the first check."""
_MOST_ITEMS: Final = 500
_SEVERITIES: Final = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.NOTE: types.DiagnosticSeverity.Information,
}
_KINDS: Final = {
    "field": types.CompletionItemKind.Field,
    "flag": types.CompletionItemKind.Constant,
    "evaluator": types.CompletionItemKind.Function,
    "variant": types.CompletionItemKind.EnumMember,
    "operator": types.CompletionItemKind.Operator,
    "value": types.CompletionItemKind.Value,
}
_PLAIN: Final = re.compile(r"[A-Za-z_$][\w.$/-]*", re.ASCII)
_WORD: Final = re.compile(r""""(?:[^"\\]|\\.)*"|'[^']*'|[^\s\[\]{},:]+|.""")


@dataclass(slots=True)
class _OpenSet:
    """A flag set with an open file."""

    written: Written | None = None
    """As it was read last without a broken file, if it ever was."""
    complete: bool = False
    """Whether it was."""
    task: asyncio.Task[None] | None = None
    """The check that runs, or the last one."""
    shown: dict[str, list[types.Diagnostic]] = field(default_factory=dict)
    """Its problems in the editor, by the addresses of files."""


class _Server(LanguageServer):
    def __init__(self, paths: Sequence[str], depends_on: Sequence[str]) -> None:
        # The library applies parts of a text by lines of its own, which end at U+2028 and others, too.
        whole = types.TextDocumentSyncKind.Full
        super().__init__("flagstaff", version("flagstaff"), text_document_sync_kind=whole)
        self._paths, self._depends_on = tuple(paths), tuple(depends_on)
        self._sets: dict[EditedSet, _OpenSet] = {}
        # One at a time: a check that is out of date while it waits never starts.
        self._checks = ThreadPoolExecutor(1)

    def shutdown(self) -> None:
        """End without the checks that wait."""
        self._checks.shutdown(wait=False, cancel_futures=True)
        super().shutdown()  # type: ignore[no-untyped-call]

    def check_soon(self, uri: str) -> _OpenSet | None:
        """Check, after a pause, the flag set of a file and those others that have it, too; None for a file of
        none.
        """
        own = self._edited(uri)
        if own is None:
            return None
        self._sets.setdefault(own, _OpenSet())
        folder = posixpath.dirname(self.file_of(uri, own.root)) or "."
        for edited, opened in self._sets.items():
            # A policy judges them all.
            shared = edited.root == own.root and (folder in edited.layers or not own.layers)
            if edited == own or shared:
                if opened.task is not None:
                    opened.task.cancel()
                opened.task = asyncio.create_task(self._check(edited, opened, uri))
        return self._sets[own]

    def check_all(self) -> None:
        """Check every flag set with an open file, and forget the others."""
        opened = {edited for uri in self.workspace.text_documents if (edited := self._edited(uri))}
        for edited in self._sets.keys() - opened:
            left = self._sets[edited]
            if left.task is not None:
                left.task.cancel()
            self._show(left, {})
            del self._sets[edited]
        for uri in self.workspace.text_documents:
            self.check_soon(uri)

    async def written(self, uri: str) -> Written:
        """The definitions around a file, once they have been read."""
        edited = self._edited(uri)
        opened = None if edited is None else self._sets.get(edited) or self.check_soon(uri)
        if opened is None:
            return Written()
        if opened.written is None and opened.task is not None:
            await asyncio.wait([opened.task], timeout=_PATIENCE)
        return opened.written or Written()

    def text(self, uri: str) -> str:
        """What the editor holds; empty for a file that is not open."""
        opened = self.workspace.text_documents.get(uri)
        return "" if opened is None else opened.source

    def root_of(self, uri: str) -> Path | None:
        """The folder that is open in the editor and has the file, else the file's own."""
        path = uris.to_fs_path(uri) if uri.startswith("file:") else None
        if path is None:
            return None
        named = [folder.uri for folder in self.workspace.folders.values()] or [self.workspace.root_uri]
        roots = [Path(root) for one in named if one and (root := uris.to_fs_path(one))]
        return next((root for root in roots if Path(path).is_relative_to(root)), Path(path).parent)

    def file_of(self, uri: str, root: Path) -> str:
        """The name of a file below a folder; empty for one that is elsewhere."""
        path = Path(uris.to_fs_path(uri) or "") if uri.startswith("file:") else Path()
        return path.relative_to(root).as_posix() if path.is_relative_to(root) else ""

    def _edited(self, uri: str) -> EditedSet | None:
        root = self.root_of(uri)
        file = self.file_of(uri, root) if root is not None else ""
        if root is None or not is_checked(file):
            return None
        return EditedSet(root, self._paths or layers_around(root, file), self._depends_on)

    async def _check(self, edited: EditedSet, opened: _OpenSet, uri: str) -> None:
        await asyncio.sleep(_PAUSE)
        named = ((self.file_of(one, edited.root), one) for one in self.workspace.text_documents)
        buffers = {file: self.text(one).encode("utf-8", "replace") for file, one in named if is_checked(file)}
        loop = asyncio.get_running_loop()
        checked = await loop.run_in_executor(self._checks, check_set, edited, buffers)
        if checked.complete or not opened.complete:
            opened.written, opened.complete = checked.written, checked.complete
        self._publish(edited, opened, checked, uri)

    def _publish(self, edited: EditedSet, opened: _OpenSet, checked: CheckedSet, uri: str) -> None:
        """Show the problems of each file; one of none is shown in the file that was changed."""
        by_file: dict[str, list[Problem]] = {}
        for problem in checked.problems:
            by_file.setdefault(problem.file if problem.file in checked.texts else "", []).append(problem)
        shown: dict[str, list[types.Diagnostic]] = {}
        for file, problems in by_file.items():
            lines = checked.texts.get(file, b"").decode("utf-8", "replace").split("\n")
            address = uris.from_fs_path(str(edited.root / file)) if file else None
            same = (
                one
                for one in self.workspace.text_documents
                if file and self.file_of(one, edited.root) == file
            )
            # The editor's own spelling of the address, where the file is open.
            shown.setdefault(next(same, address or uri), []).extend(
                _diagnostic(problem, lines, self.workspace.position_codec) for problem in problems
            )
        self._show(opened, shown)

    def _show(self, opened: _OpenSet, shown: dict[str, list[types.Diagnostic]]) -> None:
        """Show the problems of a flag set in place of those before, beside those of the others."""
        changed = opened.shown.keys() | shown.keys()
        opened.shown = shown
        for address in changed:
            found: list[types.Diagnostic] = []
            for one in self._sets.values():
                found += (each for each in one.shown.get(address, ()) if each not in found)
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(address, found))


def language_server(paths: Sequence[str], depends_on: Sequence[str]) -> LanguageServer:
    """A server that knows definitions. `paths`: the layers; none to tell them by the folders of files."""
    server = _Server(paths, depends_on)
    for changed in ("DID_OPEN", "DID_CHANGE", "DID_SAVE"):
        server.feature(getattr(types, f"TEXT_DOCUMENT_{changed}"))(_changed)
    for gone in (types.TEXT_DOCUMENT_DID_CLOSE, types.WORKSPACE_DID_CHANGE_WATCHED_FILES):
        server.feature(gone)(_changed_on_disk)
    server.feature(
        types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=['"', "'", " ", "["])
    )(_complete)
    server.feature(types.TEXT_DOCUMENT_HOVER)(_hover)
    server.feature(types.TEXT_DOCUMENT_DEFINITION)(_define)
    server.feature(types.TEXT_DOCUMENT_REFERENCES)(_refer)
    server.feature(types.TEXT_DOCUMENT_FORMATTING)(_format)
    return server


_Asked: TypeAlias = (
    types.CompletionParams | types.HoverParams | types.DefinitionParams | types.ReferenceParams
)


def _changed(ls: _Server, params: Any) -> None:
    ls.check_soon(params.text_document.uri)


def _changed_on_disk(ls: _Server, _: Any) -> None:
    ls.check_all()


async def _complete(ls: _Server, params: types.CompletionParams) -> types.CompletionList:
    place = await _Place.of(ls, params)
    return await asyncio.to_thread(place.completions)


async def _hover(ls: _Server, params: types.HoverParams) -> types.Hover | None:
    place = await _Place.of(ls, params)
    return await asyncio.to_thread(place.hover)


async def _define(ls: _Server, params: types.DefinitionParams) -> list[types.Location]:
    place = await _Place.of(ls, params)
    return await asyncio.to_thread(place.definitions)


async def _refer(ls: _Server, params: types.ReferenceParams) -> list[types.Location]:
    place = await _Place.of(ls, params)
    return await asyncio.to_thread(place.references, with_definitions=params.context.include_declaration)


async def _format(ls: _Server, params: types.DocumentFormattingParams) -> list[types.TextEdit] | None:
    """The layout that `flagstaff fmt` gives; nothing changes in a text with an error."""
    uri = params.text_document.uri
    text, root = ls.text(uri), ls.root_of(uri)
    try:
        made = await asyncio.to_thread(format_document, text, ls.file_of(uri, root) if root else "")
    except (FormatRefused, LeftAlone):
        return None
    whole = types.Range(types.Position(0, 0), types.Position(text.count("\n") + 1, 0))
    return [types.TextEdit(whole, made)]


@dataclass(frozen=True, slots=True)
class _Place:
    """A place of a file that is asked about."""

    root: Path
    file: str
    text: str
    position: types.Position
    codec: PositionCodec
    written: Written

    @classmethod
    async def of(cls, server: _Server, params: _Asked) -> _Place:
        uri = params.text_document.uri
        written = await server.written(uri)
        root = server.root_of(uri) or Path()
        # The text is read last: it may have changed while the definitions were read.
        text, codec = server.text(uri), server.workspace.position_codec
        return cls(root, server.file_of(uri, root), text, params.position, codec, written)

    def spots(self) -> list[Spot]:
        lines = self.text.split("\n")
        at = self.codec.position_from_client_units(lines, self.position)
        offset = sum(len(line) + 1 for line in islice(lines, at.line)) + at.character
        return spots(self.text, min(offset, len(self.text)), self.file)

    def completions(self) -> types.CompletionList:
        items: dict[str, types.CompletionItem] = {}
        for spot in self.spots():
            schema = schema_of(self.file, spot)
            begun = spot.begun.lower()
            for suggestion in suggestions(spot, self.file, schema, self.written):
                if len(items) > _MOST_ITEMS:
                    break
                if begun in suggestion.text.lower():
                    items.setdefault(suggestion.text, self._item(spot, suggestion))
        return types.CompletionList(len(items) > _MOST_ITEMS, [*items.values()])

    def hover(self) -> types.Hover | None:
        for spot in self.spots():
            name = name_at(spot, self.file)
            if name is None:
                words = field_words(spot, schema_of(self.file, spot))
            elif name.of_evaluator:
                words = evaluator_words(name.text, self.written)
            else:
                words = "\n".join(flag_words(name.text, self.written, int(now().timestamp())))
            if words:
                content = types.MarkupContent(types.MarkupKind.PlainText, words)
                return types.Hover(content, self._range(spot.start, spot.end))
        return None

    def definitions(self) -> list[types.Location]:
        names = filter(None, (name_at(spot, self.file) for spot in self.spots()))
        return [self._location(*place, key=True) for name in names for place in places(name, self.written)]

    def references(self, *, with_definitions: bool) -> list[types.Location]:
        names = [*filter(None, (name_at(spot, self.file) for spot in self.spots()))]
        found = [self._location(*place) for name in names for place in uses(name, self.written)]
        return [*found, *(self.definitions() if with_definitions else ())]

    def _item(self, spot: Spot, suggestion: Suggestion) -> types.CompletionItem:
        text = suggestion.text
        plain = _PLAIN.fullmatch(text) and not is_read_otherwise(text, key=True)
        begun_quoted = self.text[spot.start : spot.start + 1] in {'"', "'"}
        if begun_quoted or not plain or format_of(self.file) is not Syntax.YAML:
            text = json.dumps(text, ensure_ascii=False)
        if spot.is_key and not spot.has_colon:
            text += ": "
        return types.CompletionItem(
            suggestion.text,
            kind=_KINDS[suggestion.kind],
            detail=suggestion.detail or None,
            filter_text=text,
            text_edit=types.TextEdit(self._range(spot.start, spot.end), text),
        )

    def _range(self, start: int, end: int) -> types.Range:
        line = self.text.count("\n", 0, start)
        begin = self.text.rfind("\n", 0, start) + 1
        units = [self.codec.client_num_units(self.text[begin:offset]) for offset in (start, end)]
        return types.Range(types.Position(line, units[0]), types.Position(line, units[1]))

    def _location(self, document: Document, path: DocumentPath, *, key: bool = False) -> types.Location:
        line, column = document.place(path, key=key)
        address = uris.from_fs_path(str(self.root / document.file)) or ""
        return types.Location(address, _range(line, column, document.text.split("\n"), self.codec))


def _diagnostic(problem: Problem, lines: Sequence[str], codec: PositionCodec) -> types.Diagnostic:
    message = problem.message
    return types.Diagnostic(
        _range(problem.line, problem.column, lines, codec),
        message,
        _SEVERITIES[problem.severity],
        problem.code,
        source="flagstaff",
    )


def _range(line: int, column: int, lines: Sequence[str], codec: PositionCodec) -> types.Range:
    """The word at a line and column, both from 1, or the first line where both are 0."""
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    start = max(column - 1, 0)
    word = _WORD.match(text, start)
    ends = (start, word.end() if word else start)
    units = [codec.client_num_units(text[:offset]) for offset in ends]
    at = max(line - 1, 0)
    return types.Range(types.Position(at, units[0]), types.Position(at, units[1]))
