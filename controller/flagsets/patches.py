"""Applies JSON Patch (RFC 6902) to merged layers, for changes that merging cannot express. Pure.

A patch sees the merged set as one document: `/flags/KEY/…`, `/$evaluators/NAME/…`, `/metadata/KEY`. What it
changes is judged as anything else is, and a problem is placed at the operation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import jsonpatch
import jsonpointer

from controller.flagsets.preparation import size_of
from evaluator.flags.document import read_document
from evaluator.flags.layer import EVALUATORS, FLAGS, METADATA, Assembled, Layer
from evaluator.flags.problems import Document, Finding, PartOffsets, Piece, Severity
from evaluator.flags.text import DEFAULT, Bounds, quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from evaluator.flags.model import Json, Path

FAILED: Final = "patch-failed"
_SECTIONS: Final = (FLAGS, EVALUATORS, METADATA)
_LONGEST: Final = 200


class Patch(NamedTuple):
    """A list of operations, as YAML or JSON."""

    name: str
    """The name in messages: a file, or `spec.patches[0]`."""
    text: str


class _FailedError(Exception):
    """An operation cannot be done."""


_FAULTS: Final = (
    _FailedError,
    jsonpatch.JsonPatchException,
    jsonpointer.JsonPointerException,
    AttributeError,
    TypeError,
    ValueError,
)
"""Exceptions that an operation may raise: the library does not wrap some of them."""


@dataclass(frozen=True, slots=True)
class _Operations:
    """For each part that a patch changed, the place in the patch's text of the last operation on it."""

    places: PartOffsets | None
    last: Mapping[Any, int]

    def locate(self, path: Path, *, key: bool = False) -> int:
        """Offset of the operation that made what is at `path`."""
        del key
        return self.places.locate((self.last.get(path[:2], 0),)) if self.places is not None else 0


class _Allowance:
    """How much the patches of one set may still copy and move, and how deep they may nest."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._nodes = bounds.nodes
        self._characters = bounds.document_bytes

    def pay(self, merged: Mapping[str, Any], operation: Mapping[str, Any]) -> None:
        """Subtract an operation's cost before it is done. Raises _FailedError for too high a cost."""
        path = jsonpointer.JsonPointer(operation["path"])
        if operation.get("op") in ("copy", "move") and "from" in operation:
            size = size_of(jsonpointer.JsonPointer(operation["from"]).resolve(merged))
            self._nodes -= size.nodes
            self._characters -= size.characters
        else:
            size = size_of(operation.get("value"))
        if self._nodes < 0 or self._characters < 0:
            raise _FailedError(
                f"the patches copy and move more than {self.bounds.nodes} values or "
                f"{self.bounds.document_bytes} characters"
            )
        if len(path.parts) + size.depth > self.bounds.depth:
            raise _FailedError(f"it nests more than {self.bounds.depth} levels deep")


def apply_patches(
    layers: Sequence[Layer], patches: Sequence[Patch], bounds: Bounds = DEFAULT
) -> tuple[list[Layer], list[tuple[str, str]]]:
    """Layers that come to the same but for what the patches change. Where one fails, an error of the whole
    set is among their findings. Also (from, to) of flags of which one was made of another, in order.
    """
    made = list(layers)
    moved: list[tuple[str, str]] = []
    allowance = _Allowance(bounds)
    for patch in patches:
        read = read_document(patch.text.encode(), file=f"{patch.name}.yaml")
        document = replace(read, file=patch.name)
        findings = [*document.findings]
        if not findings:
            findings += _apply(made, document, moved, allowance)
        if findings:
            located = tuple(replace(finding, document=document, flag=None) for finding in findings)
            made[-1] = replace(made[-1], findings=(*made[-1].findings, *located))
            break
    return made, moved


