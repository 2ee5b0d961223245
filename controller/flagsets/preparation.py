"""What is done to each document between reading and merging, which flags hold values of Secrets since, and
the definitions in manifests and in files of ConfigMaps. Pure.

Flags that hold such values are marked in their metadata. Status, Events, logs and lists of changes show a
digest of them.
"""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from controller.api.first_form import modernise
from controller.api.meta import CONFIGURATION_KIND, FLAG_KIND, OPENFEATURE_GROUP, SHARD_KIND
from controller.runtime.secret_texts import withhold_messages
from evaluator.flags.document import format_of, read_document, read_documents
from evaluator.flags.known_operators import shorten
from evaluator.flags.layer import flag_at
from evaluator.flags.model import ABSENT, CONFIDENTIAL_KEY, Absent, Flag, FlagSet, Json, Path
from evaluator.flags.problems import Document, Finding, PartOffsets, Problem, Severity
from evaluator.flags.text import DEFAULT, Lines, choices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


CODE: Final = "wrong-manifest"
_KINDS: Final = frozenset({CONFIGURATION_KIND, FLAG_KIND})
_FORMS: Final[Mapping[str, tuple[type, ...]]] = {"flagSpec": (dict,), "featureFlagSpec": (dict, str)}
_READ: Final = f"{FLAG_KIND} and {CONFIGURATION_KIND} of {OPENFEATURE_GROUP}"
_OF_OBJECTS: Final = frozenset({"apiVersion", "kind", "metadata", "status"})
_DATA: Final = ("data", "binaryData")
"""Where a ConfigMap holds files."""
_FIELDS: Final = frozenset({"state", "variants", "targeting", "defaultvariant"})
"""Fields that tell a flag from a setting, folded."""
_ENCRYPTED: Final = "ENC["
"""How sops begins a value."""
_FLAGS: Final = re.compile(r"[\"']?(?:flags|flagSpec|featureFlagSpec)[\"']?\s*:", re.IGNORECASE)
_BLOCK: Final = "|"


@dataclass(frozen=True, slots=True)
class _Below:
    """Places of a part of a document."""

    outer: PartOffsets
    prefix: Path

    def locate(self, path: Path, *, key: bool = False) -> int:
        """Offset in the whole document."""
        return self.outer.locate((*self.prefix, *path), key=key)


@dataclass(frozen=True)
class _InText:
    """Places of a document that is a text in another one: line by line where that one has it so."""

    start: int
    outer: str
    inner: Document
    wrapped: bool
    """Whether the inner document has `flags` as it is read."""

    def locate(self, path: Path, *, key: bool = False) -> int:
        """Offset in the outer document."""
        if self.inner.places is None:
            return self.start
        own = path if self.wrapped else path[1:]
        return self.outer_offset(self.inner.places.locate(own, key=key))

    def outer_offset(self, offset: int) -> int:
        """Return a character's offset in the outer text; if that is unknown, the inner text's start."""
        if self.outer[self.start : self.start + 1] != _BLOCK:
            return self.start
        line, column = self._lines.place(offset)
        meant = self.inner.text.split("\n", line)[line - 1]
        if line >= len(self._rows):
            return self.start
        start, end = self._rows[line]
        if not self.outer.endswith(meant, start, end):
            return self.start
        return end - len(meant) + column - 1

    @cached_property
    def _lines(self) -> Lines:
        return Lines(self.inner.text)

    @cached_property
    def _rows(self) -> list[tuple[int, int]]:
        """The start and the end of each line of the outer text that may have one of the inner one."""
        rows: list[tuple[int, int]] = []
        start = self.start
        for _ in range(self.inner.text.count("\n") + 2):
            end = (self.outer.find("\n", start) + 1 or len(self.outer) + 1) - 1
            rows.append((start, end))
            start = end + 1
        return rows


def definitions(document: Document) -> tuple[Document, ...]:
    """Return the definitions in a manifest, a document for each object of a list. A manifest of another kind
    is passed over, and any other document stays as it is.
    """
    top = document.value
    if not isinstance(top, dict):
        return (document,)
    if is_manifest(top) and top["kind"].endswith("List") and isinstance(top.get("items"), list):
        return _of_list(document, top)
    if "flags" not in top:
        return _of_object(document, top)
    return (_without_object(document, top) if is_manifest(top) else document,)


