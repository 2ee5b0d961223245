"""What manifests of FeatureFlagConfiguration and FeatureFlag hold, in every version, as definitions. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from controller.api import configuration
from controller.api.historic import modernise
from controller.api.objects.meta import OPENFEATURE_GROUP
from controller.flagsets.preparing.preparation import Prepared
from evaluator.flags.syntax.document import read_document
from evaluator.flags.syntax.problems import Finding, Severity
from evaluator.flags.syntax.text import Lines

if TYPE_CHECKING:
    from controller.flagsets.preparing.preparation import Allowance
    from evaluator.flags.model import Path
    from evaluator.flags.syntax.problems import Document, Places

CODE: Final = "wrong-manifest"
_KINDS: Final = frozenset({configuration.KIND, configuration.FLAG_KIND})
_BLOCK: Final = "|"


@dataclass(frozen=True, slots=True)
class _Below:
    """Places of a part of a document."""

    outer: Places
    prefix: Path

    def locate(self, path: Path, *, key: bool = False) -> int:
        """Offset in the whole document."""
        return self.outer.locate((*self.prefix, *path), key=key)


@dataclass(frozen=True, slots=True)
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
        line, column = Lines(self.inner.text).place(offset)
        content = self.outer[self.start :].split("\n")
        meant = self.inner.text.split("\n")[line - 1]
        if line >= len(content) or not content[line].endswith(meant):
            return self.start
        indent = len(content[line]) - len(meant)
        return self.start + sum(len(each) + 1 for each in content[:line]) + indent + column - 1


def unwrapped(document: Document, allowance: Allowance) -> Prepared:
    """Return the definitions in a manifest, and any other document as it is. Implements `Step`."""
    del allowance
    top = document.value
    if not isinstance(top, dict) or "flags" in top or top.get("kind") not in _KINDS:
        return Prepared(document)
    if str(top.get("apiVersion")).partition("/")[0] != OPENFEATURE_GROUP:
        return Prepared(document)
    found = top.get("spec")
    spec: dict[str, Any] = found if isinstance(found, dict) else {}
    for name in ("flagSpec", "featureFlagSpec"):
        if isinstance(spec.get(name), dict):
            return Prepared(_part(document, spec[name], ("spec", name)))
    if isinstance(spec.get("featureFlagSpec"), str):
        return Prepared(_from_text(document, spec["featureFlagSpec"]))
    message = "the manifest holds no flags: there is neither spec.flagSpec nor spec.featureFlagSpec"
    missing = Finding(("spec",), Severity.ERROR, CODE, message)
    # As a document without problems of its own: this one says it all.
    return Prepared(replace(document, value={"flags": {}}, findings=(*document.findings, missing)))


def _part(document: Document, value: dict[str, Any], prefix: Path) -> Document:
    places = None if document.places is None else _Below(document.places, prefix)
    findings = tuple(
        replace(each, path=each.path[len(prefix) :] if each.path[: len(prefix)] == prefix else ())
        for each in document.findings
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
        replace(
            each,
            path=each.path if wrapped else ("flags", *each.path),
            offset=None if each.offset is None else places.outer_offset(each.offset),
        )
        for each in inner.findings
    ]
    findings += [Finding((), Severity.WARNING, CODE, each) for each in warnings]
    return replace(document, value=value, findings=(*document.findings, *findings), places=places)
