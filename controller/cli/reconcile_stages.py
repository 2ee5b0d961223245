"""Asks for a reconcile of a source or a flag set, and follows it stage by stage until it is served."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from controller.api import flagset, kinds
from controller.api.kinds import FLAG_SET, status_of
from controller.api.meta import REQUESTED_AT, Resource
from controller.api.status import FALSE, READY, RECONCILING, TRUE
from controller.cli.object_rows import RECORD, SOURCES
from controller.cli.printing import PROBLEM, Exit
from controller.delivery.reach import Reached, ReachTarget, reach
from controller.delivery.set_reading import LAYER_KINDS, artifact_of, delivered_key, read_set
from controller.delivery.set_state import Reach, SetState
from controller.delivery.state_words import count_text, layers_text
from controller.runtime.clock import now
from evaluator.host.times import precise_timestamp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from controller.api.kind import ResourceType
    from controller.cli.connection import ClusterConnection


StageName = Literal["requested", "fetched", "applied", "delivered", "served in part", "served", "failed"]
_POLL: Final = 0.2
"""Seconds from one request for an object to the next."""
_STAGES: Final[dict[Reach, StageName]] = {
    Reach.DELIVERED: "delivered",
    Reach.SERVED_IN_PART: "served in part",
    Reach.SERVED_BY_ALL: "served",
}


@dataclass(frozen=True, slots=True)
class ReachedStage:
    """One stage that an object reached."""

    __pydantic_config__ = RECORD

    seconds: float
    """Since the verb began."""
    object: str
    """KIND/NAME."""
    stage: StageName
    """What the object reached."""
    message: str
    """The revision, or why it failed; of the last ones how many evaluators serve it, and what keeps flags of
    it from users.
    """


class ReconcileRun:
    """One run of the verb over a connection."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection
        self._began = time.monotonic()
        self.waits_for = ""
        """What has not happened yet."""

    async def source(self, type_: ResourceType, name: str) -> AsyncIterator[ReachedStage]:
        """Yield the stages of a source, up to fetched or failed. Raises Exit, Setback."""
        source = await self._connection.get(type_, name)
        token = await self._request(self._connection, type_, source)
        yield self._stage(source, "requested", _revision(source) or "nothing fetched yet")
        source = await self._wait_until_handled(self._connection, type_, name, token)
        yield self._failure_of(source) or self._stage(source, "fetched", _revision(source))

    async def flag_set(self, name: str, *, with_source: bool) -> AsyncIterator[ReachedStage]:
        """Yield the stages of a flag set, and before them those of its source, up to served or failed. Raises
        Exit, Setback.
        """
        flag_set, revision = await self._connection.get(FLAG_SET, name), ""
        _require_working(flag_set)
        if with_source:
            type_, source, place = await self._source_of(flag_set)
            token = await self._request(place, type_, source)
            yield self._stage(source, "requested", _revision(source) or "nothing fetched yet")
            source = await self._wait_until_handled(place, type_, source.name, token)
            failed, revision = self._failure_of(source), _revision(source)
            yield failed or self._stage(source, "fetched", revision)
            if failed:
                return
        token = await self._request(self._connection, FLAG_SET, flag_set)
        yield self._stage(flag_set, "requested", _state(flag_set).applied or "nothing applied yet")
        flag_set = await self._wait_until_handled(self._connection, FLAG_SET, name, token, revision)
        if (failed := self._failure_of(flag_set)) is not None:
            yield failed
            return
        state = _state(flag_set)
        yield self._stage(flag_set, "applied", f"{state.applied}, {count_text(state.flags or 0, 'flag')}")
        async for stage in self._delivery(flag_set, state.applied):
            yield stage

    async def _delivery(self, flag_set: Resource, revision: str) -> AsyncIterator[ReachedStage]:
        key, delivered = delivered_key(flag_set), False
        type_ = next(type_ for type_ in kinds.DELIVERED if type_.kind == key.kind)
        while True:
            self.waits_for = f"{key.kind}/{key.name} to be delivered"
            written = await self._connection.find(type_, key.namespace, key.name)
            objects = {resource.key: resource for resource in (flag_set, written) if resource is not None}
            # What is served of a rollout or an override stands in the status of the object.
            state = read_set(key, objects, now(), unknown=LAYER_KINDS)
            reached, name = delivery_stage(state, revision)
            if written is not None and name is not None:
                if not delivered:
                    steps = layers_text(state.withheld)
                    yield self._stage(written, "delivered", f"{revision}; {steps}" if steps else revision)
                    delivered = True
                self.waits_for = reached.message
                if reached.done:
                    yield self._stage(written, name, reached.message)
                    return
            await asyncio.sleep(_POLL)

    async def _source_of(self, flag_set: Resource) -> tuple[ResourceType, Resource, ClusterConnection]:
        key = flagset.source_key(flag_set)
        type_ = next((type_ for type_ in SOURCES if key is not None and type_.kind == key.kind), None)
        if key is None or type_ is None:
            raise Exit(f"FlagSet {flag_set.name} names no source", PROBLEM)
        place = replace(self._connection, namespace=key.namespace)
        return type_, await place.get(type_, key.name), place

    async def _request(self, place: ClusterConnection, type_: ResourceType, resource: Resource) -> str:
        """Ask for a reconcile; return the request's name."""
        _require_working(resource)
        token = precise_timestamp(now())
        await place.merge(type_, resource.name, {"metadata": {"annotations": {REQUESTED_AT: token}}})
        return token

    async def _wait_until_handled(
        self, place: ClusterConnection, type_: ResourceType, name: str, token: str, revision: str = ""
    ) -> Resource:
        """The object once its controller acted on the request, and attempted the revision if one is given."""
        while True:
            self.waits_for = f"{type_.kind}/{name} to be reconciled; does its controller run?"
            resource = await place.get(type_, name)
            status = status_of(resource)
            settled = status.condition(READY).status in {TRUE, FALSE} and not status.conditions_of(
                RECONCILING
            )
            attempted = not revision or status.content[0] == revision
            handled = status.last_handled_reconcile_at == token
            if handled and settled and attempted and status.observed_generation == resource.generation:
                return resource
            if handled and status.condition(READY).message:
                self.waits_for = f"{type_.kind}/{name}: {status.condition(READY).message}"
            await asyncio.sleep(_POLL)

    def _failure_of(self, resource: Resource) -> ReachedStage | None:
        """The stage of an object that failed, or None."""
        ready = status_of(resource).condition(READY)
        return self._stage(resource, "failed", ready.message) if ready.status != TRUE else None

    def _stage(self, resource: Resource, stage: StageName, message: str) -> ReachedStage:
        seconds = round(time.monotonic() - self._began, 3)
        return ReachedStage(seconds, f"{resource.key.kind}/{resource.name}", stage, message)


def delivery_stage(state: SetState, revision: str) -> tuple[Reached, StageName | None]:
    """(how far a revision is, the stage that its object reached; None: none yet)."""
    reached = reach(state, ReachTarget(revision, allow_none=True))
    return reached, _STAGES.get(reached.level)


def _state(flag_set: Resource) -> SetState:
    """The state of a FlagSet by itself."""
    return read_set(delivered_key(flag_set), {flag_set.key: flag_set}, now())


def _require_working(resource: Resource) -> None:
    """Raise Exit for a suspended object, which would not be reconciled."""
    if resource.suspended:
        what = f"{resource.key.kind} {resource.name}"
        raise Exit(f"{what} is suspended; flagstaff resume lets it work again", PROBLEM)


def _revision(source: Resource) -> str:
    artifact = artifact_of(source)
    return "" if artifact is None else artifact.revision
