"""Merges layers to one flag set. A whole document is a single layer, so every flag set is made here. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from evaluator.flags.known_operators import shorten
from evaluator.flags.layer import EVALUATORS, OTHER_FORMAT, Assembled, Layer, read_layer, removes_nothing
from evaluator.flags.model import ABSENT, BUCKETING_KEY, EMPTY, Bucketing, Flag, FlagSet, Json, Scalar, State
from evaluator.flags.outcomes import OutcomeReader, check_reach
from evaluator.flags.prerequisites import Prerequisites, is_shared_list, tainted
from evaluator.flags.problems import Finding, Piece, Problem, Severity, problem_of, problems_of
from evaluator.flags.references import Expander, check_cycles, measure
from evaluator.flags.rules import NUMERIC_SEED, check_rule
from evaluator.flags.schedules import write_schedules
from evaluator.flags.shapes import UNKNOWN_FIELD, check_base, check_shape, metadata_message, scalar, unusual
from evaluator.flags.suggestions import Suggestions
from evaluator.flags.text import DEFAULT, Bounds, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_NEED_ALL: Final = frozenset({
    "missing-base", "missing-state", "missing-variants", "removes-nothing", "unknown-outcome",
    "unknown-prerequisite", "unknown-reference", "unknown-variant",
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
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: EMPTY)
    """The keys of the flags in the set whose rules had prerequisites, and those of the prerequisites."""
    written_out: Mapping[str, Json] = field(default_factory=lambda: EMPTY)
    """Shared rules with prerequisites, these written out: for tests, since flags have them in their rules."""

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
    nothing = _check_empty(layers, notes)
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


def _check_empty(layers: Sequence[Layer], notes: Iterable[Finding]) -> tuple[Problem, ...]:
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
    telling = (
        note for note in notes if note.document is not None and (note.path or note.code == OTHER_FORMAT)
    )
    finding = next(telling, Finding((), Severity.ERROR, "", _NO_FLAGS, reads[0]))
    return (problem_of(replace(finding, severity=Severity.ERROR, code="missing-flags")),)


def _once_a_file(notes: Iterable[Finding]) -> list[Finding]:
    """Leave out notes about a field that the same file has in an earlier flag, too."""
    first: dict[object, Finding] = {}
    for note in notes:
        field = (id(note.document), note.path[-1]) if note.code == UNKNOWN_FIELD else id(note)
        first.setdefault(field, note)
    return list(first.values())


_SET_TEXTS: Final = ("flagSetId", "version")
"""Set metadata that must be text by the schema."""


def parse(data: bytes, *, file: str, bounds: Bounds = DEFAULT) -> Parsed:
    """Read flagd's definitions, JSON or YAML by the extension of `file`. Never raises."""
    return merge([read_layer([(file, data)], bounds=bounds)], document=True, bounds=bounds)


def merge(
    layers: Sequence[Layer],
    *,
    document: bool = False,
    bounds: Bounds = DEFAULT,
    bucketing: Bucketing = Bucketing.V2,
    others: Sequence[FlagSet] = (),
) -> Parsed:
    """Lay each layer over those before it and judge the result. `state`, `defaultVariant`, `targeting`, each
    variant and each evaluator are replaced whole, metadata key by key; null removes, but is a value in a
    whole `document`. A problem is placed in the layer that caused it. Prerequisites are written out, for the
    generation of `fractional` that the set pins, else for `bucketing`; those that the set has not are flags
    of the first of the `others` that has them.
    """
    return _Merging(layers, document=document, bounds=bounds).result(bucketing, others)


