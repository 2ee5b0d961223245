"""Reconcilers of Flagd, and of the settings kinds of OpenFeature Operator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api import featureflagsource
from controller.api.flagd import DeploymentStatus, FlagdSpec, FlagdStatus
from controller.api.kinds import HTTP_ROUTE
from controller.api.meta import ObjectKey, Resource, version_of
from controller.pods import installation
from controller.pods.evaluator_container import container_warnings
from controller.pods.flagd_objects import CONTAINER, MANAGED_BY, OURS, ExposureRules, manifests
from controller.pods.installation import SERVED, Known, Options, PodRefused
from controller.pods.pod_injection import make_in_process
from controller.pods.pod_settings import PodSettings, read
from controller.pods.pod_settings import read as read_wanted
from controller.pods.stage import BY_OWNER
from controller.runtime.cache import Applier, Cache, at_version
from controller.runtime.event import Occurrence
from controller.runtime.result import Done, Result, spec_of
from controller.runtime.setbacks import Setback, Stalled, Waiting

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class SettingsReconciler:
    """Checks the objects with the function that injects; writes only their status."""

    known: Known
    options: Options

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Stall with the message of a refusal; wait for a missing flag set."""
        del now
        try:
            return Result(self._judge(resource))
        except PodRefused as refusal:
            return Result(Stalled("InvalidSpec", str(refusal)))
        except Setback as setback:
            return Result(setback)

    def forget(self, key: ObjectKey) -> None:
        """Do nothing: there is no state."""

    def _judge(self, resource: Resource) -> Done:
        """Raises Refused and Waiting."""
        namespace = resource.namespace
        if resource.key.kind == featureflagsource.KIND:
            wanted = read({installation.SOURCES: resource.name}, namespace, self.options, self.known)
            warned = container_warnings(wanted)
            selectors = [source["selector"] for source in wanted.follows if "provider" not in source]
            selectors += [f"{file.namespace}/{file.name}" for file in wanted.files]
        else:
            asks = {installation.IN_PROCESS: resource.name}
            addition, selector = make_in_process(asks, namespace, self.options, self.known)
            warned, selectors = addition.warnings, [selector] if selector else []
        missing = [selector for selector in selectors if not self._there(selector)]
        if missing:
            raise Waiting("FlagSetNotFound", f"there is no flag set {', '.join(missing)}")
        followed = f"follows {', '.join(selectors)}" if selectors else "follows what is not of this cluster"
        return Done("; ".join((followed, *warned)))

    def _there(self, selector: str) -> bool:
        namespace, _, name = selector.partition("/")
        try:
            self.known.flag_set(namespace, name, SERVED)
        except PodRefused:
            return False
        return True


MANAGER: Final = "flagstaff-flagd"
"""The field manager."""


class FlagdObjects(Applier, Protocol):
    """Port to the objects of a Flagd. Every method raises a Setback."""

    def impersonate(self, namespace: str, account: str | None) -> FlagdObjects:
        """The same with the rights of a Flagd's service account; None: of the installation's default one."""

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """An object's body, or None."""

    async def serves(self, api_version: str, plural: str) -> bool:
        """Whether the cluster has the kind."""


@dataclass(frozen=True, slots=True)
class _Applied:
    """The applied manifest of one object, and the resulting object."""

    manifest: Mapping[str, Any]
    written: Resource


