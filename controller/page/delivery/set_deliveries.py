"""How each flag set is delivered: from its source to the evaluators that serve it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from controller.api import flagreceipt, flagset
from controller.api.flagreceipt import FlagReceiptStatus
from controller.api.flagset_status import FlagSetStatus
from controller.api.kinds import FLAG_SOURCE, FLUX_SOURCES, status_of
from controller.api.objects.artifact_status import SourceStatus
from controller.api.objects.conditions import READY
from controller.api.openfeature import featureflagconfiguration
from controller.api.openfeature.featureflagconfiguration import ConfigurationStatus
from controller.delivery.waiting import WaitTarget, line, wait_state
from controller.page.delivery.proxy_members import moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from controller.api.flagset_status import ProblemStatus
    from controller.api.objects.meta import ObjectKey, Resource
    from controller.delivery.waiting import WaitState
    from controller.page.delivery.proxy_members import FleetMember

SOURCES: Final = frozenset({FLAG_SOURCE.kind, *(type_.kind for type_ in FLUX_SOURCES)})


class Health(StrEnum):
    """How a stage is, in words."""

    READY = "ready"
    WAITING = "in progress"
    FAILED = "failed"
    SUSPENDED = "suspended"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class DeliveryStage:
    """One stage that a revision passes."""

    title: str
    """Source, Artifact, Flag set, Object, Proxy or Evaluators."""
    name: str
    health: Health
    revision: str = ""
    """The newest revision that has passed the stage."""
    since: datetime | None = None
    """When it passed."""
    message: str = ""
    """Why it is not ready, or how much of it is."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One flag set, from its source to its evaluators."""

    name: str
    """NAMESPACE/NAME of the object that evaluators follow."""
    stages: tuple[DeliveryStage, ...]
    wanted: str
    """The newest revision that is known."""
    state: WaitState
    """How far that has come, as `flagstaff wait` says it."""
    members: tuple[FleetMember, ...]
    """The evaluators, laggards first, as far as a proxy was asked."""
    laggards: tuple[str, ...]
    """Evaluators that do not serve it, as `flagstaff fleet` lists them."""
    problems: tuple[ProblemStatus, ...]
    served: str
    """The revision that is served meanwhile."""
    source: Resource | None
    flag_set: Resource | None
    configuration: Resource | None


def deliveries(objects: Iterable[Resource], members: Mapping[str, Sequence[FleetMember]]) -> list[Delivery]:
    """Return one delivery for each FeatureFlagConfiguration, and for each FlagSet that has none yet, by name.
    `members`: evaluators by the object that they follow, NAMESPACE/NAME.
    """
    by_key = {resource.key: resource for resource in objects}
    written: dict[ObjectKey, list[Resource]] = {}
    for key, resource in by_key.items():
        if key.kind == featureflagconfiguration.KIND:
            writer = flagset.writer_key(resource)
            written.setdefault(writer if writer in by_key else key, []).append(resource)
    pairs: list[tuple[Resource | None, Resource | None]] = []
    for key, configurations in written.items():
        flag_set = by_key[key] if key.kind == flagset.KIND else None
        pairs += [(flag_set, configuration) for configuration in configurations]
    unwritten = [key for key in by_key if key.kind == flagset.KIND and key not in written]
    pairs += [(by_key[key], None) for key in unwritten]
    listed = [_delivery(flag_set, configuration, by_key, members) for flag_set, configuration in pairs]
    return sorted(listed, key=lambda delivery: delivery.name)


def _delivery(
    flag_set: Resource | None,
    configuration: Resource | None,
    by_key: Mapping[ObjectKey, Resource],
    members: Mapping[str, Sequence[FleetMember]],
) -> Delivery:
    source_key = None if flag_set is None else flagset.source_key(flag_set)
    source = None if source_key is None else by_key.get(source_key)
    name = _name(flag_set, configuration)
    status, set_status = ConfigurationStatus.of(configuration), FlagSetStatus.of(flag_set)
    wanted = set_status.last_attempted_revision or status.revision or ""
    known = tuple(members.get(name, ()))
    stages = (
        *_source_stages(source_key, source),
        *(() if flag_set is None else (_set_stage(flag_set),)),
        *(() if configuration is None else (_object_stage(configuration),)),
        *_receiving_stages(configuration, by_key.values(), known),
    )
    behind = [member for member in known if member.lagging]
    return Delivery(
        name,
        stages,
        wanted,
        wait_state(configuration, flag_set, WaitTarget(wanted, allow_none=True)),
        known,
        tuple(line(laggard) for laggard in status.laggards or ()) or tuple(map(_laggard_text, behind)),
        (*set_status.problems, *status.problems) if flag_set is None else set_status.problems,
        set_status.last_applied_revision or status.revision or "",
        source,
        flag_set,
        configuration,
    )


