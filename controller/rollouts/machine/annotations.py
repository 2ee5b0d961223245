"""The requests that people make by annotations; each names one candidate by its digest. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from controller.api.objects.meta import precise_timestamp
from controller.api.rollouts.flagrollout import ABORT, APPROVE, PROMOTE, RETRY
from controller.api.rollouts.rollout_status import Approval
from controller.rollouts.machine.gates import confirmation
from controller.rollouts.machine.judgement import answers_of
from controller.runtime.event import Occurrence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from controller.api.rollouts.flagrollout import FlagRolloutSpec
    from controller.api.rollouts.rollout_analysis import WebhookType
    from controller.api.rollouts.rollout_status import FlagRolloutStatus
    from controller.rollouts.machine.observation import Observation

_NAMES: Final = {"approve": APPROVE, "promote": PROMOTE, "abort": ABORT}
_CONFIRMING: Final[tuple[WebhookType, ...]] = (
    "confirm-rollout", "pre-rollout", "confirm-increase", "confirm-promotion",
)  # fmt: skip
_KEPT: Final = 40
"""Most approvals in a status."""
_LONGEST: Final = 200


class Requests(NamedTuple):
    """The new requests for the present candidate."""

    status: FlagRolloutStatus
    """The status with new approvals, and with the requests that are handled."""
    events: tuple[Occurrence, ...]
    promote: bool = False
    abort: bool = False


def requests(status: FlagRolloutStatus, observation: Observation, now: datetime) -> Requests:
    """Read the annotations; each value is acted on once."""
    candidate = observation.candidate
    known = dict(value.partition("=")[::2] for value in status.handled)
    if candidate is None:
        return Requests(status, ())
    values = {name: observation.annotations.get(key, "")[:_LONGEST] for name, key in _NAMES.items()}
    new = {name: value for name, value in values.items() if value and known.get(name) != value}
    if not new:
        return Requests(status, ())
    events = [
        _refusal(name, value, candidate.digest)
        for name, value in new.items()
        if _digest(value) != candidate.digest
    ]
    mine = {name: value for name, value in new.items() if _digest(value) == candidate.digest}
    handled = tuple(f"{name}={value}" for name, value in {**known, **new}.items() if name in _NAMES)
    status = status.model_copy(update={"handled": handled})
    if "/" in mine.get("approve", ""):
        status = with_approval(status, mine["approve"].split("/")[1], now)
    return Requests(status, tuple(events), "promote" in mine, "abort" in mine)


def with_confirmations(
    spec: FlagRolloutSpec, status: FlagRolloutStatus, observation: Observation, now: datetime
) -> FlagRolloutStatus:
    """Record the webhooks that have confirmed now."""
    hooks = {hook.name: hook for hook in spec.webhooks}
    for type_ in _CONFIRMING:
        for name, verdict, _ in answers_of(spec, observation, type_):
            if verdict == "Pass":
                status = with_approval(status, confirmation(hooks[name], status), now)
    return status


def with_approval(status: FlagRolloutStatus, gate: str, now: datetime) -> FlagRolloutStatus:
    """Record that a gate is open for the present candidate."""
    if status.candidate is None or any(approval.gate == gate for approval in status.approvals):
        return status
    approval = Approval(gate=gate, digest=status.candidate.digest, at=precise_timestamp(now))
    return status.model_copy(update={"approvals": (*status.approvals, approval)[-_KEPT:]})


def retry_token(spec: FlagRolloutSpec, annotations: Mapping[str, str]) -> str:
    """Return the token that rolls a failed candidate out again when it changes."""
    parts = (spec.retry, annotations.get(RETRY, "")[:_LONGEST])
    return "/".join(filter(None, parts))


def _digest(value: str) -> str:
    """The digest of the candidate, before the gate or the time that makes a request a new one."""
    return value.partition("/")[0]


def _refusal(name: str, value: str, digest: str) -> Occurrence:
    return Occurrence(
        "ApprovalForAnotherRevision",
        f"the annotation {_NAMES[name]} is about {_digest(value)}, and the candidate is {digest}: "
        "it has no effect",
        warning=True,
        version=value,
    )
