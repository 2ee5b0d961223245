"""Judges changes of flags by policies, the files of a repository and FlagPolicies. Pure.

A policy that cannot be read or evaluated counts as one that is not met. Models and the library of expressions
take long to load, and are loaded where there is a policy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from controller.runtime.plain_text import one_line
from evaluator.flags.diff import diff
from evaluator.flags.document import read_document
from evaluator.flags.model import ABSENT, CONFIDENTIAL_KEY, FlagSet
from evaluator.flags.problems import Problem, Severity
from evaluator.flags.text import Bounds, json_path, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from controller.api.expression_syntax import ExpressionError
    from controller.api.flagpolicy import PolicyAction, PolicyRules, PolicyValidation
    from controller.authoring.plans import FlagPlan
    from controller.runtime.expressions import Expression
    from evaluator.flags.model import Flag, Json
    from evaluator.flags.problems import Document

POLICY_FOLDER: Final = "policies"
"""The folder at the top of a repository whose files may be policies."""
_ENDINGS: Final = (".flagpolicy.yaml", ".flagpolicy.yml", ".flagpolicy.json")
"""What the name of a file ends with that is a policy wherever it is."""
POLICY_BOUNDS: Final = Bounds(document_bytes=256 * 1024)
"""Bounds of one file."""
MOST_POLICIES: Final = 100
"""Most policies in the files of a repository."""
MOST_JUDGEMENTS: Final = 20_000
"""Most flags that change, times policies: judging so many takes some ten seconds."""
FORM: Final = "policy-form"
"""The code of what is wrong with a file of a policy."""
NOT_MET: Final = "policy-unmet"
"""The code of a policy that a flag does not meet."""
NOT_JUDGED: Final = "policy-unknown"
"""The code of a policy that cannot be judged without the signer."""
TOO_MANY: Final = "policy-bound"
"""The code of a change with too many flags to be judged."""
_MEASURES: Final = re.compile(r"\b(least|most)\b")
_WORD: Final = re.compile(r"\w+")
_VARIABLES: Final = "variables"
_SIGNER: Final = "signer"
_NO_SIGNER: Final = (
    "not judged: it asks for the signer, and no signature was verified (plan and lint do with --verify-key)"
)
_OWN_FIELDS: Final = frozenset({"action", "matchConditions", "validations"})
_MESSAGE: Final = 300
"""Characters."""


class Circumstances(NamedTuple):
    """How a change comes."""

    now: datetime
    author: str = ""
    """Of the commit; empty where none is known."""
    signer: str | None = ""
    """Whose signature the commit has; empty where none was verified, None where nobody tried."""
    rollouts: Sequence[tuple[str, Sequence[str]]] = ()
    """The names of the FlagRollouts of the flag set, with the patterns of their flags, the oldest first."""
    overrides: Mapping[str, str] = {}
    """The names of FlagOverrides in force, by flag."""
    before: FlagSet | None = None
    """What is served now."""
    given: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """The names and specs of the FlagPolicies that judge the flag set."""
    environments: Sequence[str] = ()
    """The layers of the flag set."""
    places: Mapping[str, tuple[str, int]] = {}
    """File and line of each flag's definition."""
    kept: Mapping[str, str] = {}
    """Why flags that the change deletes stay, by key."""


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
    unknown: bool = False
    """Whether it may be met: it asks for a signer that nobody verified."""

    @property
    def refuses(self) -> bool:
        """Whether it refuses the whole change."""
        return self.action == "Deny" and not self.unknown

    @property
    def problem(self) -> Problem:
        """The verdict at the definition of the flag, or at the policy if the flag has none."""
        severity = Severity.WARNING if self.action == "Warn" else Severity.ERROR
        message = f"policy {self.policy} ({self.action}): {self.message}"
        code = NOT_MET
        if self.unknown:
            severity, code = Severity.NOTE, NOT_JUDGED
        return Problem(self.file, self.line, 0, severity, code, message, flag=self.flag)