def _of_object(document: Document, top: dict[str, Any]) -> tuple[Document, ...]:
    kind, group = str(top.get("kind")), str(top.get("apiVersion")).partition("/")[0]
    declared = top.get("spec")
    spec: dict[str, Any] = declared if isinstance(declared, dict) else {}
    form = next((form for form, types in _FORMS.items() if isinstance(spec.get(form), types)), None)
    if kind in _KINDS and group == OPENFEATURE_GROUP:
        if form is None:
            message = "the manifest holds no flags: there is neither spec.flagSpec nor spec.featureFlagSpec"
            return (_without_flags(document, ("spec",), message),)
        value = spec[form]
        made = (
            _from_text(document, value) if isinstance(value, str) else _part(document, value, ("spec", form))
        )
        return (replace(made, embedded=True),)
    if form is not None and kind != SHARD_KIND and (is_manifest(top) or kind in _KINDS):
        message = f"flags are read of {_READ}, not of {_describe_kind(top)}; correct apiVersion or kind"
        return (_without_flags(document, (), message),)
    if (kind, top.get("apiVersion")) == ("ConfigMap", "v1"):
        return _of_config_map(document, top)
    is_object = is_manifest(top) or (_is_named(top) and "$evaluators" not in top)
    return (_skip_document(document, top) if is_object else document,)


def is_manifest(value: Json) -> bool:
    """Return whether a value says which kind of object it is, in clear."""
    return isinstance(value, dict) and all(_is_clear(value.get(name)) for name in ("apiVersion", "kind"))


def _is_named(value: dict[str, Any]) -> bool:
    """Return whether a value says half of it, as a manifest with a mistake does."""
    return any(_is_clear(value.get(name)) for name in ("apiVersion", "kind"))


def _is_clear(text: Json) -> bool:
    return isinstance(text, str) and not text.startswith(_ENCRYPTED)


def is_of_another_kind(document: Document) -> bool:
    """Return whether the document is passed over whatever its values are, be they encrypted."""
    return is_manifest(document.value) and all(part.passed_over for part in definitions(document))


def _of_list(document: Document, top: dict[str, Any]) -> tuple[Document, ...]:
    """Return the definitions of each object of a list. A list of one kind does not repeat it."""
    common = {"apiVersion": top["apiVersion"], "kind": str(top["kind"]).removesuffix("List")}
    common = common if common["kind"] in _KINDS else {}
    made: list[Document] = []
    for index, item in enumerate(top["items"]):
        if isinstance(item, dict):
            findings = tuple(finding for finding in document.findings if finding.path[:2] == ("items", index))
            own = replace(document, findings=findings)
            made += definitions(_part(own, {**common, **item}, ("items", index)))
    return tuple(made) or (_skip_document(document, top),)


def _skip_document(document: Document, top: dict[str, Any]) -> Document:
    """Return the document without a value, and with a note. What is wrong within it is not our business."""
    return _passed_over(document, (), f"{_describe_kind(top)} holds no flags and is passed over")


def _passed_over(document: Document, path: Path, message: str) -> Document:
    note = Finding(path, Severity.NOTE, "other-manifest", message)
    return replace(document, value=ABSENT, findings=(note,), passed_over=True)


def _of_config_map(document: Document, top: dict[str, Any]) -> tuple[Document, ...]:
    """Return the documents of each key whose value is a file of flags."""
    made: list[Document] = []
    others: list[tuple[str, str]] = []
    for section in _DATA:
        values = top.get(section)
        for key, value in values.items() if isinstance(values, dict) else ():
            documents = [*_of_key(document, section, key, value)]
            made += documents
            others += [] if documents else [(section, key)]
    if not made:
        return (_skip_document(document, top),)
    if others:
        names = choices(key for _, key in others)
        message = f"of the ConfigMap, the value of {names} is no file of flags, and is passed over"
        made.append(replace(_passed_over(document, others[0], message), embedded=True))
    return tuple(made)


