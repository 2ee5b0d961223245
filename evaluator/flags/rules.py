"""What is wrong with a JSONLogic rule: a flag's `targeting`, or one body of `$evaluators`. Pure.

Reports whatever flagd's schema rejects, and what it overlooks (`tests/beyond_schema.py` says why).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from evaluator.flags.known_operators import (
    FILE,
    MOST_WEIGHT,
    OPERATORS,
    PREREQUISITE,
    REFERENCE,
    SCHEDULE,
    UNLISTED,
    prerequisite_of,
    reference_name,
    shorten,
)
from evaluator.flags.outcomes import BOOLEAN, NUMBER, kinds_of
from evaluator.flags.problems import Finding, Severity
from evaluator.flags.references import excess, measure
from evaluator.flags.schedules import ScheduleError, read_schedule
from evaluator.flags.suggestions import (
    FLAGD_VARIABLES,
    Suggestions,
    unknown_comparison,
    unknown_operator,
    unknown_reference,
    unknown_variable,
)
from evaluator.flags.versions import COMPARISONS, is_written_out, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evaluator.flags.model import Json, Path

NUMERIC_SEED: Final = "numeric-seed"
_NEVER_TEXT: Final = frozenset({NUMBER, BOOLEAN})


def check_rule(
    rule: Json,
    *,
    evaluators: Mapping[str, Json],
    suggestions: Suggestions | None = None,
    needs: set[str] | None = None,
) -> list[Finding]:
    """Return every problem of a rule in document order; `evaluators` are the shared rules by name. As flagd
    loads the rule, all are warnings or notes, but for errors about a rule beyond DEPTH levels or NODES
    parts, and about schedules. `suggestions`: those of the document; else the rule has its own. `needs` gets
    the keys of the flags that are prerequisites.
    """
    if beyond := excess(measure(rule)):
        return beyond
    walk = _Walk(evaluators, suggestions or Suggestions())
    problems = walk.run(rule)
    if needs is not None:
        needs |= walk.needs
    return problems


class _Walk:
    """One pass over one rule, with an explicit stack."""

    def __init__(self, evaluators: Mapping[str, Json], suggestions: Suggestions) -> None:
        self._evaluators = evaluators
        self._problems: list[Finding] = []
        self._pending: list[tuple[Json, Path]] = []
        self._suggestions = suggestions
        self.needs: set[str] = set()

    def run(self, rule: Json) -> list[Finding]:
        if not isinstance(rule, dict):
            self._report((), "not-a-rule", f"a rule must be an object, not {shorten(rule)}")
        elif reference_name(rule) is not None:
            self._misplaced_reference((), "the whole of a rule")
        if rule != {}:
            self._pending.append((rule, ()))
        while self._pending:
            value, path = self._pending.pop()
            mark = len(self._pending)
            self._visit(value, path)
            self._pending[mark:] = reversed(self._pending[mark:])
        return self._problems

    def _visit(self, value: Json, path: Path) -> None:
        if isinstance(value, list):
            self._later(value, path)
        elif isinstance(value, dict):
            self._object(value, path)

    def _object(self, value: dict[str, Json], path: Path) -> None:
        if not value:
            self._report(path, "empty-rule", "an empty object is not a rule; write null or remove it")
            return
        if FILE in value:
            message = (
                "a list in a file is read only as the second argument of `in` in `$evaluators`, by a FlagSet "
                "or flagstaff up; write it there, and refer to it by $ref"
            )
            self._report(path, "unread-list", message)
            return
        if len(value) > 1:
            keys = ", ".join(shorten(key) for key in list(value)[:3])
            message = (
                f"a rule has one operator; this has {len(value)} ({keys}…), so none is evaluated; nest them"
            )
            self._report(path, "several-operators", message)
            return
        operator, arguments = next(iter(value.items()))
        here = (*path, operator)
        if special := _SPECIAL.get(operator):
            special(self, arguments, here)
        else:
            self._plain(operator, arguments, here)

    def _plain(self, operator: str, arguments: Json, path: Path) -> None:
        if operator in UNLISTED:
            message = f'"{operator}" is not an operator that flagd documents; not every provider has it'
            self._report(path, "unlisted-operator", message)
        elif operator not in OPERATORS:
            self._report(path, "unknown-operator", partial(unknown_operator, operator, self._suggestions))
        elif operator not in {"!", "!!"} or isinstance(arguments, list):
            self._counts(operator, arguments, path)
        self._pending.append((arguments, path))

    def _reference(self, name: Json, path: Path) -> None:
        if not isinstance(name, str):
            self._report(path, "bad-argument", f"$ref takes the name of an evaluator, not {shorten(name)}")
        elif name not in self._evaluators:
            message = partial(unknown_reference, name, self._evaluators, self._suggestions)
            self._report(path, "unknown-reference", message)

    def _prerequisite(self, arguments: Json, path: Path) -> None:
        use = prerequisite_of({PREREQUISITE: arguments})
        if use is not None:
            self.needs.add(use[0])
        else:
            message = (
                f'flag takes the key of a flag and a variant: ["new-cart", "on"], not {shorten(arguments)}'
            )
            self._report(path, "bad-argument", message)

    def _schedule(self, arguments: Json, path: Path) -> None:
        # Those that name a time are written out before.
        try:
            read_schedule(arguments)
        except ScheduleError as error:
            self._problems.append(Finding(path, Severity.ERROR, "bad-schedule", str(error)))

    def _var(self, arguments: Json, path: Path) -> None:
        if isinstance(arguments, list):
            self._counts("var", arguments, path)
        first = arguments[0] if isinstance(arguments, list) and arguments else arguments
        place = (*path, 0) if first is not arguments else path
        if isinstance(first, str) and first.startswith("$flagd.") and first not in FLAGD_VARIABLES:
            self._report(place, "bad-flagd-variable", partial(unknown_variable, first))
        elif isinstance(first, bool) or (isinstance(first, list) and first is not arguments):
            self._report(place, "bad-argument", f"var takes a name, not {shorten(first)}")
        self._pending.append((arguments, path))

    def _check_missing(self, arguments: Json, path: Path) -> None:
        if not isinstance(arguments, list):
            message = f'missing takes a list of names: ["name"], not {shorten(arguments)}'
            self._report(path, "bad-argument", message)
            return
        for at, name in enumerate(arguments):
            if not isinstance(name, str):
                self._report((*path, at), "bad-argument", f"missing takes names, not {shorten(name)}")
        self._later(arguments, path)

    def _missing_some(self, arguments: Json, path: Path) -> None:
        if not self._counts("missing_some", arguments, path):
            return
        least, names = arguments
        if isinstance(least, bool) or not isinstance(least, int | float):
            message = f"missing_some needs a number first, not {shorten(least)}"
            self._report((*path, 0), "bad-argument", message)
        if isinstance(names, list):
            self._check_missing(names, (*path, 1))
        else:
            message = f"missing_some takes a list of names, not {shorten(names)}"
            self._report((*path, 1), "bad-argument", message)

    def _text_comparison(self, arguments: Json, path: Path) -> None:
        operator = str(path[-1])
        if self._counts(operator, arguments, path):
            for at, value in enumerate(arguments):
                if reference_name(value) is not None:
                    self._misplaced_reference((*path, at), f"an argument of {operator}")
                elif not isinstance(value, str | dict):
                    message = f"{operator} compares text, not {shorten(value)}; quote it"
                    self._report((*path, at), "bad-argument", message)
        self._pending.append((arguments, path))

    def _sem_ver(self, arguments: Json, path: Path) -> None:
        if self._counts("sem_ver", arguments, path):
            for at in (0, 2):
                self._version(arguments[at], (*path, at))
            comparison = arguments[1]
            if not isinstance(comparison, str) or comparison not in COMPARISONS:
                self._report((*path, 1), "bad-argument", partial(unknown_comparison, comparison))
        self._pending.append((arguments, path))

    def _version(self, value: Json, path: Path) -> None:
        # Objects without an operator, and with several, are reported where every object is.
        if isinstance(value, dict) and (len(value) != 1 or "var" in value):
            return
        if isinstance(value, dict) or (version_of(value) and not is_written_out(str(value))):
            message = (
                f"flagd reads {shorten(value)} as a version, but its schema and some providers take only a "
                'var, or text with all three numbers such as "1.2.0"'
            )
            self._note(path, "lax-version", message)
        elif not isinstance(value, str | int | float) or isinstance(value, bool):
            self._report(path, "bad-argument", f"sem_ver takes a version or a var, not {shorten(value)}")
        elif version_of(value) is None:
            message = f'{shorten(value)} is not a version, so this is never true; write one such as "1.2.0"'
            self._report(path, "bad-argument", message)

    def _in(self, arguments: Json, path: Path) -> None:
        if self._counts("in", arguments, path) and isinstance(arguments[0], list):
            message = (
                "a list is never found: in a text it ends in PARSE_ERROR, so that applications get their own "
                "default, and in a list the result is false; write the value first, then the list or the text"
            )
            self._note((*path, 0), "list-needle", message)
        self._pending.append((arguments, path))

    def _fractional(self, arguments: Json, path: Path) -> None:
        if not self._counts("fractional", arguments, path):
            self._pending.append((arguments, path))
            return
        start = 0
        if not isinstance(arguments[0], list):
            start = 1
            self._check_bucketing(arguments[0], (*path, 0))
        if start == len(arguments):
            self._report(path, "bad-bucket", 'fractional has no buckets; add some: ["variant", weight]')
        total = 0
        for at, bucket in enumerate(arguments[start:], start):
            total += self._bucket(bucket, (*path, at))
        if total > MOST_WEIGHT:
            message = f"the weights add up to more than {MOST_WEIGHT}; scale them down"
            self._report(path, "weight-too-large", message)

    def _check_bucketing(self, value: Json, path: Path) -> None:
        self._pending.append((value, path))
        if not isinstance(value, dict):
            message = f'fractional buckets by a rule such as {{"var": …}}, not by {shorten(value)}'
            self._report(path, "bad-bucket", message)
            return
        if reference_name(value) is not None:
            self._misplaced_reference(path, "the value that fractional buckets by")
        if kinds_of(value, self._evaluators) <= _NEVER_TEXT:
            message = (
                "this value is never text, and fractional (bucketing v2, the default) divides users by text "
                "alone: it gives null to everybody, which serves the default variant; make it text: "
                '{"cat": [{…}]}'
            )
            self._note(path, NUMERIC_SEED, message)

    def _bucket(self, bucket: Json, path: Path) -> int:
        """Check one `[variant, weight]`; return the weight, 0 where it is a rule or wrong."""
        if not isinstance(bucket, list) or not 1 <= len(bucket) <= 2:
            found = f"one of {len(bucket)} parts" if isinstance(bucket, list) else shorten(bucket)
            message = f'a bucket is ["variant", weight], not {found}'
            self._report(path, "bad-bucket", message)
            self._pending.append((bucket, path))
            return 0
        self._pending.append((bucket, path))
        if len(bucket) == 1:
            return 1
        weight = bucket[1]
        if reference_name(weight) is not None:
            self._misplaced_reference((*path, 1), "a weight")
        elif not isinstance(weight, dict):
            if _is_weight(weight):
                return int(weight)
            message = f"a weight is a whole number from 0 up, not {shorten(weight)}"
            self._report((*path, 1), "bad-weight", message)
        return 0

    def _counts(self, operator: str, arguments: Json, path: Path) -> bool:
        """Check the number of arguments; False if they are no list, too few or too many."""
        arity = OPERATORS[operator]
        if not isinstance(arguments, list):
            message = f'"{operator}" takes a list of {arity} arguments, not {shorten(arguments)}'
        elif not arity.admits(len(arguments)):
            message = f'"{operator}" takes {arity} arguments, not {len(arguments)}'
        else:
            return True
        self._report(path, "wrong-arity", message)
        return False

    def _later(self, values: list[Json], path: Path) -> None:
        self._pending += [
            (value, (*path, at)) for at, value in enumerate(values) if isinstance(value, (dict, list))
        ]

    def _misplaced_reference(self, path: Path, place: str) -> None:
        message = f"it works, but flagd's schema does not allow a $ref as {place}; write the rule here"
        self._note((*path, REFERENCE), "reference-position", message)

    def _report(self, path: Path, code: str, message: str | Callable[[], str]) -> None:
        self._problems.append(Finding(path, Severity.WARNING, code, message))

    def _note(self, path: Path, code: str, message: str) -> None:
        self._problems.append(Finding(path, Severity.NOTE, code, message))


# Functions, not bound methods: a bound method would form a cycle that only a full collection frees.
_SPECIAL: Final[Mapping[str, Callable[[_Walk, Json, Path], None]]] = {
    REFERENCE: _Walk._reference,
    PREREQUISITE: _Walk._prerequisite,
    SCHEDULE: _Walk._schedule,
    "var": _Walk._var,
    "missing": _Walk._check_missing,
    "missing_some": _Walk._missing_some,
    "starts_with": _Walk._text_comparison,
    "ends_with": _Walk._text_comparison,
    "sem_ver": _Walk._sem_ver,
    "in": _Walk._in,
    "fractional": _Walk._fractional,
}


def _is_weight(value: Json) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value >= 0 and (isinstance(value, int) or value.is_integer())
