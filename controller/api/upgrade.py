"""EvaluatorUpgrade: whether and how fast workloads are restarted whose pods have an outdated evaluator."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from controller.api.objects.fields import Duration, Model, Name
from controller.api.objects.status import Status

KIND: Final = "EvaluatorUpgrade"


class PodSelector(Model):
    """Pods that have these labels; all where there are none."""

    match_labels: dict[str, str] = Field(default_factory=dict)


class WorkloadReference(Model):
    """A workload of the same namespace."""

    kind: Literal["Deployment", "StatefulSet", "DaemonSet"]
    name: Name


class CanarySpec(Model):
    """The workload that is restarted before all others."""

    workload_ref: WorkloadReference | None = None
    """The workload to restart first; None: that with the fewest pods of those that may be restarted."""
    soak: Duration = 300.0
    """Seconds for which it must be ready before others are restarted."""


class EvaluatorUpgradeSpec(Model):
    """What the user asks for."""

    suspend: bool = False
    selector: PodSelector | None = None
    """Selects pods by their labels; None: all injected pods of the namespace."""
    max_concurrent: Annotated[int, Field(ge=1, le=100)] = 1
    """Workloads that roll out at a time."""
    pause: Duration = 30.0
    """Seconds before the first restart, and from one workload that is rolled out to the next restart."""
    ready_deadline: Duration = 600.0
    """Seconds that a restarted workload may take until a pod is ready, and from each to the next."""
    canary: CanarySpec | None = None


class RestartStatus(Model):
    """A restart that is under way."""

    workload: str
    """`Kind/name`."""
    at: str


class CanaryStatus(Model):
    """The workload that goes first."""

    workload: str = ""
    """`Kind/name`."""
    ready_at: str | None = None
    passed: bool = False
    """Whether it stayed ready for its time."""


class HaltStatus(Model):
    """Why nothing more is restarted."""

    workload: str
    message: str
    generation: int
    """The generation of the spec that was halted; a later one goes on."""
    request: str
    """The annotation that asks to go on, as it was."""


class EvaluatorUpgradeStatus(Status):
    """What became of it."""

    pods: int | None = None
    current: int | None = None
    outdated: int | None = None
    restarting: tuple[RestartStatus, ...] | None = None
    """Each that was restarted and is not rolled out yet."""
    canary: CanaryStatus | None = None
    halted: HaltStatus | None = None
    paused_since: str | None = None
    """Time of the last finished restart, or of the last new reason to restart."""
    targets: str | None = None
    """A digest of what all that is or may be restarted is to get."""
    resumed_at: str | None = None
    """Time at which it continued after a halt."""