def _of_key(document: Document, section: str, key: str, value: Json) -> Iterator[Document]:
    """Yield what a key's value holds, if it is a file of flags."""
    content = value.encode(errors="replace") if isinstance(value, str) else b""
    if section == "binaryData":
        try:
            content = b64decode(content, validate=True)
        except ValueError:
            return
    if not _FLAGS.search(content.decode(errors="replace")):
        return
    named = format_of(key) is not None
    start = 0 if document.places is None else document.places.locate((section, key))
    for read in read_documents(content, file=key if named else f"{key}.yaml"):
        holds_object = isinstance(read.value, dict) and read.value.get("kind") in _KINDS
        for part in definitions(read) if holds_object else (read,):
            # A broken one is not passed over: its flags would be gone.
            if holds_object or (part.value is ABSENT and named) or _is_flags(part.value):
                places = _InText(start, document.text, part, wrapped=True)
                yield replace(
                    part,
                    file=document.file,
                    findings=tuple(_in_outer(finding, places) for finding in part.findings),
                    text=document.text,
                    lines=document.lines,
                    places=places,
                    embedded=True,
                    part=key,
                )


def _is_flags(value: Json | Literal[Absent.ABSENT]) -> bool:
    """Return whether a value has flags, and not settings that are called so."""
    flags = value.get("flags") if isinstance(value, dict) else None
    items = [*flags.values()] if isinstance(flags, dict) else flags
    return isinstance(items, list) and (
        not items
        or any(isinstance(item, dict) and not _FIELDS.isdisjoint(map(str.casefold, item)) for item in items)
    )


def _in_outer(finding: Finding, places: _InText) -> Finding:
    return finding if finding.offset is None else replace(finding, offset=places.outer_offset(finding.offset))


def _without_object(document: Document, top: dict[str, Any]) -> Document:
    """Return definitions that are an object, too, without what describes that."""
    value = {key: part for key, part in top.items() if key not in _OF_OBJECTS}
    return replace(document, value=value, embedded=True)


def _without_flags(document: Document, path: Path, message: str) -> Document:
    finding = Finding(path, Severity.ERROR, CODE, message)
    # As a document without problems of its own: this one says it all.
    findings = (*document.findings, finding)
    return replace(document, value={"flags": {}}, findings=findings, embedded=True)


def _describe_kind(top: dict[str, Any]) -> str:
    kind, version = top.get("kind"), top.get("apiVersion")
    named = shorten(kind)[1:-1] if isinstance(kind, str) else "an object"
    return f"{named} of {shorten(version)}" if isinstance(version, str) else f"{named} without apiVersion"


def _part(document: Document, value: dict[str, Any], prefix: Path) -> Document:
    places = None if document.places is None else _Below(document.places, prefix)
    findings = tuple(
        replace(finding, path=finding.path[len(prefix) :] if finding.path[: len(prefix)] == prefix else ())
        for finding in document.findings
    )
    return replace(document, value=value, findings=findings, places=places)


def _from_text(document: Document, text: str) -> Document:
    """The first form, a JSON text."""
    inner = read_document(text.encode(errors="replace"), file=f"{document.file}.json")
    start = 0 if document.places is None else document.places.locate(("spec", "featureFlagSpec"))
    value, warnings = modernise(inner.value) if isinstance(inner.value, dict) else (inner.value, ())
    wrapped = not isinstance(inner.value, dict) or "flags" in inner.value
    places = _InText(start, document.text, inner, wrapped)
    findings = [
        replace(_in_outer(finding, places), path=finding.path if wrapped else ("flags", *finding.path))
        for finding in inner.findings
    ]
    findings += [Finding((), Severity.WARNING, CODE, warning) for warning in warnings]
    return replace(document, value=value, findings=(*document.findings, *findings), places=places)


class Prepared(NamedTuple):
    """A document after a step."""

    document: Document
    secrets: tuple[Path, ...] = ()
    """The places of values of Secrets in the current text."""


@dataclass(slots=True)
class Allowance:
    """What steps may still add to all documents of one build together."""

    characters: int = DEFAULT.document_bytes
    findings: int = DEFAULT.problems - 1
    """So many that the error which says that there are more is among those listed."""
    nodes: int = DEFAULT.nodes
    """Values that all documents together may still hold."""

    def pay(self, document: Document) -> Document:
        """The document, or none where there are too many values by now."""
        if document.unreadable:
            return document
        self.nodes -= size_of(document.value).nodes
        if self.nodes >= 0:
            return document
        message = f"the flag set holds more than {DEFAULT.nodes} values; make several of it"
        finding = Finding((), Severity.ERROR, "too-large", message)
        return replace(document, value=ABSENT, findings=(finding,), text="", places=None)


