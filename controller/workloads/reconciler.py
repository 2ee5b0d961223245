"""Flagd: a Deployment of the evaluator, and how others reach it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api import featureflagsource
from controller.api.fields import read
from controller.api.flagd import FlagdSpec
from controller.api.kinds import HTTP_ROUTE
from controller.api.meta import ObjectKey, Resource, version_of
from controller.injection import names
from controller.injection.adding.advice import warnings
from controller.injection.making.evaluator import check
from controller.injection.options import Refused
from controller.injection.reading.wanted import read as read_wanted
from controller.runtime.events import Occurrence
from controller.runtime.objects.applier import Applier
from controller.runtime.reconciling.result import Done, Result
from controller.runtime.reconciling.setbacks import Setback, Stalled, Waiting, stalling
from controller.workloads.manifests import CONTAINER, MANAGED_BY, OURS, manifests
from controller.workloads.stage import BY_OWNER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from controller.injection.options import Known, Options
    from controller.injection.reading.wanted import Wanted
    from controller.runtime.objects.cache import Cache

MANAGER: Final = "flagstaff-flagd"
"""The field manager."""
_LOOK_FOR_GATEWAYS: Final = 60.0
"""Seconds."""
_COUNTS: Final = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")


class Workloads(Applier, Protocol):
    """The objects that run for users. Every method raises a Setback."""

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """An object's body, or None."""

    async def serves(self, api_version: str, plural: str) -> bool:
        """Whether the cluster has the kind."""


@dataclass(frozen=True, slots=True)
class _Applied:
    """What was sent of one object, and what became of it."""

    manifest: Mapping[str, Any]
    found: Resource


