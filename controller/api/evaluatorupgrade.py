"""EvaluatorUpgrade: whether and how fast workloads are restarted whose pods have an outdated evaluator."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from controller.api.fields import INT32, INT64, Duration, Model, Name
from controller.api.kind import AGE_COLUMN, READY_COLUMN, STATUS_COLUMN, SUSPENDED_COLUMN, Kind, PrinterColumn
from controller.api.meta import API_VERSION
from controller.api.status import Status

KIND: Final = "EvaluatorUpgrade"


class PodSelector(Model):
    """Pods that have these labels; all where there are none."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the pods to count. A workload with such a pod is restarted as a whole."""


class WorkloadReference(Model):
    """A workload of the same namespace."""

    kind: Literal["Deployment", "StatefulSet", "DaemonSet"]
    """The kind of the workload."""
    name: Name
    """The name of the workload."""


class CanarySpec(Model):
    """The workload that is restarted before all others."""

    workload_ref: WorkloadReference | None = None
    """The workload to restart first; the one with the fewest pods if it is not set."""
    soak: Duration = 300.0
    """How long the workload must stay ready before others are restarted. The time starts anew whenever it
    is not ready.
    """


class EvaluatorUpgradeSpec(Model):
    """What the user asks for."""

    suspend: bool = False
    """Count nothing and restart nothing."""
    selector: PodSelector | None = None
    """The injected pods to count; all of the namespace if it is not set."""
    max_concurrent: Annotated[int, INT32, Field(ge=1, le=100)] = 1
    """How many workloads may roll out at the same time."""
    pause: Duration = 30.0
    """How long to wait before the first restart, and from the end of one rollout to the next restart, so
    that several changes become one.
    """
    ready_deadline: Duration = 600.0
    """How long a restarted workload may take until one of its new pods is ready, and from each pod to the
    next. After that everything is [halted](#when-it-is-halted).
    """
    canary: CanarySpec | None = None
    """Restart one workload before all others."""


class RestartStatus(Model):
    """A restart that is under way."""

    workload: str
    """As Kind/name."""
    at: str
    """When it was restarted."""


class CanaryStatus(Model):
    """The workload that goes first."""

    workload: str = ""
    """As Kind/name."""
    ready_at: str | None = None
    """Since when it is rolled out."""
    passed: bool = False
    """Whether it stayed ready for the time asked for."""


class HaltStatus(Model):
    """Why nothing more is restarted."""

    workload: str
    """The one that is not ready, as Kind/name."""
    message: str
    """The pod that is not ready, and why."""
    generation: Annotated[int, INT64]
    """Of the spec; another one continues."""
    request: str
    """The annotation flagstaff.dev/resume as it was; another value continues."""


class EvaluatorUpgradeStatus(Status):
    """What became of it."""

    pods: Annotated[int, INT32] | None = None
    """Injected pods that run."""
    current: Annotated[int, INT32] | None = None
    """Those that have what they would get now."""
    outdated: Annotated[int, INT32] | None = None
    """Those that would get another image or configuration."""
    restarting: tuple[RestartStatus, ...] | None = None
    """Workloads that were restarted and are not rolled out yet."""
    canary: CanaryStatus | None = None
    """The workload that goes first."""
    halted: HaltStatus | None = None
    """Why nothing more is restarted."""
    paused_since: str | None = None
    """When a restarted workload was rolled out last, or there was something else to restart for."""
    targets: str | None = None
    """A digest of what the workloads that are to be restarted would get; with another one the pause begins
    anew.
    """
    resumed_at: str | None = None
    """When it went on after it was halted."""


RECORD: Final = Kind(
    API_VERSION,
    KIND,
    "evaluatorupgrades",
    short_name="eup",
    description=(
        "EvaluatorUpgrade restarts the workloads of its namespace whose pods have an older evaluator"
        " than they would get now."
    ),
    spec=EvaluatorUpgradeSpec,
    spec_description="What is asked for; nothing but defaults restarts one workload at a time.",
    status=EvaluatorUpgradeStatus,
    columns=(
        READY_COLUMN,
        PrinterColumn("Pods", ".status.pods", "integer"),
        PrinterColumn("Current", ".status.current", "integer"),
        PrinterColumn("Outdated", ".status.outdated", "integer"),
        SUSPENDED_COLUMN,
        AGE_COLUMN,
        STATUS_COLUMN,
    ),
    modules="pods/restart_plan pods/upgrade_reconciler pods/upgrade_stage",
    quota=5,
    is_granted=True,
    has_alerts=True,
)