@dataclass(frozen=True, slots=True)
class FlagdReconciler:
    """Applies the objects of a Flagd according to it and its FeatureFlagSource."""

    objects: Cache
    workloads: FlagdObjects
    known: Known
    options: Options
    exposure: ExposureRules = field(default_factory=ExposureRules)
    _taken: dict[ObjectKey, dict[ObjectKey, _Applied]] = field(default_factory=dict)
    """Applied objects by Flagd, then by object."""

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Apply the objects, delete those no longer needed, and report the state of the Deployment."""
        del now
        events: list[Occurrence] = []
        try:
            spec = spec_of(FlagdSpec, resource)
            self.exposure.check(spec)
            wanted, made = self._make_objects(resource, spec)
            workloads = self.workloads.impersonate(resource.namespace, spec.service_account_name)
            routeless = await self._apply_all(workloads, resource, made, events)
            events += await self._prune(workloads, resource, {ObjectKey.of(manifest) for manifest in made})
            result = self._result(made, wanted, tuple(events))
        except Setback as setback:
            return Result.of(setback, events=tuple(events))
        if routeless is not None:
            return Result.of(routeless, status=result.status, events=result.events)
        return result

    def forget(self, key: ObjectKey) -> None:
        """Forget a deleted Flagd; Kubernetes deletes its objects."""
        self._taken.pop(key, None)

    def _make_objects(self, resource: Resource, spec: FlagdSpec) -> tuple[PodSettings, list[dict[str, Any]]]:
        name = spec.feature_flag_source
        if self.objects.get(ObjectKey(featureflagsource.KIND, resource.namespace, name)) is None:
            raise Waiting("SourceNotFound", f"FeatureFlagSource {name} not found")
        try:
            wanted = read_wanted({installation.SOURCES: name}, resource.namespace, self.options, self.known)
        except PodRefused as refusal:
            raise Stalled("InvalidSource", str(refusal)) from refusal
        return wanted, [*manifests(resource, spec, wanted)]

    async def _apply_all(
        self, workloads: FlagdObjects, owner: Resource, made: list[dict[str, Any]], events: list[Occurrence]
    ) -> Setback | None:
        """Apply all. Raises Setback, but returns that of the HTTPRoute, which is optional."""
        for manifest in made:
            try:
                events += await self._apply(workloads, owner, manifest)
            except Setback as setback:
                if manifest["kind"] != HTTP_ROUTE.kind:
                    raise
                return setback
        return None

    async def _apply(
        self, workloads: FlagdObjects, owner: Resource, manifest: dict[str, Any]
    ) -> tuple[Occurrence, ...]:
        key = ObjectKey.of(manifest)
        taken = self._taken.setdefault(owner.key, {})
        last = taken.get(key)
        current = self.objects.get(key)
        if (
            last is not None
            and last.manifest == manifest
            and current is not None
            and _same(current, last.written)
        ):
            return ()
        if key.kind == HTTP_ROUTE.kind and not await workloads.serves(
            HTTP_ROUTE.api_version, HTTP_ROUTE.plural
        ):
            raise Waiting(
                "GatewayApiMissing",
                "the cluster has no kind HTTPRoute; install Gateway API, or set gatewayApiRoutes.enabled "
                "to false",
                delay=60.0,
            )
        if current is None:
            # It may be there without our label, which is what is watched.
            body = await workloads.get(manifest["apiVersion"], key.kind, key.namespace, key.name)
            current = None if body is None else Resource.of(body)
        if current is not None:
            _require_ours(current, owner)
        version = "" if current is None else current.resource_version
        body, others = await workloads.apply(at_version(manifest, version), manager=MANAGER)
        written = Resource.of(body)
        # The next reconcile must not read the object as it was: the event of our own write comes later.
        self.objects.learn(written)
        taken[key] = _Applied(manifest, written)
        if version_of(current) == version_of(written):
            return ()
        subject, reason, why = (
            f"{key.kind} {key.name}",
            "Applied",
            "created" if current is None else "changed",
        )
        if last is not None and (current is None or last.manifest == manifest):
            by = f" by {others}" if others else ""
            reason = "DriftCorrected"
            why = f"{'was removed' if current is None else f'was changed{by}'}; restored"
        return (Occurrence(reason, f"{subject} {why}", version=written.resource_version),)

    async def _prune(
        self, workloads: FlagdObjects, owner: Resource, wanted: set[ObjectKey]
    ) -> list[Occurrence]:
        events = []
        for resource in self.objects.find(BY_OWNER, owner.namespace, owner.name):
            if resource.key in wanted or resource.deleting or not resource.is_owned_by(owner):
                continue
            await workloads.delete(
                resource.api_version, resource.key.kind, resource.namespace, resource.name, uid=resource.uid
            )
            events.append(
                Occurrence("Pruned", f"{resource.key.kind} {resource.name} removed", version=resource.uid)
            )
        taken = self._taken.get(owner.key, {})
        for key in taken.keys() - wanted:
            del taken[key]
        return events

    def _result(
        self, made: list[dict[str, Any]], wanted: PodSettings, events: tuple[Occurrence, ...]
    ) -> Result:
        deployment = self.objects.get(ObjectKey.of(made[0]))
        if deployment is None:
            return Result(Waiting("Progressing", "the Deployment was removed"), events=events)
        containers = deployment.spec["template"]["spec"]["containers"]
        image = next((container["image"] for container in containers if container["name"] == CONTAINER), None)
        health, asked = DeploymentStatus.of(deployment), deployment.spec.get("replicas", 1)
        status = FlagdStatus(replicas=asked, ready_replicas=health.ready_replicas, image=image)
        message = f"{health.ready_replicas} of {asked} replicas are ready"
        if health.stuck:
            # Its own controller has given up.
            outcome: Done | Setback = Stalled("DeploymentFailed", f"{message}; {health.stuck}")
        elif not health.is_rolled_out(deployment.generation, asked):
            outcome = Waiting("Progressing", message)
        else:
            outcome = Done("; ".join((message, *container_warnings(wanted))))
        return Result(outcome, status=status, events=events)


def _same(current: Resource, written: Resource) -> bool:
    """Whether the fields that we write are unchanged."""
    return (
        current.uid == written.uid
        and current.spec == written.spec
        and current.labels == written.labels
        and current.owners == written.owners
        and written.annotations.items() <= current.annotations.items()
    )


def _require_ours(current: Resource, owner: Resource) -> None:
    """Raise Stalled for an object of another owner."""
    if current.is_owned_by(owner) and current.labels.get(MANAGED_BY) == OURS:
        return
    kind, name = current.key.kind, current.name
    if current.is_owned_by(owner):
        raise Stalled(
            "OwnershipConflict",
            f"{kind} {name} is OpenFeature Operator's; once that is stopped, hand it over: kubectl label "
            f"--overwrite -n {current.namespace} {kind.lower()} {name} {MANAGED_BY}={OURS}",
        )
    raise Stalled(
        "OwnershipConflict",
        f"{kind} {name} is there already and does not belong to this Flagd; remove it, or give the Flagd "
        "another name",
    )
