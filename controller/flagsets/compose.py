"""Decides from a revision's tree and the last good flag set what the next flag set is, and where its flags
came from. Pure.
"""

from __future__ import annotations

import functools
import json
import unicodedata
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.authoring.flag_test_runs import run_flag_tests
from controller.authoring.policies import NO_POLICIES, TOO_MANY, TooManyJudgementsError, given_policies, judge
from controller.flagsets.deletions import CODE
from controller.flagsets.layers import (
    DEFAULT_PATHS,
    LayersRefused,
    definition_places,
    read_layers,
    read_own_policies,
    read_tests,
)
from controller.flagsets.patches import Patch, apply_patches
from controller.flagsets.preparation import NO_STEPS, Preparation, Steps
from controller.runtime.plain_text import one_line
from evaluator.flags.accept import Accepted, Policy, Refused, accept
from evaluator.flags.canonical import digest
from evaluator.flags.diff import Diff, diff, keep_unchanged
from evaluator.flags.merge import merge
from evaluator.flags.model import (
    AUTHOR_KEY,
    BUCKETING_KEY,
    COMMITTED_AT_KEY,
    DIGEST_KEY,
    EMPTY,
    HELD_FROM_KEY,
    PREREQUISITES_KEY,
    PROVENANCE_PREFIX,
    REVISION_KEY,
    VERIFIED_BY_KEY,
    Bucketing,
    FlagSet,
    Json,
    Path,
    Scalar,
)
from evaluator.flags.problems import Document, Finding, Piece, Problem, Severity, problems_of
from evaluator.flags.text import DEFAULT, json_path, quote

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from controller.authoring.flag_test_files import FlagTests
    from controller.authoring.plans import FlagPlan
    from controller.authoring.policies import Circumstances, Policies
    from evaluator.flags.layer import Layer
    from evaluator.flags.merge import Parsed


PLACES: Final = (REVISION_KEY, AUTHOR_KEY, COMMITTED_AT_KEY, VERIFIED_BY_KEY, DIGEST_KEY)

_MAX_TEXT: Final = 1024
"""Characters."""


class ProvenanceDetail(StrEnum):
    """How much metadata of a commit is delivered with its flags."""

    FULL = "full"
    COMMIT = "commit"
    """The revision and its time; neither the author's name nor address."""


def provenance_of(
    revision: str, author: str = "", committed_at: str = "", verified_by: str = ""
) -> dict[str, Scalar]:
    """The set metadata of `revision` (`main@sha1:…`): author (`Name <mail>`), time (RFC 3339), signer."""
    known = {
        REVISION_KEY: revision,
        AUTHOR_KEY: author,
        COMMITTED_AT_KEY: committed_at,
        VERIFIED_BY_KEY: verified_by,
    }
    # Commits hold what bytes they like; metadata travels with every answer, as Unicode.
    return {key: text[:_MAX_TEXT].encode(errors="replace").decode() for key, text in known.items() if text}


def without_author(flag_set: FlagSet) -> FlagSet:
    """The set without the names of people."""
    names = {AUTHOR_KEY, VERIFIED_BY_KEY}
    if names.isdisjoint(flag_set.metadata):
        return flag_set
    return replace(flag_set, metadata=_without(flag_set.metadata, names))


def without_forgeries(flag_set: FlagSet, layers: Sequence[Layer]) -> tuple[FlagSet, list[Problem]]:
    """The set without keys that we alone write, and a warning for each, in the uppermost of `layers`."""
    pinned = flag_set.metadata.get(BUCKETING_KEY) in set(Bucketing)
    in_set = [key for key in _reserved_keys(flag_set.metadata) if key != BUCKETING_KEY or not pinned]
    problems = [_problem(layers, None, key) for key in in_set]
    flags = dict(flag_set.flags)
    for name, flag in flag_set.flags.items():
        if forged := _reserved_keys(flag.metadata):
            flags[name] = replace(flag, metadata=_without(flag.metadata, forged))
            problems += [_problem(layers, name, key) for key in forged]
    if not problems:
        return flag_set, []
    metadata = _without(flag_set.metadata, in_set)
    return replace(flag_set, flags=MappingProxyType(flags), metadata=metadata), problems


