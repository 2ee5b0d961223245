"""Policies on changes of flags: expressions that each changed flag must meet, in the shape of Kubernetes'
ValidatingAdmissionPolicy (https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy).
Pure.

A file is strict, unlike definitions: a misspelt field would be a policy that allows everything. For the same
reason, a policy that cannot be evaluated counts as one that is not met.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, ConfigDict, Field

from controller.api.expression_syntax import LONGEST, ExpressionError, one_line_of
from controller.api.expression_syntax import require as require_expression
from controller.api.fields import Model, that, validate
from controller.api.parsing import InvalidTextError
from controller.runtime.expressions import Expression
from evaluator.flags.document import read_document
from evaluator.flags.model import ABSENT, CONFIDENTIAL_KEY
from evaluator.flags.problems import Problem, Severity
from evaluator.flags.text import Bounds, json_path, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from controller.authoring.plans import FlagPlan
    from evaluator.flags.model import Flag, FlagSet, Json, Path
    from evaluator.flags.problems import Document

POLICY_SUFFIXES: Final = (".yaml", ".yml", ".json")
"""What the name of a file of a policy ends with."""
POLICY_BOUNDS: Final = Bounds(document_bytes=256 * 1024)
"""Bounds of one file."""
MOST_POLICIES: Final = 100
"""Most policies that a change is judged by."""
FORM: Final = "policy-form"
"""The code of what is wrong with a file of a policy."""
NOT_MET: Final = "policy-unmet"
"""The code of a policy that a flag does not meet."""
_GIVEN: Final = frozenset({"old", "new", "plan", "author", "signer", "path", "time"})
_VARIABLES: Final = "variables"


def _uses(names: frozenset[str]) -> AfterValidator:
    return that(lambda text: require_expression(text, names))


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (LookupError, OSError, ValueError):
        raise InvalidTextError("must be a time zone such as Europe/Zurich") from None
    return name


_Text = Annotated[str, Field(min_length=1, max_length=LONGEST)]
_Given = Annotated[_Text, _uses(_GIVEN)]
_WithVariables = Annotated[_Text, _uses(_GIVEN | {_VARIABLES})]
_Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")]
_Label = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


class PolicyAction(StrEnum):
    """What a policy that is not met does."""

    DENY = "Deny"
    """Refuses the whole change."""
    HOLD = "Hold"
    """Holds the flag: it stays as it was."""
    WARN = "Warn"
    """Reports."""


class _Strict(Model):
    model_config = ConfigDict(extra="forbid")


class MatchCondition(_Strict):
    """Which changes a policy is about."""

    name: _Label
    """Its name."""
    expression: _Given
    """Whether the policy is about this change."""


class PolicyVariable(_Strict):
    """A value that validations use."""

    name: _Identifier
    """Its name, after `variables.`."""
    expression: _WithVariables
    """What it is; it may use variables before it."""


class PolicyValidation(_Strict):
    """What must hold."""

    expression: _WithVariables
    """What must be true of the change."""
    message: Annotated[str, Field(max_length=LONGEST)] = ""
    """What is wrong where it is not."""
    message_expression: _WithVariables | None = None
    """The same, as an expression that gives a text; it comes before `message`."""


class PolicySpec(_Strict):
    """What a file of a policy says."""

    name: _Label
    """Its name."""
    match_conditions: Annotated[tuple[MatchCondition, ...], Field(max_length=16)] = ()
    """All must hold for a change that the policy is about; without any it is about all."""
    variables: Annotated[tuple[PolicyVariable, ...], Field(max_length=32)] = ()
    """Values that validations use."""
    validations: Annotated[tuple[PolicyValidation, ...], Field(min_length=1, max_length=32)]
    """What must hold."""
    action: PolicyAction
    """What happens where it does not."""
    time_zone: Annotated[str, AfterValidator(_zone)] = "UTC"
    """Of `time`."""


class Circumstances(NamedTuple):
    """How a change comes."""

    now: datetime
    author: str = ""
    """Of the commit; empty where none is known."""
    signer: str = ""
    """Whose signature the commit has; empty where none was verified."""
    environments: Sequence[str] = ()
    """The layers of the flag set."""
    places: Mapping[str, tuple[str, int]] = {}
    """File and line of each flag's definition."""


class JudgedFlag(NamedTuple):
    """One flag, and what changes of it."""

    key: str
    old: Flag | None
    new: Flag | None
    plan: FlagPlan | None = None
    """What the change does to users; None: the flag does not change."""


@dataclass(frozen=True, slots=True)
class UnmetPolicy:
    """A policy that a flag does not meet."""

    policy: str
    action: PolicyAction
    flag: str
    message: str
    file: str
    line: int

    @property
    def problem(self) -> Problem:
        """The verdict at the definition of the flag, or at the policy if the flag has none."""
        severity = Severity.WARNING if self.action is PolicyAction.WARN else Severity.ERROR
        message = f"policy {self.policy} ({self.action}): {self.message}"
        return Problem(self.file, self.line, 0, severity, NOT_MET, message, flag=self.flag)


