"""What waits for a person: problems, held flags, guards, rollouts, overrides, suspended objects. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from controller.api import flagoverride, flagset, flagsource
from controller.api.flagoverride import ACTIVE, FlagOverrideStatus
from controller.api.flagset_status import FlagSetStatus
from controller.api.kinds import status_of
from controller.api.objects.conditions import READY, REMOTE_FLAGS
from controller.api.objects.meta import ACCEPT_REVISION
from controller.api.openfeature import featureflagconfiguration
from controller.api.openfeature.featureflagconfiguration import FeatureFlagStatus
from controller.api.rollouts.rollout_status import FlagRolloutStatus
from controller.page.delivery.proxy_members import moment
from controller.page.delivery.set_deliveries import SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from controller.api.flagset_status import ProblemStatus
    from controller.api.objects.meta import ObjectKey, Resource
    from controller.api.objects.status import Status

_ACCEPTED: Final = re.compile(
    rf"{re.escape(ACCEPT_REVISION)}=(?:\S*@)?((?:sha1:|sha256:)?[0-9a-f]{{40,64}})\b"
)
"""The digest that a message of the controller asks to accept; a command has nothing else of a message."""
_GUARDS: Final = {
    flagset.KIND: (READY, "PruneGuard", "flagset"),
    flagsource.KIND: (READY, "HistoryRewritten", "flagsource"),
    featureflagconfiguration.KIND: (REMOTE_FLAGS, "OlderVersion", "ffc"),
}
"""By kind: the condition and the reason with which it waits for acceptance, and its name for kubectl."""

_ENDED: Final = frozenset({None, "Idle", "Succeeded"})
"""Phases of a FlagRollout in which nothing is rolled out."""
_VERBS: Final = {"WaitingForApproval": "approve", "WaitingForPromotion": "approve", "Paused": "resume"}
"""By the reason of a FlagRollout, the verb of `flagstaff rollout` that lets it continue."""


@dataclass(frozen=True, slots=True)
class PendingItem:
    """One thing that waits for a person."""

    about: str
    """KIND/NAMESPACE/NAME."""
    message: str
    """What it waits for, or what is served meanwhile."""
    lines: tuple[str, ...] = ()
    """Details, such as a line for each flag."""
    problems: tuple[ProblemStatus, ...] = ()
    revision: str = ""
    """The revision that has the problems."""
    address: str = ""
    """The URL of its source, for links to its Git server."""
    command: str = ""
    """The command that lets it continue; empty: a commit is needed."""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class PendingSection:
    """Things of one sort."""

    title: str
    items: tuple[PendingItem, ...]


def pending_work(objects: Iterable[Resource]) -> list[PendingSection]:
    """Return what waits, by sort, then by object; sorts without any are left out."""
    by_key = {resource.key: resource for resource in objects}
    ordered = [by_key[key] for key in sorted(by_key)]
    sections = [
        PendingSection(
            title,
            tuple(
                replace(item, address=_source_address(resource, by_key))
                for resource in ordered
                for item in items(resource, status_of(resource))
            ),
        )
        for title, items in _SORTS.items()
    ]
    return [section for section in sections if section.items]


def _source_address(resource: Resource, by_key: Mapping[ObjectKey, Resource]) -> str:
    """The URL of the source of a FlagSet; empty where none is known."""
    key = flagset.source_key(resource) if resource.key.kind == flagset.KIND else None
    source = None if key is None else by_key.get(key)
    return "" if source is None else flagsource.source_address(source) or ""


def _problems(resource: Resource, status: Status) -> Iterator[PendingItem]:
    # What a FlagSet writes has the FlagSet's problems.
    if isinstance(status, FeatureFlagStatus) and flagset.LABEL in resource.labels:
        return
    if isinstance(status, FlagSetStatus | FeatureFlagStatus) and status.problems:
        served = status.last_applied_revision if isinstance(status, FlagSetStatus) else status.revision
        meanwhile = f"{served} is served meanwhile" if served else "nothing is served yet"
        more = (status.problem_count or 0) - len(status.problems)
        lines = (f"and {more} more",) if more > 0 else ()
        ready = status.condition(READY)
        since = None if status.is_ready else moment(ready.since)
        words = "it is served, with warnings" if status.is_ready else meanwhile
        revision = status.last_attempted_revision if isinstance(status, FlagSetStatus) else None
        yield PendingItem(str(resource.key), words, lines, status.problems, revision or "", since=since)
    elif status.failure and status.failure != _GUARDS.get(resource.key.kind, ("", "", ""))[1]:
        ready = status.condition(READY)
        if resource.key.kind in SOURCES or isinstance(status, FlagSetStatus | FeatureFlagStatus):
            yield PendingItem(str(resource.key), ready.message, since=moment(ready.since))


def _held_flags(resource: Resource, status: Status) -> Iterator[PendingItem]:
    if isinstance(status, FlagSetStatus) and status.held:
        lines = tuple(f"{flag.name}: as in {flag.revision or 'an earlier revision'}" for flag in status.held)
        words = "these flags are served as an earlier revision defines them: their newest definition is bad"
        yield PendingItem(str(resource.key), words, lines, since=moment(status.condition(READY).since))


def _guards(resource: Resource, status: Status) -> Iterator[PendingItem]:
    guard = _GUARDS.get(resource.key.kind)
    if guard is None:
        return
    condition = status.condition(guard[0])
    if condition.reason != guard[1]:
        return
    removals = status.pending_removals if isinstance(status, FlagSetStatus) else None
    lines = tuple(f"{key} would be removed" for key in removals or ())
    digests = _ACCEPTED.findall(condition.message)
    # The last digest: what the author of a commit wrote comes before the words of the controller.
    command = "" if not digests else _accept(resource, guard[2], digests[-1])
    yield PendingItem(
        str(resource.key), condition.message, lines, command=command, since=moment(condition.since)
    )


def _accept(resource: Resource, kind: str, digest: str) -> str:
    words = (
        "kubectl", "-n", resource.namespace, "annotate", kind, resource.name, "--overwrite",
        f"{ACCEPT_REVISION}={digest}",
    )  # fmt: skip
    return shlex.join(words)


def _rollouts(resource: Resource, status: Status) -> Iterator[PendingItem]:
    if not isinstance(status, FlagRolloutStatus) or status.phase in _ENDED:
        return
    ready, candidate = status.condition(READY), status.candidate
    flags = () if candidate is None else candidate.flags
    lines = [f"{flag}: new definition for {status.share_text or 'nobody'}" for flag in flags]
    lines += [f"step {status.step_text}"] if status.step_text else []
    verb = "retry" if status.phase == "Failed" else _VERBS.get(status.reason or "", "")
    words = ("flagstaff", "rollout", verb, resource.name, "-n", resource.namespace)
    command = shlex.join(words) if verb else ""
    message = ready.message or f"it is {(status.phase or 'Pending').lower()}"
    yield PendingItem(
        str(resource.key), message, tuple(lines), command=command, since=moment(status.step_started_at)
    )


def _overrides(resource: Resource, status: Status) -> Iterator[PendingItem]:
    if resource.key.kind != flagoverride.KIND or not isinstance(status, FlagOverrideStatus):
        return
    ready = status.condition(READY)
    set_by = resource.annotations.get(flagoverride.SET_BY)
    lines = [f"until {resource.spec.get('expiresAt')}"] if status.state == ACTIVE else []
    lines += [f"set by {set_by}"] if set_by else []
    lines += [f"it hides: {status.hides}"] if status.hides and status.state == ACTIVE else []
    command = shlex.join(("flagstaff", "override", "end", resource.name, "-n", resource.namespace))
    yield PendingItem(
        str(resource.key), ready.message, tuple(lines), command=command, since=moment(resource.created)
    )


def _suspended_objects(resource: Resource, _: Status) -> Iterator[PendingItem]:
    word = {flagset.KIND: "set", flagsource.KIND: "source"}.get(resource.key.kind)
    if resource.suspended and word is not None:
        command = shlex.join(("flagstaff", "resume", word, resource.name, "-n", resource.namespace))
        yield PendingItem(
            str(resource.key), "the controller does not reconcile it while it is suspended", command=command
        )


_SORTS: Final[Mapping[str, Callable[[Resource, Status], Iterator[PendingItem]]]] = {
    "Problems": _problems,
    "Held flags": _held_flags,
    "Waiting for acceptance": _guards,
    "Rollouts": _rollouts,
    "Overrides": _overrides,
    "Suspended": _suspended_objects,
}