class Size(NamedTuple):
    """How much a value is."""

    nodes: int
    """Values, itself and those in it."""
    characters: int
    """Characters of its texts and keys."""
    depth: int
    """Containers inside each other, itself one of them."""


def size_of(value: Json) -> Size:
    """Counted level by level: a value may nest deeper than Python's stack."""
    nodes = characters = depth = 0
    level: list[Json] = [value]
    while level:
        nodes += len(level)
        characters += sum(len(item) for item in level if isinstance(item, str))
        objects = [item for item in level if isinstance(item, dict)]
        characters += sum(len(key) for item in objects for key in item)
        lists = [item for item in level if isinstance(item, list)]
        depth += bool(objects or lists)
        level = [*chain(*lists), *chain.from_iterable(item.values() for item in objects)]
    return Size(nodes, characters, depth)


Step: TypeAlias = "Callable[[Document, Allowance], Prepared]"
"""Takes a document that could be read. Never raises for what one may hold: that becomes a finding."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What is done to documents besides reading manifests."""

    decryption: Step | None = None
    """Before definitions are taken out of a manifest."""
    variables: Step | None = None
    """Afterwards."""


NO_STEPS: Final = Steps()


_WRAPPED: Final = (("spec", "flagspec"), ("spec", "featureflagspec"))
"""The paths at which a manifest contains its definitions, folded; decryption comes before unwrapping."""


def _is_shown(path: Path) -> bool:
    """Whether status and messages show the value at `path`: metadata of the set, or a listed flag's key."""
    # Names of any case are read, as flagd reads them.
    path = tuple(step.casefold() if isinstance(step, str) else step for step in path)
    path = path[2:] if path[:1] == ("items",) else path
    if path in _WRAPPED:
        return True
    path = path[2:] if path[:2] in _WRAPPED else path
    return path[:1] == ("metadata",) or (len(path) == 3 and path[0] == "flags" and path[2] == "key")


_SHOWN: Final = "this is shown in status: write it in clear, neither encrypted nor as a value of a Secret"


class Preparation:
    """Prepares the documents of one flag set, and remembers where values of Secrets are."""

    def __init__(self, steps: Steps = NO_STEPS, allowance: Allowance | None = None) -> None:
        self._steps = steps
        self._allowance = allowance or Allowance()
        self._keys: set[str] = set()
        self._all = False
        """Whether a secret is where all flags may depend on it, such as in `$evaluators`."""

    def documents(self, read: Document) -> tuple[Document, ...]:
        """Return the definitions that a document holds: decrypted, unwrapped, variables replaced."""
        document = self._allowance.pay(read)
        if not is_of_another_kind(document):
            document = self._apply_step(self._steps.decryption, document)
        parts = definitions(document)
        # The values of a text were not counted with those of its document.
        parts = tuple(self._allowance.pay(part) if part.part else part for part in parts)
        return tuple(self._apply_step(self._steps.variables, part) for part in parts)

    def _apply_step(self, step: Step | None, document: Document) -> Document:
        """Return the document after a step."""
        if step is None or document.value is ABSENT:
            return document
        document, secrets = step(document, self._allowance)
        refused = tuple(
            Finding(path, Severity.ERROR, "secret-place", _SHOWN) for path in secrets if _is_shown(path)
        )
        for path in secrets:
            key = flag_at(document.value, path)
            self._all = self._all or key is None
            self._keys.update(() if key is None else (key,))
        return replace(document, findings=(*document.findings, *refused)) if refused else document

    def add_moves(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Flags, (from, to), of which one was made of another."""
        for source, target in pairs:
            self._keys.update((target,) if source in self._keys else ())

    def with_secret_marks(self, flag_set: FlagSet) -> FlagSet:
        """Return the set, in which each flag that has a secret is marked."""
        if not self._keys and not self._all:
            return flag_set
        flags = {key: self._mark(flag) for key, flag in flag_set.flags.items()}
        others = tuple(map(self._mark, flag_set.others))
        return replace(flag_set, flags=MappingProxyType(flags), others=others)

    def reportable(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """The problems, without the words of those that may repeat a secret."""
        return withhold_messages(problems, lambda key: self._all or key in self._keys)

    def _mark(self, flag: Flag) -> Flag:
        if not self._all and flag.key not in self._keys:
            return flag
        return replace(flag, metadata=MappingProxyType({**flag.metadata, CONFIDENTIAL_KEY: True}))
