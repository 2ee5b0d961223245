"""What is done to each document between reading and merging, and which flags hold values of Secrets since.
Pure.

Such flags are marked in their metadata. Status, Events, logs and lists of changes show a digest of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from controller.delivery.problem_text import withhold_messages
from controller.flagsets.preparing.manifests import definitions, is_of_another_kind
from evaluator.flags.layers.layer import flag_at
from evaluator.flags.model import ABSENT, CONFIDENTIAL_KEY
from evaluator.flags.syntax.problems import Finding, Severity
from evaluator.flags.syntax.text import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from evaluator.flags.model import Flag, FlagSet, Json, Path
    from evaluator.flags.syntax.problems import Document, Problem


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
        return tuple(self._apply_step(self._steps.variables, part) for part in definitions(document))

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