def _reserved_keys(metadata: Mapping[str, Scalar]) -> list[str]:
    return sorted(key for key in metadata if key.startswith(PROVENANCE_PREFIX))


def _without(metadata: Mapping[str, Scalar], names: Collection[str]) -> Mapping[str, Scalar]:
    return MappingProxyType({key: value for key, value in metadata.items() if key not in names})


def _problem(layers: Sequence[Layer], flag: str | None, key: str) -> Problem:
    document, path = _place(layers, flag, key)
    line, column = document.place(path, key=True)
    message = f'"{key}" is written by Flagstaff alone and is left out; take it out of the metadata'
    if key == BUCKETING_KEY:
        message = f'"{key}" is left out; write "v2" or "v3", and in the set\'s metadata only'
    return Problem(
        document.file, line, column, Severity.WARNING, "reserved-key", message, json_path(path), flag
    )  # fmt: skip


def _place(layers: Sequence[Layer], flag: str | None, key: str) -> tuple[Document, Path]:
    for layer in reversed(layers):
        if flag is None:
            if key in layer.metadata:
                piece = layer.metadata[key]
                return piece.document, piece.path
        elif flag in layer.flags:
            piece = layer.flags[flag]
            if isinstance(piece.value, dict) and key in (piece.value.get("metadata") or {}):
                return piece.document, (*piece.path, "metadata", key)
    raise LookupError(f"no layer has {key}")


_FORMAT: Final = "Cf"
"""Unicode's category of characters that are not seen, such as a zero-width space."""


def look_alikes(layers: Sequence[Layer], keys: Iterable[str]) -> tuple[Problem, ...]:
    """Warn of each of `keys` beyond ASCII that looks like another, with the places of both."""
    known = sorted(keys, key=lambda key: (not key.isascii(), key))
    if not known or known[-1].isascii():
        return ()
    pieces = _first_pieces(layers)
    firsts: dict[str, str] = {}
    findings = []
    for key in known:
        first = firsts.setdefault(_skeleton(key), key)
        if first != key:
            findings.append(_finding(key, first, pieces))
    return problems_of(findings, DEFAULT)


def _finding(key: str, other: str, pieces: Mapping[str, Piece]) -> Finding:
    piece = pieces[key]
    text = functools.partial(_message, key, other, pieces[other])
    return Finding(piece.path, Severity.WARNING, "look-alike", text, piece.document, key, at_key=True)


def _message(key: str, other: str, piece: Piece) -> str:
    beyond = dict.fromkeys(
        character for character in key if not character.isascii() and character not in other
    )
    names = ", ".join(
        f"U+{ord(character):04X} {unicodedata.name(character, '')}".strip() for character in [*beyond][:3]
    )
    return (
        f"the flag {quote(key)} looks like {quote(other)} ({piece.place(key=True)}) and is another one"
        f"{f': it has {names}' if names else ''}; rename one of them"
    )


def _first_pieces(layers: Sequence[Layer]) -> dict[str, Piece]:
    by_key: dict[str, Piece] = {}
    for layer in layers:
        for key, piece in layer.flags.items():
            by_key.setdefault(key, piece)
    return by_key


def _skeleton(text: str) -> str:
    """Return the same text for all texts that look the same."""
    seen = (
        character
        for character in unicodedata.normalize("NFD", text)
        if unicodedata.category(character) != _FORMAT
    )
    table = _table()
    return unicodedata.normalize("NFD", "".join(_prototype(character, table) for character in seen))


def _prototype(character: str, table: Mapping[str, tuple[str, ...]]) -> str:
    """Return one character for all that look alike, which the table lists beside each other."""
    others = table.get(character, ())
    if len(others) != 1:
        return character
    [other] = others
    if len(other) > 1 or len(table.get(other, ())) > 1:
        return other
    return min(character, other)


@functools.cache
def _table() -> dict[str, tuple[str, ...]]:
    # A megabyte, which few need.
    from confusable_homoglyphs.confusables import confusables_data  # noqa: PLC0415

    # Characters that are written from right to left are between marks.
    return {
        name.strip("\u200e"): tuple(entry["c"].strip("\u200e") for entry in others)
        for name, others in confusables_data.items()
    }