@dataclass(frozen=True, slots=True)
class FlagPolicy:
    """A policy as far as it could be read."""

    name: str
    action: PolicyAction
    rules: PolicyRules | None
    """None: it cannot be read, so that no change meets it."""
    fault: str = ""
    """Why it cannot be read."""
    place: tuple[str, int] = ("", 0)
    """File and line."""
    _parsed: dict[str, tuple[Expression, frozenset[str]]] = field(default_factory=dict)
    """By its text, each expression and the names that it uses: values that none uses cost time."""

    def verdicts(self, flag: JudgedFlag, around: Circumstances) -> Iterator[UnmetPolicy]:
        """Yield what the flag does not meet."""
        if self.rules is None:
            yield self._verdict(flag, around, f"the policy cannot be read: {self.fault}")
            return
        from controller.api.expression_syntax import ExpressionError  # noqa: PLC0415 - see above

        values = _values(flag, around, self.rules.time_zone)
        failed: UnmetPolicy | None = None
        for condition in self.rules.match_conditions:
            try:
                if not self._holds(condition.expression, values):
                    return
            except ExpressionError as error:
                failed = failed or self._failure(flag, around, condition.expression, error)
        known = values[_VARIABLES] = {}
        for variable in self.rules.variables:
            try:
                known[variable.name] = self._value(variable.expression, values)
            except ExpressionError as error:
                verdict = self._failure(flag, around, variable.expression, error)
                if not verdict.unknown:
                    # Else a validation may hold without it.
                    failed = failed or verdict
        if failed is not None:
            yield failed
            return
        for validation in self.rules.validations:
            try:
                if self._holds(validation.expression, values):
                    continue
                verdict = self._verdict(flag, around, self._message(validation, values))
            except ExpressionError as error:
                verdict = self._failure(flag, around, validation.expression, error)
            yield verdict

    def _holds(self, text: str, values: Mapping[str, Any]) -> bool:
        expression, names = self._read(text)
        return expression.holds({name: values[name] for name in names & values.keys()})

    def _value(self, text: str, values: Mapping[str, Any]) -> Any:
        expression, names = self._read(text)
        return expression.value({name: values[name] for name in names & values.keys()})

    def _read(self, text: str) -> tuple[Expression, frozenset[str]]:
        if text not in self._parsed:
            from controller.api.flagpolicy import GIVEN  # noqa: PLC0415 - see above
            from controller.runtime.expressions import Expression  # noqa: PLC0415 - see above

            names = GIVEN | {_VARIABLES}
            self._parsed[text] = Expression.of(text, names), names & {*_WORD.findall(text)}
        return self._parsed[text]

    def _message(self, validation: PolicyValidation, values: Mapping[str, Any]) -> str:
        from controller.api.expression_syntax import ExpressionError  # noqa: PLC0415 - see above

        otherwise = validation.message or f"this does not hold: {validation.expression}"
        if validation.message_expression is None:
            return one_line(otherwise, _MESSAGE)
        try:
            text = self._value(validation.message_expression, values)
        except ExpressionError:
            # As the API server does.
            text = None
        return one_line(text if isinstance(text, str) and text.strip() else otherwise, _MESSAGE)

    def _failure(
        self, flag: JudgedFlag, around: Circumstances, text: str, error: ExpressionError
    ) -> UnmetPolicy:
        """The verdict where an expression cannot be evaluated."""
        if around.signer is None and self._asks_for_signer(text):
            return replace(self._verdict(flag, around, _NO_SIGNER), unknown=True)
        return self._verdict(flag, around, f"the policy cannot be evaluated: {error}")

    def _asks_for_signer(self, text: str) -> bool:
        names = self._read(text)[1]
        variables = self.rules.variables if self.rules and _VARIABLES in names else ()
        return _SIGNER in names or any(_SIGNER in self._read(one.expression)[1] for one in variables)

    def _verdict(self, flag: JudgedFlag, around: Circumstances, message: str) -> UnmetPolicy:
        file, line = around.places.get(flag.key, self.place)
        return UnmetPolicy(self.name, self.action, flag.key, f"flag {quote(flag.key)}: {message}", file, line)


class TooManyJudgementsError(Exception):
    """A change has too many flags to be judged by all policies."""


