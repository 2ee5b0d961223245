"""What `flagstaff describe` says of an object. Pure but for the terminal's colours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagrollout
from controller.api.kinds import status_of
from controller.cli.events import lines
from controller.cli.history import render
from controller.cli.object_rows import object_row
from controller.cli.output import Column, table
from controller.cli.printing import printable, short
from controller.cli.rollout_view import candidate_sections, history_lines
from controller.delivery.actions import Who
from controller.delivery.flag_state import held_text
from controller.delivery.reach import ReachTarget, reach
from controller.delivery.rollout_state import rollout_state
from controller.delivery.set_reading import artifact_of
from controller.delivery.set_state import SetState, Verdict
from controller.delivery.state_words import advice, laggard_text, layer_text, problem_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from controller.api.meta import Resource
    from controller.api.status import Condition


_PEOPLE: Final = frozenset({Who.PERSON, Who.COMMIT})
_NO_FLAGS: Final = ("flagSpec", "featureFlagSpec")
"""Fields that hold flags; `get flags` lists these."""
_CONDITIONS: Final = (
    Column("TYPE", lambda condition: condition.type),
    Column("STATUS", lambda condition: condition.status),
    Column("SINCE", lambda condition: condition.since or "-"),
    Column("REASON", lambda condition: condition.reason),
    Column("MESSAGE", lambda condition: condition.message),
)


def describe_object(
    resource: Resource, events: Sequence[Mapping[str, Any]], state: SetState | None = None
) -> str:
    """The object as sections of lines; `events` are those about it, as `as_event` has them, and `state` is
    that of its flag set.
    """
    return "\n".join(f"{section.rstrip()}\n" for section in _sections(resource, events, state))


def _sections(
    resource: Resource, events: Sequence[Mapping[str, Any]], state: SetState | None
) -> Iterator[str]:
    status = status_of(resource)
    yield _facts(resource, state)
    if state is not None:
        yield from state_sections(state)
    if resource.spec:
        yield _section("Spec", _spec(resource.spec))
    if status.conditions:
        yield _table_section("Conditions", _conditions(status.conditions))
    if state is not None and state.history:
        yield _table_section("History", render(state.history, "table").splitlines())
    if resource.key.kind == flagrollout.KIND:
        yield from _rollout_sections(resource)
    yield _section("Events", [text for event in events for text in lines(event, colours=False)] or ["none"])


def state_sections(state: SetState) -> Iterator[str]:
    """What is served of a flag set, to whom, and what to do."""
    newest = state.newest.revision
    if newest:
        reached = reach(state, ReachTarget(newest, allow_none=True))
        words = reached.level.name.lower().replace("_", " ")
        if state.newest.verdict is Verdict.PARTLY:
            words = "applied in part"
        yield _section("Newest revision", [f"{short(newest)}: {words}", short(reached.message)])
    sections = {
        "Withheld from users": [short(layer_text(layer)) for layer in state.withheld],
        "Problems": [problem_text(problem) for problem in state.newest.problems],
        "Held flags": [short(held_text(flag, state.newest.problems)) for flag in state.held],
        "Evaluators that lag": [short(laggard_text(laggard)) for laggard in state.served.laggards],
        "To do": [
            advice(wait.actions[0], state.where)[0]
            for wait in state.waits
            if wait.actions and wait.who in _PEOPLE
        ],
    }
    yield from (_section(title, lines_) for title, lines_ in sections.items() if lines_)


def _rollout_sections(rollout: Resource) -> Iterator[str]:
    state = rollout_state(rollout)
    for candidate in state.candidates:
        yield from candidate_sections(candidate, state.failure_limit)
    asked = [
        f"{check.name}: {check.query}" for one in state.candidates for check in one.metrics if check.query
    ]
    if asked:
        yield _section("Queries", asked)
    if earlier := history_lines(state):
        yield _table_section("Earlier rollouts", earlier)


def _facts(resource: Resource, state: SetState | None) -> str:
    row, artifact = object_row(resource, state), artifact_of(resource)
    facts = {
        "Name": row.name,
        "Namespace": row.namespace,
        "Kind": row.kind,
        "Created": resource.created,
        "Source": row.source,
        "Suspended": "yes" if row.suspended else "",
        "Revision": row.revision,
        "Since": row.since,
        "Author": artifact and artifact.author,
        "Subject": artifact and artifact.subject,
        "Verified by": artifact and artifact.verified_by,
        "Flags": row.flags,
        "Served": row.served,
        "Phase": row.phase,
        "Running": row.running,
        "Furthest": row.furthest,
    }
    return "\n".join(
        f"{f'{name}:':<13}{printable(str(fact))}" for name, fact in facts.items() if fact not in (None, "")
    )


def _section(title: str, lines_: Sequence[str]) -> str:
    return _table_section(title, map(printable, lines_))


def _table_section(title: str, lines_: Iterable[str]) -> str:
    """A section of lines that `table` has drawn."""
    return "\n".join([f"{title}:", *(f"  {line}" for line in lines_)])


def _spec(spec: Mapping[str, Any]) -> list[str]:
    shown = {name: "…" if name in _NO_FLAGS else value for name, value in spec.items()}
    return [
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in shown.items()
    ]


def _conditions(conditions: Sequence[Condition]) -> list[str]:
    return table(_CONDITIONS, conditions).splitlines()