@dataclass(frozen=True, slots=True)
class FlagdReconciler:
    """Brings what is made of a Flagd to what it and its FeatureFlagSource say."""

    objects: Cache
    workloads: Workloads
    applied: Callable[[dict[str, Any]], None]
    """Receives each object that was written."""
    known: Known
    options: Options
    _taken: dict[ObjectKey, dict[ObjectKey, _Applied]] = field(default_factory=dict)
    """By Flagd, then by what was made of it."""

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Apply, remove what is no longer asked for, and say how the Deployment does."""
        del now
        events: list[Occurrence] = []
        try:
            wanted, made = self._made(resource)
            routeless = await self._apply_all(resource, made, events)
            events += await self._prune(resource, {_key(each) for each in made})
            result = self._judged(made, wanted, tuple(events))
        except Setback as setback:
            return Result.of(setback, events=tuple(events))
        if routeless is not None:
            return Result.of(routeless, status=result.status, events=result.events)
        return result

    def forget(self, key: ObjectKey) -> None:
        """It is gone; Kubernetes removes what it owned."""
        self._taken.pop(key, None)

    def _made(self, resource: Resource) -> tuple[Wanted, list[dict[str, Any]]]:
        with stalling():
            spec = read(FlagdSpec, resource.spec)
        name = spec.feature_flag_source
        if self.objects.get(ObjectKey(featureflagsource.KIND, resource.namespace, name)) is None:
            raise Waiting("SourceNotFound", f"FeatureFlagSource {name} not found")
        try:
            wanted = read_wanted(
                {names.SOURCES: name}, resource.namespace, self.known, compat=self.options.compat
            )
            check(wanted, self.options, self.known)
        except Refused as refusal:
            raise Stalled("InvalidSource", str(refusal)) from refusal
        return wanted, [*manifests(resource, spec, wanted, self.options)]

    async def _apply_all(
        self, owner: Resource, made: list[dict[str, Any]], events: list[Occurrence]
    ) -> Setback | None:
        """Raises Setback. That of the HTTPRoute is returned: all else does without it."""
        for each in made:
            try:
                events += await self._apply(owner, each)
            except Setback as setback:
                if each["kind"] != HTTP_ROUTE.kind:
                    raise
                return setback
        return None

    async def _apply(self, owner: Resource, manifest: dict[str, Any]) -> tuple[Occurrence, ...]:
        key = _key(manifest)
        taken = self._taken.setdefault(owner.key, {})
        last = taken.get(key)
        there = self.objects.get(key)
        if last is not None and last.manifest == manifest and there is not None and _same(there, last.found):
            return ()
        if key.kind == HTTP_ROUTE.kind and not await self.workloads.serves(
            HTTP_ROUTE.api_version, HTTP_ROUTE.plural
        ):
            raise Waiting(
                "GatewayApiMissing",
                "the cluster has no kind HTTPRoute; install Gateway API, or set gatewayApiRoutes.enabled "
                "to false",
                delay=_LOOK_FOR_GATEWAYS,
            )
        if there is None:
            # It may be there without our label, which is what is watched.
            body = await self.workloads.get(manifest["apiVersion"], key.kind, key.namespace, key.name)
            there = None if body is None else Resource.of(body)
        if there is not None:
            _require_ours(there, owner)
        body, others = await self.workloads.apply(manifest, manager=MANAGER)
        self.applied(body)
        written = Resource.of(body)
        taken[key] = _Applied(manifest, written)
        if version_of(there) == version_of(written):
            return ()
        return (_written_event(key, manifest, last, there, others, written.resource_version),)

    async def _prune(self, owner: Resource, wanted: set[ObjectKey]) -> list[Occurrence]:
        events = []
        for each in self.objects.find(BY_OWNER, owner.namespace, owner.name):
            if each.key in wanted or each.deleting or not _owned(each, owner):
                continue
            await self.workloads.delete(
                each.api_version, each.key.kind, each.namespace, each.name, uid=each.uid
            )
            events.append(Occurrence("Pruned", f"{each.key.kind} {each.name} removed", version=each.uid))
        taken = self._taken.get(owner.key, {})
        for key in taken.keys() - wanted:
            del taken[key]
        return events

    def _judged(self, made: list[dict[str, Any]], wanted: Wanted, events: tuple[Occurrence, ...]) -> Result:
        deployment = self.objects.get(_key(made[0]))
        if deployment is None:
            return Result(Waiting("Progressing", "the Deployment was removed"), events=events)
        containers = deployment.spec["template"]["spec"]["containers"]
        image = next((each["image"] for each in containers if each["name"] == CONTAINER), None)
        found = deployment.status
        asked = deployment.spec.get("replicas", 1)
        ready = found.get("readyReplicas", 0)
        status = {"replicas": asked, "readyReplicas": ready, "image": image}
        message = f"{ready} of {asked} replicas are ready"
        stuck = _stuck(found)
        if stuck:
            outcome: Done | Setback = Stalled("DeploymentFailed", f"{message}; {stuck}")
        elif not _rolled_out(deployment, asked):
            outcome = Waiting("Progressing", message)
        else:
            outcome = Done("; ".join((message, *warnings(wanted, self.options))))
        return Result(outcome, status=status, events=events)


def _written_event(
    key: ObjectKey,
    manifest: Mapping[str, Any],
    last: _Applied | None,
    there: Resource | None,
    others: str,
    version: str,
) -> Occurrence:
    what = f"{key.kind} {key.name}"
    if last is not None and (there is None or last.manifest == manifest):
        by = f" by {others}" if others else ""
        why = "was removed" if there is None else f"was changed{by}"
        return Occurrence("DriftCorrected", f"{what} {why}; restored", version=version)
    return Occurrence("Applied", f"{what} {'created' if there is None else 'changed'}", version=version)


def _key(manifest: Mapping[str, Any]) -> ObjectKey:
    meta = manifest["metadata"]
    return ObjectKey(manifest["kind"], meta["namespace"], meta["name"])


def _owned(found: Resource, owner: Resource) -> bool:
    return any(each.get("uid") == owner.uid for each in found.owners)


def _same(found: Resource, written: Resource) -> bool:
    """Whether it still is as it was written, as far as we write it."""
    return (
        found.uid == written.uid
        and found.spec == written.spec
        and found.labels == written.labels
        and found.owners == written.owners
        and written.annotations.items() <= found.annotations.items()
    )


def _require_ours(found: Resource, owner: Resource) -> None:
    """Raise Stalled for an object that was made by another."""
    if _owned(found, owner) and found.labels.get(MANAGED_BY) == OURS:
        return
    kind, name = found.key.kind, found.name
    if _owned(found, owner):
        raise Stalled(
            "OwnershipConflict",
            f"{kind} {name} is OpenFeature Operator's; once that is stopped, hand it over: kubectl label "
            f"--overwrite -n {found.namespace} {kind.lower()} {name} {MANAGED_BY}={OURS}",
        )
    raise Stalled(
        "OwnershipConflict",
        f"{kind} {name} is there already and does not belong to this Flagd; remove it, or give the Flagd "
        "another name",
    )


def _stuck(status: Mapping[str, Any]) -> str:
    """Why the Deployment's controller has given up; empty while it has not."""
    for each in status.get("conditions") or ():
        if each.get("type") == "Progressing" and each.get("status") == "False":
            return str(each.get("message", ""))
    return ""


def _rolled_out(deployment: Resource, asked: int) -> bool:
    """Whether all replicas are of the newest template, and ready."""
    status = deployment.status
    counts = {status.get(name, 0) for name in _COUNTS}
    return status.get("observedGeneration", 0) >= deployment.generation and counts == {asked}