class Policies(NamedTuple):
    """All policies of a repository, and what is wrong with their files."""

    policies: tuple[FlagPolicy, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def measure(self) -> bool:
        """Whether one asks how many users a change concerns."""
        rules = filter(None, (policy.rules for policy in self.policies))
        return any(_MEASURES.search(text) for each in rules for text in each.expressions)

    def verdicts(self, flags: Iterable[JudgedFlag], around: Circumstances) -> Iterator[UnmetPolicy]:
        """Yield what each flag does not meet."""
        for flag in flags:
            for policy in self.policies:
                yield from policy.verdicts(flag, around)


NO_POLICIES: Final = Policies()


def is_policy_file(name: str) -> bool:
    """Whether a file holds a policy, by its name."""
    return name.endswith(_ENDINGS)


def read_policies(files: Iterable[tuple[str, bytes]], possible: Iterable[tuple[str, bytes]] = ()) -> Policies:
    """Read files of policies, one policy each; `possible` ones may be other products'. Never raises."""
    documents = [read_document(content, file=name, bounds=POLICY_BOUNDS) for name, content in files]
    others = (read_document(content, file=name, bounds=POLICY_BOUNDS) for name, content in possible)
    documents += (document for document in others if _looks_like_policy(document.value))
    if not documents:
        return NO_POLICIES
    from controller.api.fields import validate  # noqa: PLC0415 - see above
    from controller.api.flagpolicy import PolicyFile  # noqa: PLC0415 - see above

    policies: dict[str, FlagPolicy] = {}
    problems: list[Problem] = []
    for document in documents:
        problems += (problem for problem in document.problems if problem.severity is not Severity.NOTE)
        if document.value is ABSENT:
            continue
        wrong = [(problem.field, problem.message) for problem in validate(PolicyFile, document.value)]
        problems += (_problem(document, where, message) for where, message in wrong)
        if wrong:
            continue
        read = PolicyFile.model_validate(document.value)
        place = document.file, document.place(("validations",), key=True)[0]
        policy = FlagPolicy(read.name, read.action, read, place=place)
        first = policies.setdefault(policy.name, policy)
        if first is not policy:
            message = f"{quote(policy.name)} is also the name of {first.place[0]}; rename one"
            problems.append(_problem(document, "spec.name", message))
        elif len(policies) == MOST_POLICIES + 1:
            message = f"there are more than {MOST_POLICIES} policies; join some"
            problems.append(_problem(document, "spec", message))
    return Policies(tuple(policies.values())[:MOST_POLICIES], tuple(problems))


def given_policies(specs: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[FlagPolicy, ...]:
    """The policies of FlagPolicies, by their names and specs. One that cannot be read is met by no change."""
    if not specs:
        return ()
    from controller.api.fields import validate  # noqa: PLC0415 - see above
    from controller.api.flagpolicy import FlagPolicySpec, PolicyAction  # noqa: PLC0415 - see above

    found = []
    for name, spec in specs:
        if problems := validate(FlagPolicySpec, spec):
            action = spec.get("action")
            known = PolicyAction(action) if action in set(PolicyAction) else PolicyAction.DENY
            found.append(FlagPolicy(name, known, None, one_line(str(problems[0]), _MESSAGE)))
        else:
            read = FlagPolicySpec.model_validate(spec)
            found.append(FlagPolicy(name, read.action, read))
    return tuple(found)


def may_refuse(specs: Iterable[tuple[str, Mapping[str, Any]]]) -> bool:
    """Whether one of these FlagPolicies does more than warn."""
    return any(spec.get("action") != "Warn" for _, spec in specs)


def judge(
    policies: Policies, after: FlagSet, around: Circumstances, plans: Sequence[FlagPlan] | None = None
) -> Iterator[UnmetPolicy]:
    """What the change from what is served now to `after` does not meet. `plans`: those of the change, where
    they are made already. Raises TooManyJudgementsError.
    """
    if not policies.policies:
        return
    from controller.authoring.plans import Beside, plan_flags, rollouts_by_flag  # noqa: PLC0415 - see above

    before = around.before or FlagSet()
    changed = diff(before, after)
    if len(changed.keys) * len(policies.policies) > MOST_JUDGEMENTS:
        raise TooManyJudgementsError(
            f"{len(changed.keys)} flags change, and {len(policies.policies)} policies judge each: more than "
            f"{MOST_JUDGEMENTS} judgements; change fewer at once, or make several flag sets"
        )
    if plans is None:
        rollouts = rollouts_by_flag(around.rollouts, before, after)
        beside = Beside(rollouts=rollouts, overrides=around.overrides)
        plans = plan_flags(before, after, int(around.now.timestamp()), beside, measure=policies.measure)
    yield from policies.verdicts(changed_flags(before, after, plans), around)


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


def _looks_like_policy(value: Json) -> bool:
    return isinstance(value, dict) and "apiVersion" not in value and not _OWN_FIELDS.isdisjoint(value)


def _values(flag: JudgedFlag, around: Circumstances, zone: str) -> dict[str, Any]:
    plan, moment = flag.plan, around.now.astimezone(ZoneInfo(zone))
    return ({} if around.signer is None else {_SIGNER: around.signer}) | {
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
