"""The stored progress and the messages in an EvaluatorUpgrade's status. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api.evaluatorupgrade import CanaryStatus, EvaluatorUpgradeStatus, HaltStatus, RestartStatus
from controller.api.objects.meta import RESUME, timestamp
from controller.pods.upgrades.observed import moment
from controller.pods.upgrades.restart_plan import Halt, UpgradeProgress

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from controller.api.objects.meta import Resource

_NAMED: Final = 5
"""Most workloads of each sort in a message."""


def progress_of(resource: Resource, now: datetime) -> UpgradeProgress:
    """Read the progress. A changed spec or annotation value resumes a halted upgrade."""
    # What cannot be read is begun anew, from the marks on the workloads.
    status = EvaluatorUpgradeStatus.of(resource)
    canary, halted = status.canary or CanaryStatus(), status.halted
    resumed_at, halt = moment(status.resumed_at), None
    if halted is not None:
        asked = resource.annotations.get(RESUME, "")
        if halted.generation != resource.generation or asked not in ("", halted.request):
            resumed_at = now
        else:
            halt = Halt(halted.workload, halted.message)
    return UpgradeProgress(
        {entry.workload: at for entry in status.restarting or () if (at := moment(entry.at)) is not None},
        canary.workload,
        moment(canary.ready_at),
        canary.passed,
        moment(status.paused_since),
        status.targets or "",
        resumed_at,
        halt,
    )


def fields_of(resource: Resource, progress: UpgradeProgress) -> EvaluatorUpgradeStatus:
    """Return the fields of the status; None for an absent one."""
    restarting = [
        RestartStatus(workload=name, at=timestamp(at)) for name, at in sorted(progress.restarting.items())
    ]
    canary = CanaryStatus(
        workload=progress.canary, ready_at=_timestamp(progress.canary_ready_at), passed=progress.canary_passed
    )
    halted: HaltStatus | None = None
    if progress.halt is not None:
        halted = HaltStatus(
            workload=progress.halt.workload,
            message=progress.halt.message,
            generation=resource.generation,
            request=resource.annotations.get(RESUME, ""),
        )
    return EvaluatorUpgradeStatus(
        restarting=tuple(restarting) or None,
        canary=canary if progress.canary else None,
        halted=halted,
        paused_since=_timestamp(progress.pause_since),
        targets=progress.targets or None,
        resumed_at=_timestamp(progress.resumed_at),
    )


def list_reasons(heading: str, named: Mapping[str, str]) -> str:
    """`what: Kind/name (why), …`, or nothing."""
    if not named:
        return ""
    shown = [f"{name} ({why})" for name, why in sorted(named.items())]
    more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    return f"; {heading}: {', '.join(shown[:_NAMED])}{more}"


def _timestamp(time: datetime | None) -> str | None:
    return None if time is None else timestamp(time)