def _apply(
    layers: list[Layer], document: Document, moved: list[tuple[str, str]], allowance: _Allowance
) -> Iterator[Finding]:
    """Put what the operations make into `layers`, all of it or nothing."""
    merged = {section: _merge_section(layers, section) for section in _SECTIONS}
    last: dict[tuple[str, str], int] = {}
    operations = document.value
    if not isinstance(operations, list):
        yield Finding(
            (), Severity.ERROR, FAILED, "a patch is a list of operations, such as - {op: remove, path: …}"
        )
        return
    for index, operation in enumerate(operations):
        try:
            parts = _parts(operation)
            moved += [(source[1], parts[0][1]) for source in parts[1:] if source[0] == FLAGS]
            for part in parts:
                section, key = part
                if part not in last and key in merged[section]:
                    merged[section][key] = _copy(merged[section][key])
                last[part] = index
            if "value" in operation:
                operation = {**operation, "value": _copy(operation["value"])}  # noqa: PLW2901
            allowance.pay(merged, operation)
            jsonpatch.apply_patch(merged, [operation], in_place=True)
        except _FAULTS as error:
            fields = operation if isinstance(operation, dict) else {}
            named = f"{fields.get('op')} {fields.get('path')}"[:_LONGEST]
            message = f"the operation {index + 1}, {quote(named)}, fails: {_why(error)}"
            yield Finding((index,), Severity.ERROR, FAILED, message)
            return
    if too_large := [*_too_large(merged, last, allowance.bounds)]:
        yield from too_large
        return
    source = replace(document, places=_Operations(document.places, last))
    for section in _SECTIONS:
        keys = {key for part, key in last if part == section}
        pieces = {
            key: Piece(merged[section][key], source, (section, key)) for key in keys & merged[section].keys()
        }
        for index, layer in enumerate(layers):
            kept = {key: piece for key, piece in _pieces(layer, section).items() if key not in keys}
            layers[index] = _with(layer, section, kept if index else {**kept, **pieces})
    layers[-1] = replace(layers[-1], documents=(*layers[-1].documents, source))


def _too_large(
    merged: Mapping[str, Mapping[str, Any]], last: Mapping[Any, int], bounds: Bounds
) -> Iterator[Finding]:
    """Changed parts that hold more than a document may."""
    for (section, key), index in last.items():
        if size_of(merged[section].get(key)).nodes > bounds.nodes:
            message = f"the operation {index + 1} makes {quote(key)} hold more than {bounds.nodes} values"
            yield Finding((index,), Severity.ERROR, FAILED, message)


def _why(error: Exception) -> str:
    """Describe an error without quoting the set, since that may contain secrets."""
    if isinstance(error, _FailedError | jsonpatch.InvalidJsonPatch):
        return str(error)[:_LONGEST]
    if isinstance(error, jsonpatch.JsonPatchTestFailed):
        return "another value is there"
    if isinstance(error, jsonpatch.JsonPatchConflict | jsonpointer.JsonPointerException):
        return "there is no such place"
    return "it does not fit what is there"


def _parts(operation: object) -> list[tuple[str, str]]:
    """The parts of the set that an operation touches, its `path` first: section and key."""
    if not isinstance(operation, dict):
        raise _FailedError("an operation is an object with op and path")
    touched = []
    for name in ("path", "from"):
        if name == "path" or name in operation:
            pointer = operation.get(name)
            if not isinstance(pointer, str):
                raise _FailedError(f"its {name} is no text")
            parts = jsonpointer.JsonPointer(pointer).parts
            if len(parts) < 2 or parts[0] not in _SECTIONS:
                raise _FailedError("it is not below /flags/KEY, /$evaluators/NAME or /metadata/KEY")
            touched.append((parts[0], parts[1]))
    if len({section for section, _ in touched}) > 1:
        raise _FailedError("it moves or copies from one section to another")
    return touched


def _copy(value: Json) -> Json:
    """Copy a value so that no part occurs twice, as with YAML's aliases: a change would be of both."""
    if isinstance(value, dict):
        return {key: _copy(member) for key, member in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _merge_section(layers: Sequence[Layer], section: str) -> dict[str, Any]:
    """What the layers say of a section, not judged."""
    made: dict[str, Assembled] = {}
    entries: dict[str, Any] = {}
    for layer in layers:
        for key, piece in _pieces(layer, section).items():
            if piece.value is None:
                made.pop(key, None)
                entries.pop(key, None)
            elif section != FLAGS:
                entries[key] = piece.value
            elif isinstance(piece.value, dict):
                made.setdefault(key, Assembled(key)).lay(piece, nulls_remove=True)
    return entries if section != FLAGS else {key: assembled.value for key, assembled in made.items()}


def _pieces(layer: Layer, section: str) -> Mapping[str, Piece]:
    return {FLAGS: layer.flags, EVALUATORS: layer.evaluators, METADATA: layer.metadata}[section]


def _with(layer: Layer, section: str, pieces: Mapping[str, Piece]) -> Layer:
    if section == FLAGS:
        return replace(layer, flags=pieces)
    return replace(layer, evaluators=pieces) if section == EVALUATORS else replace(layer, metadata=pieces)
