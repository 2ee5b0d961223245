"""What merging layers results in: the good flags, and those findings that hold of the set as a whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from evaluator.flags.checking.rules import NUMERIC_SEED
from evaluator.flags.checking.shapes import UNKNOWN_FIELD
from evaluator.flags.model import BUCKETING_KEY, Bucketing
from evaluator.flags.syntax.problems import Finding, Problem, Severity, problem_of, problems_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from evaluator.flags.layers.layer import Layer
    from evaluator.flags.model import FlagSet, Scalar
    from evaluator.flags.syntax.text import Bounds

_NEED_ALL: Final = frozenset({
    "missing-base", "missing-state", "missing-variants", "removes-nothing", "unknown-outcome",
    "unknown-reference", "unknown-variant",
})  # fmt: skip
"""Problems that may be mere consequences of a document that could not be read."""
_NO_FLAGS: Final = "no document holds flags; add one, if only `flags: {}`"


@dataclass(frozen=True)
class Parsed:
    """The good flags of a set, and all problems."""

    flag_set: FlagSet
    problems: tuple[Problem, ...] = ()
    """Problems in order of their places."""
    bad: frozenset[str] = frozenset()
    """Keys of flags with an error; none of them is in the set."""
    warned: frozenset[str] = frozenset()
    """Keys of flags in the set with a warning."""
    whole_bad: bool = False
    """Whether an error concerns no single flag: absent flags may only be unread, so hold all."""
    notes: tuple[Problem, ...] = ()
    """Remarks that are no failures, by place; not among `problems`."""

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Problems with which flagd refuses to load or serve."""
        return tuple(problem for problem in self.problems if problem.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Problems with which flagd still loads."""
        return tuple(problem for problem in self.problems if problem.severity is Severity.WARNING)


def report(
    flag_set: FlagSet, findings: Sequence[Finding], layers: Sequence[Layer], bad: set[str], bounds: Bounds
) -> Parsed:
    """Return the set with its problems, in order of their places. `bad`: keys of flags with an error."""
    unread = any(read.unreadable for layer in layers for read in layer.documents)
    counted = [finding for finding in findings if _counts(finding, flag_set.metadata, unread=unread)]
    notes = [finding for finding in counted if finding.severity is Severity.NOTE]
    faults = [finding for finding in counted if finding.severity is not Severity.NOTE]
    nothing = _check_empty(layers, findings)
    warned = {finding.flag for finding in faults if finding.flag is not None}
    return Parsed(
        flag_set=flag_set,
        problems=(*nothing, *problems_of(faults, bounds)),
        bad=frozenset(bad),
        warned=frozenset(warned & flag_set.flags.keys()),
        whole_bad=bool(nothing) or any(finding.spoils_all for finding in faults),
        notes=problems_of(_once_a_file(notes), bounds),
    )


def _counts(finding: Finding, metadata: Mapping[str, Scalar], *, unread: bool) -> bool:
    """Return whether the finding holds of the set as a whole."""
    if unread:
        return finding.severity is not Severity.NOTE and finding.code not in _NEED_ALL
    return finding.code != NUMERIC_SEED or metadata.get(BUCKETING_KEY) != Bucketing.V3


def _check_empty(layers: Sequence[Layer], findings: Iterable[Finding]) -> tuple[Problem, ...]:
    """Return the error about layers without documents or without flags: treated as unread."""
    reads = [read for layer in layers for read in layer.documents]
    if any(layer.has_flags for layer in layers) or any(r.findings for r in reads if r.unreadable):
        return ()
    if not reads:
        message = "there is no document to read flags from"
        return (Problem("", 0, 0, Severity.ERROR, "no-document", message),)
    read = next((read for read in reads if not read.passed_over), None)
    if read is not None:
        message = '`flags` is missing; add "flags": {}'
        finding = Finding((), Severity.ERROR, "missing-flags", message, read)
        return (problem_of(finding),) if isinstance(read.value, dict) else ()
    # Of all that is passed over, the place that holds flags in a form that is not read says most.
    notes = [note for note in findings if note.document is not None and note.path]
    finding = notes[0] if notes else Finding((), Severity.ERROR, "", _NO_FLAGS, reads[0])
    return (problem_of(replace(finding, severity=Severity.ERROR, code="missing-flags")),)


def _once_a_file(notes: Iterable[Finding]) -> list[Finding]:
    """Leave out notes about a field that the same file has in an earlier flag, too."""
    first: dict[object, Finding] = {}
    for note in notes:
        field = (id(note.document), note.path[-1]) if note.code == UNKNOWN_FIELD else id(note)
        first.setdefault(field, note)
    return list(first.values())
