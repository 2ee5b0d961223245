"""What `flagstaff describe` says of an object. Pure but for the terminal's colours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from controller.api.flagset_status import FlagSetStatus
from controller.api.kinds import status_of
from controller.api.objects.artifact_status import SourceStatus
from controller.api.openfeature.featureflagconfiguration import ConfigurationStatus, FeatureFlagStatus
from controller.api.rollouts.rollout_status import FlagRolloutStatus
from controller.cli.cluster.events import lines
from controller.cli.objects import history
from controller.cli.objects.object_rows import object_row
from controller.cli.rollouts.rollout_view import check_lines, history_lines, step_lines, view_of
from controller.cli.shared.output import Column, table
from controller.cli.shared.printing import printable
from controller.delivery.waiting import line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from controller.api.objects.conditions import Condition
    from controller.api.objects.meta import Resource

_NO_FLAGS: Final = ("flagSpec", "featureFlagSpec")
"""Fields that hold flags; `get flags` lists these."""
_CONDITIONS: Final = (
    Column("TYPE", lambda condition: condition.type),
    Column("STATUS", lambda condition: condition.status),
    Column("SINCE", lambda condition: condition.since or "-"),
    Column("REASON", lambda condition: condition.reason),
    Column("MESSAGE", lambda condition: condition.message),
)


def describe_object(resource: Resource, events: Sequence[Mapping[str, Any]]) -> str:
    """The object as sections of lines; `events` are those about it, as `as_event` has them."""
    return "\n".join(f"{section.rstrip()}\n" for section in _sections(resource, events))


def _sections(resource: Resource, events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    status = status_of(resource)
    yield _facts(resource)
    if resource.spec:
        yield _section("Spec", _spec(resource.spec))
    if status.conditions:
        yield _section("Conditions", _conditions(status.conditions))
    if isinstance(status, FlagSetStatus | FeatureFlagStatus) and status.problems:
        yield _section("Problems", [*map(_problem, status.problems)])
    if isinstance(status, FlagSetStatus):
        if status.held:
            held = [
                f"{flag.name}: served as in {flag.revision or 'an earlier revision'}" for flag in status.held
            ]
            yield _section("Held flags", held)
        if status.history:
            yield _section("History", history.render(status.history, "table").splitlines())
    if isinstance(status, ConfigurationStatus) and status.laggards:
        yield _section("Evaluators that lag", [line(laggard) for laggard in status.laggards])
    if isinstance(status, FlagRolloutStatus):
        yield from _rollout_sections(resource)
    yield _section("Events", [text for event in events for text in lines(event, colours=False)] or ["none"])


def _rollout_sections(rollout: Resource) -> Iterator[str]:
    view = view_of(rollout)
    asked = [f"{check.name}: {check.query}" for check in view.metrics if check.query]
    sections = {
        "Steps": step_lines(view),
        "Checks": check_lines(view),
        "Queries": asked,
        "Earlier rollouts": history_lines(view),
    }
    yield from (_section(title, lines_) for title, lines_ in sections.items() if lines_)


def _facts(resource: Resource) -> str:
    row, status = object_row(resource), status_of(resource)
    artifact = status.artifact if isinstance(status, SourceStatus) else None
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
        "Step": row.step,
        "Share": row.share,
        "Verdict": row.verdict,
    }
    return "\n".join(
        f"{f'{name}:':<13}{printable(str(fact))}" for name, fact in facts.items() if fact not in (None, "")
    )


def _section(title: str, lines_: Sequence[str]) -> str:
    return "\n".join([f"{title}:", *(f"  {printable(text)}" for text in lines_)])


def _spec(spec: Mapping[str, Any]) -> list[str]:
    shown = {name: "…" if name in _NO_FLAGS else value for name, value in spec.items()}
    return [
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in shown.items()
    ]


def _conditions(conditions: Sequence[Condition]) -> list[str]:
    return table(_CONDITIONS, conditions).splitlines()


def _problem(problem: Any) -> str:
    place = ":".join(str(part) for part in (problem.file, problem.line, problem.column) if part)
    return f"{place}{': ' if place else ''}{problem.severity}: {problem.message}"
