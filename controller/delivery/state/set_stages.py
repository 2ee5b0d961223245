"""The stages that a revision of a flag set passes, from its source to evaluators, by their objects. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import flagreceipt
from controller.api.flagreceipt import FlagReceiptStatus
from controller.api.kinds import status_of
from controller.api.objects.artifact_status import SourceStatus
from controller.api.objects.conditions import READY
from controller.delivery.state.set_state import Health, Stage, Where
from controller.delivery.state.state_words import served_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from controller.api.objects.artifact_status import ArtifactStatus
    from controller.api.objects.meta import ObjectKey, Resource
    from controller.delivery.state.set_state import SetState

_MISSING: Final = "it does not exist, or you may not see it"


def stages_of(
    state: SetState,
    source: Resource | None,
    flag_set: Resource | None,
    target: Resource | None,
    receipts: Iterable[Resource],
) -> Iterator[Stage]:
    """Yield the stages that a revision passes, as far as there are any. `receipts`: of the object, as far as
    they were read.
    """
    if state.source is not None:
        yield _source_stage(state.source, source)
    if flag_set is not None:
        applied = next((entry.applied_at or "" for entry in state.history), "")
        name = f"{flag_set.key.kind}/{flag_set.name}"
        yield Stage("Flag set", name, *_health(flag_set, state.applied, applied))
    # In local mode the object is an inner one: nobody wrote it, and the evaluator is this process.
    if target is not None and state.where is Where.CLUSTER:
        yield Stage("Object", f"{target.key.kind}/{target.name}", *_health(target, state.revision))
        for receipt in sorted(receipts, key=lambda receipt: flagreceipt.pair_of(receipt)[1]):
            yield _proxy_stage(state, receipt)
    served, what = state.served, state.revision or state.digests.effective
    if target is None or not served.total:
        yield Stage("Evaluators", "", Health.UNKNOWN, message=served_text(served, what or "it"))
        return
    health = Health.READY if not served.lagging else Health.WAITING
    yield Stage("Evaluators", "", health, state.revision, message=served_text(served, what))


def artifact_of(source: Resource | None) -> ArtifactStatus | None:
    """The artifact of a source; None where it has none, and for an object of another kind."""
    status = None if source is None else status_of(source)
    return status.artifact if isinstance(status, SourceStatus) else None


def _source_stage(key: ObjectKey, source: Resource | None) -> Stage:
    name = f"{key.kind}/{key.name}"
    if source is None:
        return Stage("Source", name, Health.UNKNOWN, message=_MISSING)
    artifact = artifact_of(source)
    revision = ("", "") if artifact is None else (artifact.revision, artifact.last_update_time)
    return Stage("Source", name, *_health(source, *revision))


def _proxy_stage(state: SetState, receipt: Resource) -> Stage:
    """What one proxy delivers, and who serves that."""
    status = FlagReceiptStatus.of(receipt)
    current = sum(group.count for group in status.groups if group.digest == status.digest)
    total = sum(group.count for group in status.groups) + status.silent
    newest = state.digests.is_effective(status.digest)
    revision = next((group.revision or "" for group in status.groups if group.digest == status.digest), "")
    words = f"{current} of {total} evaluators serve what it delivers"
    if status.delivered:
        words += f"; {status.delivered} streams of others"
    return Stage(
        "Proxy",
        flagreceipt.pair_of(receipt)[1],
        Health.READY if newest else Health.WAITING,
        revision or (state.revision if newest else ""),
        status.observed_at or "",
        words,
    )


def _health(resource: Resource, revision: str = "", since: str = "") -> tuple[Health, str, str, str]:
    """(health, revision, since, message) of the stage of an object."""
    status = status_of(resource)
    ready = status.condition(READY)
    if resource.suspended:
        return Health.SUSPENDED, revision, since, ready.message
    if status.is_ready:
        return Health.READY, revision, since, ""
    return Health.FAILED if status.failure else Health.WAITING, revision, since, ready.message