_PLACE: Final = attrgetter("file", "line", "column")
_FLAG_SET_ID: Final = "flagSetId"
_NOTHING: Final = Diff((), MappingProxyType({}), ())
FEWEST: Final = 5
"""Fewer removed flags are never held, unless they are all that there were."""
PART: Final = 4
"""More than one in so many removed flags is held."""
_NAMED: Final = 5
_KEY_CHARACTERS: Final = 64


class FailurePolicy(StrEnum):
    """What a problem holds back."""

    PER_FLAG = "PerFlag"
    """The flag that has it; its siblings move on."""
    ATOMIC = "Atomic"
    """The whole revision."""


class RequiredTests(NamedTuple):
    """What becomes of flags whose tests fail."""

    holds: bool
    """Whether they are held; else the failures are reported alone."""
    min_coverage: float | None = None
    """The least percentage of variants and branches that tests reach."""


@dataclass(frozen=True, slots=True)
class Composition:
    """The result of composing a revision."""

    flag_set: FlagSet
    """The flag set to serve: `previous` itself if nothing changed; empty if there is no good one."""
    digest: str
    """The digest of `flag_set`: `sha256:<hex>`."""
    problems: tuple[Problem, ...]
    """Sorted by place."""
    held: tuple[str, ...]
    """Keys of the flags that stay at their last good definition, sorted."""
    changed: Diff
    """The changes from `previous` (or nothing) to `flag_set`."""
    accepted: bool
    """False: the revision was refused as a whole."""
    missing: tuple[str, ...] = ()
    """Keys of bad flags that have no last good definition and so are not served, sorted."""
    judged: bool = False
    """Whether policies judged the change."""
    written_out: Mapping[str, Json] = field(default_factory=lambda: EMPTY)
    """Shared rules of the revision with prerequisites, these written out; flags have them in their rules."""

    @property
    def tested(self) -> FlagSet:
        """The set with all rules that tests may name."""
        return _with_rules(self.flag_set, self.written_out)


def compose(  # noqa: PLR0913 - one decision, all of it named at the call
    tree: Mapping[str, bytes],
    paths: Sequence[str],
    *,
    provenance: Mapping[str, Scalar],
    previous: FlagSet | None,
    policy: FailurePolicy = FailurePolicy.PER_FLAG,
    lenient: bool = False,
    default_flag_set_id: str | None = None,
    bucketing: Bucketing = Bucketing.V2,
    skipped: Collection[str] = (),
    steps: Steps = NO_STEPS,
    patches: Sequence[Patch] = (),
    tests: RequiredTests | None = None,
    others: Sequence[FlagSet] = (),
    around: Circumstances | None = None,
) -> Composition:
    """Read the layers `paths` (base first) of `tree`, merge them, and hold back what is bad.

    Unless `lenient`, warnings count as errors. `skipped` is what the tree lists and does not hold, as
    Fetched.skipped has it. `bucketing` pins a generation other than flagd's own, v2, where the set pins none.
    Each document goes through the `steps`, the merged layers through the `patches`. The flags that would be
    served go through the `tests`, if these are asked for, and what changes of them is judged by policies if
    `around` says how it comes. Rules may need flags of the `others`.
    Never raises for what a tree may hold.
    """
    preparation = Preparation(steps)
    try:
        layers = read_layers(tree, paths or DEFAULT_PATHS, skipped, preparation.documents)
    except LayersRefused as refusal:
        return refuse_revision(previous, refusal.problems)
    layers, moved = apply_patches(layers, patches)
    preparation.add_moves(moved)
    parsed = merge(layers, bucketing=bucketing, others=others)
    flag_set, forged = without_forgeries(parsed.flag_set, layers)
    flag_set = keep_unchanged(_with_prerequisites(flag_set, parsed.needs), previous)
    parsed = replace(
        parsed,
        flag_set=_with_set_metadata(preparation.with_secret_marks(flag_set), default_flag_set_id, bucketing),
        problems=tuple(sorted((*parsed.problems, *forged), key=_PLACE)) if forged else parsed.problems,
        warned=parsed.warned | {problem.flag for problem in forged if problem.flag is not None},
    )
    rules = Policy(warnings=not lenient, whole=policy is FailurePolicy.ATOMIC)
    judged = accept(parsed, previous, rules)
    failing: tuple[Problem, ...] = ()
    if tests is not None and isinstance(judged, Accepted):
        failing = _failing_tests(
            judged,
            parsed.written_out,
            read_tests(tree, paths or DEFAULT_PATHS, skipped),
            tests,
            bucketing,
            layers,
        )
        if failing and tests.holds:
            parsed = _with_failures(parsed, failing)
            judged, failing = accept(parsed, previous, rules), ()
    policies = NO_POLICIES
    if around is not None and isinstance(judged, Accepted):
        own = read_own_policies(tree, paths or DEFAULT_PATHS, skipped)
        # A repository that takes up policies has flags that do not meet them.
        kept = () if around.before is None else own.policies
        policies = own._replace(policies=(*given_policies(around.given), *kept))
        unmet = [
            *unmet_policies(judged.desired, policies, _placed(around, paths, layers)),
            *_kept_flags(around.kept),
        ]
        failing += tuple(problem for problem in unmet if problem.severity is not Severity.ERROR)
        if errors := [problem for problem in unmet if problem.severity is Severity.ERROR]:
            judged = accept(_with_failures(parsed, errors), previous, rules)
    if isinstance(judged, Refused):
        return replace(
            refuse_revision(previous, preparation.reportable(judged.problems)), judged=bool(policies.policies)
        )
    flag_set = _with_provenance(judged.flag_set, judged.digest, provenance, previous, judged.held)
    return Composition(
        flag_set=flag_set,
        digest=judged.digest,
        problems=preparation.reportable(sorted((*judged.problems, *failing), key=_PLACE)),
        held=judged.held,
        changed=_NOTHING if flag_set is previous else diff(previous or FlagSet(), flag_set),
        accepted=True,
        missing=judged.missing,
        judged=bool(policies.policies),
        written_out=parsed.written_out,
    )