def _laggard_text(member: FleetMember) -> str:
    return f"{member.name}: {member.state}, serves {member.revision or 'nothing'}"


def _name(flag_set: Resource | None, configuration: Resource | None) -> str:
    if configuration is not None:
        return f"{configuration.namespace}/{configuration.name}"
    return "" if flag_set is None else f"{flag_set.namespace}/{flagset.target_name(flag_set)}"


def _source_stages(key: ObjectKey | None, source: Resource | None) -> Iterator[DeliveryStage]:
    if key is None:
        return
    if source is None:
        missing = "it does not exist, or you may not see it"
        yield DeliveryStage("Source", f"{key.kind}/{key.name}", Health.UNKNOWN, message=missing)
        return
    status = status_of(source)
    artifact = status.artifact if isinstance(status, SourceStatus) else None
    revision = "" if artifact is None else artifact.revision
    health, message = _health(source)
    ready_since = moment(status.condition(READY).since)
    yield DeliveryStage("Source", f"{key.kind}/{key.name}", health, revision, ready_since, message)
    if artifact is None:
        yield DeliveryStage("Artifact", "", Health.WAITING, message="there is none yet")
    else:
        stored = moment(artifact.last_update_time)
        yield DeliveryStage("Artifact", artifact.digest[:19], Health.READY, revision, stored)


def _set_stage(flag_set: Resource) -> DeliveryStage:
    status = FlagSetStatus.of(flag_set)
    applied = next((moment(entry.applied_at) for entry in status.history), None)
    health, message = _health(flag_set)
    revision = status.last_applied_revision or ""
    return DeliveryStage("Flag set", f"{flagset.KIND}/{flag_set.name}", health, revision, applied, message)


def _object_stage(configuration: Resource) -> DeliveryStage:
    status = ConfigurationStatus.of(configuration)
    health, message = _health(configuration)
    name = f"{configuration.key.kind}/{configuration.name}"
    return DeliveryStage("Object", name, health, status.revision or "", None, message)


def _receiving_stages(
    configuration: Resource | None, resources: Iterable[Resource], members: Sequence[FleetMember]
) -> Iterator[DeliveryStage]:
    status = ConfigurationStatus.of(configuration)
    for receipt in [] if configuration is None else _receipts(configuration, resources):
        yield _proxy_stage(receipt, status)
    served, total = status.served_by, status.total
    if members:
        served, total = sum(not member.lagging for member in members), len(members)
    if not total:
        words = "no evaluator reports what it serves"
        yield DeliveryStage("Evaluators", "", Health.UNKNOWN, message=words)
        return
    health = Health.READY if served == total else Health.WAITING
    words = f"{served or 0} of {total} serve it"
    yield DeliveryStage("Evaluators", "", health, status.revision or "", None, words)


def _receipts(configuration: Resource, resources: Iterable[Resource]) -> list[Resource]:
    """The FlagReceipts of a FeatureFlagConfiguration, by proxy."""
    about = (
        resource
        for resource in resources
        if resource.key.kind == flagreceipt.KIND
        and resource.namespace == configuration.namespace
        and flagreceipt.pair_of(resource)[0] == configuration.name
    )
    return sorted(about, key=lambda receipt: flagreceipt.pair_of(receipt)[1])


def _proxy_stage(receipt: Resource, wanted: ConfigurationStatus) -> DeliveryStage:
    status = FlagReceiptStatus.of(receipt)
    current = sum(group.count for group in status.groups if group.digest == status.digest)
    total = sum(group.count for group in status.groups) + status.silent
    newest = status.digest == (wanted.digest or "")
    revision = next((group.revision for group in status.groups if group.digest == status.digest), "")
    words = f"{current} of {total} evaluators serve what it delivers"
    if status.delivered:
        words += f"; {status.delivered} streams of others"
    return DeliveryStage(
        "Proxy",
        flagreceipt.pair_of(receipt)[1],
        Health.READY if newest else Health.WAITING,
        revision or ((wanted.revision or "") if newest else ""),
        moment(status.observed_at),
        words,
    )


def _health(resource: Resource) -> tuple[Health, str]:
    """How an object is, and why it is not ready."""
    status = status_of(resource)
    message = status.condition(READY).message
    if resource.suspended:
        return Health.SUSPENDED, message
    if status.is_ready:
        return Health.READY, ""
    return (Health.FAILED if status.failure else Health.WAITING), message