class _Merging:
    def __init__(self, layers: Sequence[Layer], *, document: bool, bounds: Bounds) -> None:
        self._layers = layers
        self._document = document
        self._bounds = bounds
        self._findings: list[Finding] = []
        self._bad: set[str] = set()
        self._removed_evaluators: dict[str, Piece] = {}
        self._suggestions = Suggestions()
        reads = [read for layer in layers for read in layer.documents]
        self._order = {id(read): index for index, read in enumerate(reads)}
        self._dependent: dict[str, Assembled] = {}
        """Flags whose own rules have prerequisites."""
        self._tainted: frozenset[str] = frozenset()
        """Evaluators with prerequisites."""
        self._without_base: dict[str, tuple[Piece, tuple[str, ...]]] = {}
        """Flags whose first piece is above the first layer: that piece, and the keys of the layers below."""

    def result(self, bucketing: Bucketing, needed: Sequence[FlagSet]) -> Parsed:
        flags = self._assemble()
        self._evaluators = self._merge_evaluators()
        self._bodies = bodies = {name: piece.value for name, piece in self._evaluators.items()}
        self._expander = Expander(bodies)
        self._outcomes = OutcomeReader(bodies)
        sound = self._check_evaluators(bodies)
        good = {key: flag for key, flag in map(self._check, flags) if flag is not None}
        metadata = self._merge_metadata()
        good, others = self._divide(good, metadata.get("flagSetId"))
        needs: dict[str, tuple[str, ...]] = {}
        written_out: Mapping[str, Json] = EMPTY
        if self._dependent or self._tainted:
            generation = metadata.get(BUCKETING_KEY, bucketing)
            needs, written_out = self._write_out(good, sound, needed, v3=generation == Bucketing.V3)
            sound = {name: body for name, body in sound.items() if name not in self._tainted}
        flag_set = FlagSet(good, sound, metadata, others)
        parsed = report(flag_set, self._findings, self._layers, self._bad, self._bounds)
        return replace(parsed, needs=needs, written_out=written_out) if needs or written_out else parsed

    def _write_out(
        self, good: dict[str, Flag], sound: Mapping[str, Json], needed: Sequence[FlagSet], *, v3: bool
    ) -> tuple[dict[str, tuple[str, ...]], dict[str, Json]]:
        """Write the prerequisites of `good` flags out, and return which each has, and the shared rules that
        have prerequisites, these written out.
        """
        # A reference to a rule with a problem stays: whoever accepts the set holds the flags that have one.
        # So does one to a rule with a long list, of which each flag would have a copy.
        clear = {
            name: body
            for name, body in sound.items()
            if name in self._tainted or (name not in self._doubted_evaluators and not is_shared_list(body))
        }
        faulty = {
            finding.flag: Severity.WARNING
            for finding in self._findings
            if finding.flag is not None and finding.severity is Severity.WARNING
        }
        faulty |= dict.fromkeys(self._bad, Severity.ERROR)
        prerequisites = Prerequisites(good, Expander(clear), faulty, v3=v3, others=needed)
        needs = {}
        for key, expanded in prerequisites.expand([key for key in self._dependent if key in good]):
            flag = self._dependent[key]
            flag.findings.clear()
            for problem in expanded.findings:
                flag.find(problem.severity, problem.code, problem.text, "targeting", below=problem.path)
            self._findings += flag.findings
            if expanded.flag is None:
                self._bad.add(key)
                del good[key]
            else:
                good[key], needs[key] = expanded.flag, expanded.needs
        # No key of a flag begins so.
        rules = {
            f"\0{name}": Flag(f"\0{name}", State.ENABLED, {}, None, {"$ref": name})
            for name in self._tainted
            if name in sound
        }
        prerequisites = Prerequisites({**good, **rules}, Expander(clear), faulty, v3=v3, others=needed)
        expanded_rules = prerequisites.expand([*rules])
        return needs, {key[1:]: each.flag.targeting for key, each in expanded_rules if each.flag is not None}

    def _assemble(self) -> list[Assembled]:
        flags: dict[str, Assembled] = {}
        for index, layer in enumerate(self._layers):
            if index:
                self._find_without_base(layer, flags)
            self._findings += layer.findings
            spoiled = {
                finding.flag
                for finding in layer.findings
                if finding.flag is not None and finding.severity is Severity.ERROR
            }
            self._bad |= spoiled
            for key, piece in layer.flags.items():
                self._lay(flags, key, piece, spoiled)
        self._refuse_archived(flags)
        return list(flags.values())

    def _refuse_archived(self, flags: Mapping[str, Assembled]) -> None:
        """Report each flag whose key an earlier flag had: old code may still ask for that one."""
        archived = {key: piece for layer in self._layers for key, piece in layer.archived.items()}
        for key in archived.keys() & flags.keys():
            place = archived[key].place(key=True)
            message = (
                f"the key {quote(key)} is archived ({place}); choose another one, or take that entry out"
            )
            flags[key].find(Severity.ERROR, "archived-key", message, at_key=True, index=0)

    def _find_without_base(self, layer: Layer, lower: Mapping[str, Assembled]) -> None:
        keys = tuple(lower)
        for key in layer.flags.keys() - lower.keys() - self._bad:
            self._without_base[key] = layer.flags[key], keys

    def _lay(self, flags: dict[str, Assembled], key: str, piece: Piece, spoiled: set[str]) -> None:
        if piece.value is None and not self._document:
            self._without_base.pop(key, None)
            if flags.pop(key, None) is None and key not in self._bad:
                self._removes_nothing(piece, key, flags, key)
            if key not in spoiled:
                # A flag that was removed on purpose needs no last good definition.
                self._bad.discard(key)
            return
        if piece.value is None:
            # flagd reads null as a flag whose fields are all missing.
            piece = piece._replace(value={})
        if not isinstance(piece.value, dict):
            message = f"a flag must be an object, not {shorten(piece.value)}"
            self._findings.append(piece.finding(Severity.ERROR, "not-a-flag", message, key))
            self._bad.add(key)
            return
        flag = flags.get(key)
        if flag is None:
            flag = flags[key] = Assembled(key, suggestions=self._suggestions)
        flag.lay(piece, nulls_remove=not self._document)

    def _divide(
        self, flags: dict[str, Flag], inherited: Scalar | None
    ) -> tuple[dict[str, Flag], tuple[Flag, ...]]:
        """Return (each key's flag of the last flag set id, as flagd serves without selector; all others)."""
        pieces = [piece for layer in self._layers for piece in layer.others]
        if not pieces:
            return flags, ()
        if not self._document:
            self._refuse_others(pieces)
        by_key = {key: [flags[key]] if key in flags else [] for key, _ in pieces}
        for key, piece in pieces:
            spare: dict[str, Assembled] = {}
            self._lay(spare, key, piece, set())
            by_key[key] += [flag for _, flag in map(self._check, spare.values()) if flag is not None]
        outer = inherited if isinstance(inherited, str) else None
        others: list[Flag] = []
        for key, of_key in sorted(by_key.items()):
            flags.pop(key, None)
            if key not in self._bad:
                *rest, flags[key] = sorted(of_key, key=lambda flag: flag.flag_set_id_in(outer))
                others += rest
        return flags, tuple(others)

    def _refuse_others(self, pieces: list[tuple[str, Piece]]) -> None:
        for key, piece in pieces:
            message = (
                f"this list has the flag {quote(key)} for two flag sets, and layers make one flag set; "
                "give each flag set files of its own"
            )
            self._bad.add(key)
            self._findings.append(piece.finding(Severity.ERROR, "duplicate-flag", message, key, at_key=True))

    def _check(self, flag: Assembled) -> tuple[str, Flag | None]:
        checked = check_shape(flag)
        if checked.targeting is not ABSENT:
            self._check_targeting(flag, checked)
        if flag.key in self._without_base:
            check_base(flag, *self._without_base[flag.key])
        if flag.findings:
            self._findings += flag.findings
            if any(finding.severity is Severity.ERROR for finding in flag.findings):
                self._bad.add(flag.key)
        return flag.key, None if flag.key in self._bad else checked

    def _check_targeting(self, flag: Assembled, checked: Flag) -> None:
        if checked.targeting is None:
            message = "`targeting` is null: a rule that never matches; the default variant is served"
            flag.note("null-section", message, "targeting")
            return
        needs: set[str] = set()
        rule, problems = checked.targeting, self._rule_problems(checked.targeting, needs)
        if needs or (self._tainted and any(name in self._tainted for name, _, _ in measure(rule).references)):
            self._dependent[flag.key] = flag
        if not any(problem.severity is Severity.ERROR for problem in problems):
            check_reach(flag, checked, self._outcomes)
        for problem in problems:
            name = _unknown_reference(rule, problem)
            removal = self._removed_evaluators.get(name) if name is not None else None
            index = flag.index("targeting")
            if removal is not None and self._later(removal, flag.pieces[index]):
                text = partial(_of_removal, problem, flag.key)
                finding = removal.finding(problem.severity, problem.code, text, flag.key, at_key=True)
                flag.findings.append(finding)
            else:
                severity, code = problem.severity, problem.code
                flag.find(severity, code, problem.text, "targeting", below=problem.path, index=index)

    def _later(self, one: Piece, other: Piece) -> bool:
        return self._order[id(one.document)] > self._order[id(other.document)]

    def _rule_problems(self, rule: Json, needs: set[str]) -> list[Finding]:
        problems = check_rule(rule, evaluators=self._bodies, suggestions=self._suggestions, needs=needs)
        if self._evaluators and all(problem.severity is not Severity.ERROR for problem in problems):
            problems += self._expander.check(rule)
        return problems

    def _merge_evaluators(self) -> dict[str, Piece]:
        merged: dict[str, Piece] = {}
        for layer in self._layers:
            for name, piece in layer.evaluators.items():
                self._lay_entry(merged, name, piece)
                if name in merged:
                    self._removed_evaluators.pop(name, None)
                else:
                    self._removed_evaluators[name] = piece
        return {name: piece._replace(value=write_schedules(piece.value)) for name, piece in merged.items()}

    def _lay_entry(self, merged: dict[str, Piece], key: str, piece: Piece) -> None:
        if piece.value is not None or self._document:
            merged[key] = piece
        elif merged.pop(key, None) is None:
            self._removes_nothing(piece, None, merged, key)

    def _removes_nothing(self, piece: Piece, flag: str | None, lower: Iterable[str], key: str) -> None:
        near = self._suggestions.similar_word(key, lower)
        self._findings.append(removes_nothing(piece, flag, near))

    def _check_evaluators(self, bodies: Mapping[str, Json]) -> dict[str, Json]:
        """Return the evaluators without an error; a reference to any other counts as unknown."""
        before = len(self._findings)
        needs: set[str] = set()
        for name, piece in self._evaluators.items():
            if unusual(name):
                message = "an evaluator's name must not be empty or have a line break; rename it"
                self._findings.append(piece.finding(Severity.WARNING, "unusual-name", message))
            if piece.value == {}:
                message = "the evaluator is empty, which flagd refuses; write a rule or remove it"
                self._findings.append(piece.finding(Severity.ERROR, "empty-evaluator", message))
                continue
            # Its expansion is judged in each flag that uses it, and affects only that flag.
            for problem in check_rule(
                piece.value, evaluators=bodies, suggestions=self._suggestions, needs=needs
            ):
                self._find(piece, problem)
        for name, problem in check_cycles(bodies):
            self._find(self._evaluators[name], problem)
        if needs:
            self._tainted = tainted(bodies)
        found = self._findings[before:]
        self._doubted_evaluators = {
            finding.path[1] for finding in found if finding.severity is not Severity.NOTE
        }
        in_documents = (one for one in self._findings[:before] if one.path[:1] == (EVALUATORS,))
        broken = {one.path[1] for one in (*found, *in_documents) if one.spoils_all and len(one.path) > 1}
        return {name: body for name, body in bodies.items() if name not in broken}

    def _merge_metadata(self) -> dict[str, Scalar]:
        merged: dict[str, Piece] = {}
        for layer in self._layers:
            for key, piece in layer.metadata.items():
                self._lay_entry(merged, key, piece)
        metadata: dict[str, Scalar] = {}
        for key, piece in merged.items():
            if not scalar(piece.value):
                message = metadata_message(piece.value)
                self._findings.append(piece.finding(Severity.WARNING, "metadata-type", message))
                continue
            metadata[key] = piece.value
            if key in _SET_TEXTS and not isinstance(piece.value, str):
                message = f"`{key}` must be text, not {shorten(piece.value)}; put it in quotes"
                self._findings.append(piece.finding(Severity.WARNING, "set-metadata-type", message))
        return metadata

    def _find(self, piece: Piece, problem: Finding) -> None:
        """Record a problem of the rule in the piece."""
        finding = piece.finding(problem.severity, problem.code, problem.text, below=problem.path)
        self._findings.append(finding)


def _of_removal(problem: Finding, key: str) -> str:
    return f"{problem.message}; it is removed here, and the flag {quote(key)} refers to it"


def _unknown_reference(rule: Json, problem: Finding) -> str | None:
    """Return the unknown name of an `unknown-reference`."""
    if problem.code != "unknown-reference":
        return None
    for step in problem.path:
        rule = rule[step]
    return rule if isinstance(rule, str) else None