def _with_failures(parsed: Parsed, failures: Sequence[Problem]) -> Parsed:
    """The set, in which flags are bad that fail for another reason than their definitions."""
    return replace(
        parsed,
        problems=tuple(sorted((*parsed.problems, *failures), key=_PLACE)),
        bad=parsed.bad | {problem.flag for problem in failures if problem.flag is not None},
        # What concerns no single flag, such as a file that cannot be read, may be about any.
        whole_bad=True,
    )


def _kept_flags(messages: Mapping[str, str]) -> list[Problem]:
    return [Problem("", 0, 0, Severity.ERROR, CODE, message, flag=key) for key, message in messages.items()]


def _placed(around: Circumstances, paths: Sequence[str], layers: Sequence[Layer]) -> Circumstances:
    return around._replace(environments=paths or DEFAULT_PATHS, places=definition_places(layers))


def unmet_policies(
    flag_set: FlagSet, policies: Policies, around: Circumstances, plans: Sequence[FlagPlan] | None = None
) -> list[Problem]:
    """What is wrong with the policies, and what a change does not meet; see `judge`. What refuses it is about
    no single flag.
    """
    problems = list(policies.problems)
    try:
        for verdict in judge(policies, flag_set, around, plans):
            problem = verdict.problem
            problems.append(replace(problem, flag=None) if verdict.refuses else problem)
    except TooManyJudgementsError as error:
        problems.append(Problem("", 0, 0, Severity.ERROR, TOO_MANY, str(error)))
    return problems


def _with_prerequisites(flag_set: FlagSet, needs: Mapping[str, Sequence[str]]) -> FlagSet:
    """The set, in which each flag whose rule had prerequisites names them."""
    if not needs:
        return flag_set
    flags = dict(flag_set.flags)
    for key, names in needs.items():
        mark = json.dumps(names, ensure_ascii=False)
        metadata = MappingProxyType({**flags[key].metadata, PREREQUISITES_KEY: mark})
        flags[key] = replace(flags[key], metadata=metadata)
    return replace(flag_set, flags=MappingProxyType(flags))


def _with_rules(flag_set: FlagSet, rules: Mapping[str, Json]) -> FlagSet:
    return replace(flag_set, evaluators={**flag_set.evaluators, **rules}) if rules else flag_set