@dataclass(frozen=True, slots=True)
class FlagPolicy:
    """A policy that was read."""

    spec: PolicySpec
    document: Document
    _parsed: dict[str, Expression] = field(default_factory=dict)

    def verdicts(self, flag: JudgedFlag, around: Circumstances) -> Iterator[UnmetPolicy]:
        """Yield what the flag does not meet."""
        values = _values(flag, around, self.spec.time_zone)
        try:
            if not all(self._read(one.expression).holds(values) for one in self.spec.match_conditions):
                return
            known: dict[str, Json] = {}
            for variable in self.spec.variables:
                known[variable.name] = self._read(variable.expression).value({**values, _VARIABLES: known})
        except ExpressionError as error:
            yield self._verdict(flag, around, _not_evaluated(error), ())
            return
        values[_VARIABLES] = known
        for index, validation in enumerate(self.spec.validations):
            try:
                if self._read(validation.expression).holds(values):
                    continue
                message = self._message(validation, values)
            except ExpressionError as error:
                message = _not_evaluated(error)
            yield self._verdict(flag, around, message, (("validations", index)))

    def _read(self, text: str) -> Expression:
        if text not in self._parsed:
            self._parsed[text] = Expression.of(text, _GIVEN | {_VARIABLES})
        return self._parsed[text]

    def _message(self, validation: PolicyValidation, values: Mapping[str, Any]) -> str:
        otherwise = validation.message or f"this does not hold: {validation.expression}"
        if validation.message_expression is None:
            return one_line_of(otherwise)
        try:
            text = self._read(validation.message_expression).value(values)
        except ExpressionError:
            # As the API server does.
            text = None
        return one_line_of(text if isinstance(text, str) and text.strip() else otherwise)

    def _verdict(self, flag: JudgedFlag, around: Circumstances, message: str, path: Path) -> UnmetPolicy:
        here = (self.document.file, self.document.place(path)[0])
        file, line = around.places.get(flag.key, here)
        message = f"flag {quote(flag.key)}: {message}"
        return UnmetPolicy(self.spec.name, self.spec.action, flag.key, message, file, line)


class Policies(NamedTuple):
    """All policies of a repository, and what is wrong with their files."""

    policies: tuple[FlagPolicy, ...] = ()
    problems: tuple[Problem, ...] = ()

    def verdicts(self, flags: Iterable[JudgedFlag], around: Circumstances) -> Iterator[UnmetPolicy]:
        """Yield what each flag does not meet."""
        for flag in flags:
            for policy in self.policies:
                yield from policy.verdicts(flag, around)


def read_policies(files: Iterable[tuple[str, bytes]]) -> Policies:
    """Read files of policies, one policy each. Never raises."""
    policies: dict[str, FlagPolicy] = {}
    problems: list[Problem] = []
    for name, content in files:
        document = read_document(content, file=name, bounds=POLICY_BOUNDS)
        problems += (problem for problem in document.problems if problem.severity is not Severity.NOTE)
        if document.value is ABSENT:
            continue
        wrong = [(problem.field, problem.message) for problem in validate(PolicySpec, document.value)]
        problems += (_problem(document, where, message) for where, message in wrong)
        if wrong:
            continue
        policy = FlagPolicy(PolicySpec.model_validate(document.value), document)
        first = policies.setdefault(policy.spec.name, policy)
        if first is not policy:
            message = f"{quote(policy.spec.name)} is also the name of {first.document.file}; rename one"
            problems.append(_problem(document, "spec.name", message))
        elif len(policies) == MOST_POLICIES + 1:
            message = f"there are more than {MOST_POLICIES} policies; join some"
            problems.append(_problem(document, "spec", message))
    return Policies(tuple(policies.values())[:MOST_POLICIES], tuple(problems))


def changed_flags(before: FlagSet, after: FlagSet, plans: Iterable[FlagPlan]) -> Iterator[JudgedFlag]:
    """The flags that a change is about."""
    for plan in plans:
        yield JudgedFlag(plan.key, before.flags.get(plan.key), after.flags.get(plan.key), plan)


def standing_flags(flags: FlagSet) -> Iterator[JudgedFlag]:
    """All flags as they are, where no change is known: a policy for new flags finds none among them."""
    for key, flag in flags.flags.items():
        yield JudgedFlag(key, flag, flag)


def _problem(document: Document, where: str, message: str) -> Problem:
    path = tuple(int(part) if part.isdecimal() else part for part in where.split(".")[1:])
    line, column = document.place(path)
    said = f"{'.'.join(map(str, path))}: {message}" if path else message
    return Problem(document.file, line, column, Severity.ERROR, FORM, said, json_path(path))


def _not_evaluated(error: ExpressionError) -> str:
    return f"the policy cannot be evaluated: {error}"


def _values(flag: JudgedFlag, around: Circumstances, zone: str) -> dict[str, Any]:
    plan, moment = flag.plan, around.now.astimezone(ZoneInfo(zone))
    return {
        "old": _as_map(flag.old),
        "new": _as_map(flag.new),
        "plan": {
            "change": "Unchanged" if plan is None else plan.change,
            "least": _percent(plan.least if plan else None),
            "most": _percent(plan.most if plan else None),
            "rollout": (plan and plan.rollout) or "",
            "override": (plan and plan.override) or "",
            "environments": list(around.environments),
        },
        "author": around.author,
        "signer": around.signer,
        "path": around.places.get(flag.key, ("", 0))[0],
        "time": {
            "date": moment.date().isoformat(),
            "weekday": _WEEKDAYS[moment.weekday()],
            "hour": moment.hour,
            "minute": moment.minute,
        },
    }


def _percent(share: float | None) -> float:
    # Hashes are not divided evenly: a tenth of them is a little more or less than 10 %.
    return round(float(share or 0), 6)


_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
"""As `strftime` has them in English alone."""


def _as_map(flag: Flag | None) -> dict[str, Any]:
    """An empty map for a flag that there is not. Of a confidential flag, messages may say no value."""
    if flag is None:
        return {}
    known = {
        "key": flag.key,
        "state": flag.state.value,
        "defaultVariant": flag.default_variant or "",
        "metadata": dict(flag.metadata),
    }
    if CONFIDENTIAL_KEY in flag.metadata:
        return known
    rule = {} if flag.targeting is ABSENT else {"targeting": flag.targeting}
    return {**known, "variants": dict(flag.variants), **rule}