def _failing_tests(
    judged: Accepted,
    written_out: Mapping[str, Json],
    found: FlagTests,
    tests: RequiredTests,
    bucketing: Bucketing,
    layers: Sequence[Layer],
) -> tuple[Problem, ...]:
    """What the tests of a revision find: errors where they hold flags, else warnings. Those about flags that
    are held for another reason do not run.
    """
    if not found.cases and not found.problems and tests.min_coverage is None:
        return ()
    skip = frozenset((*judged.held, *judged.missing))
    desired = _with_rules(judged.desired, written_out)
    report = run_flag_tests(desired, found.cases, bucketing, skip).with_users(layers)
    severity = Severity.ERROR if tests.holds else Severity.WARNING
    problems = [replace(problem, severity=severity) for problem in found.problems]
    problems += (problem for outcome in report.failures for problem in outcome.problems(severity))
    if too_little := report.coverage.lacking(tests.min_coverage):
        problems.append(Problem("", 0, 0, severity, "test-coverage", too_little))
    return tuple(problems)


def _with_set_metadata(flag_set: FlagSet, flag_set_id: str | None, bucketing: Bucketing) -> FlagSet:
    defaults: dict[str, Scalar] = {}
    if flag_set_id is not None:
        defaults[_FLAG_SET_ID] = flag_set_id
    if bucketing is not Bucketing.V2:
        defaults[BUCKETING_KEY] = bucketing.value
    if not defaults.keys() - flag_set.metadata.keys():
        return flag_set
    return replace(flag_set, metadata=MappingProxyType({**defaults, **flag_set.metadata}))


def refuse_revision(previous: FlagSet | None, problems: Iterable[Problem]) -> Composition:
    """A revision of which nothing is delivered: `previous` stays, whole."""
    flag_set = previous if previous is not None else FlagSet()
    return Composition(
        flag_set=flag_set,
        digest=digest(flag_set),
        problems=tuple(problems),
        held=tuple(sorted(flag_set.flags)),
        changed=_NOTHING,
        accepted=False,
    )


def _with_provenance(
    flag_set: FlagSet,
    content: str,
    provenance: Mapping[str, Scalar],
    previous: FlagSet | None,
    held: Sequence[str],
) -> FlagSet:
    """The set with its provenance, which names the revision that last changed `content`, its digest."""
    if previous is None or REVISION_KEY not in previous.metadata or digest(previous) != content:
        places = {**provenance, DIGEST_KEY: content}
    elif {key for key, flag in previous.flags.items() if HELD_FROM_KEY in flag.metadata} <= set(held):
        return previous
    else:
        # A flag recovered to what it was held at: it must no longer say that it is held.
        places = {key: previous.metadata[key] for key in PLACES if key in previous.metadata}
    metadata = MappingProxyType({**flag_set.metadata, **places})
    return replace(flag_set, metadata=metadata)


@dataclass(frozen=True, slots=True)
class BulkRemoval:
    """Flags that a revision would remove."""

    keys: tuple[str, ...]
    """Sorted; never empty."""
    total: int
    """Flags that are served now."""

    def __str__(self) -> str:
        """`removes 8 of 10 flags: banner, checkout, …`, on one line however keys are written."""
        named = ", ".join(one_line(key, _KEY_CHARACTERS) for key in self.keys[:_NAMED])
        more = ", …" if len(self.keys) > _NAMED else ""
        if self.total == 1:
            return f"removes the only flag: {named}"
        amount = f"{len(self.keys)} of {self.total}" if len(self.keys) < self.total else f"all {self.total}"
        return f"removes {amount} flags: {named}{more}"


def bulk_removal(before: FlagSet | None, after: FlagSet) -> BulkRemoval | None:
    """Return the removed flags if they are all, or five and more than a quarter; None for fewer."""
    if before is None or not before.flags:
        return None
    gone, total = before.flags.keys() - after.flags.keys(), len(before.flags)
    if len(gone) == total or (len(gone) >= FEWEST and len(gone) * PART > total):
        return BulkRemoval(tuple(sorted(gone)), total)
    return None
