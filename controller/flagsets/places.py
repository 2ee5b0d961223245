"""Where the objects of a FlagSet are: in its own cluster, or in another one that its `spec.kubeConfig` names.

Another cluster is not watched: what it has of a FlagSet is read at each reconcile. Kubernetes does not delete
objects there with the FlagSet, so a finalizer keeps it until they are removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from controller.api.fields import InvalidSpecError, parse_spec
from controller.api.flagset import FINALIZER, FlagSetSpec
from controller.api.flagset_status import FlagSetStatus
from controller.api.kube_config import RemoteClusterStatus
from controller.api.meta import ObjectKey, Resource
from controller.flagsets.stage import BY_OWNER
from controller.runtime.cache import Applier, Cache
from controller.runtime.event import Occurrence
from controller.runtime.result import Done, Result
from controller.runtime.setbacks import Setback, Waiting
from evaluator.host.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from controller.api.kube_config import KubeConfig


MISSING: Final = "KubeConfigMissing"
"""The reason where the Secret or ConfigMap with the access to another cluster does not exist."""
LEFT: Final = "RemoteObjectsLeft"
"""The reason of Events about objects in another cluster that stay there."""
NOT_REMOVED: Final = "PruneFailed"
"""The reason while objects in an earlier cluster cannot be removed."""
PATIENCE: Final = timedelta(minutes=10)
"""How long a FlagSet that is deleted is kept while its objects elsewhere cannot be removed."""
MOST_LEFT: Final = 3
"""Earlier clusters of a FlagSet whose objects are still to be removed."""
_AGAIN: Final = 15.0
"""Seconds until the removal is tried again."""


class RemoteObjects(Applier, Protocol):
    """The objects of another cluster, with the rights of whoever writes there. Methods raise Setback."""

    @property
    def server(self) -> str:
        """The URL of its API server."""

    async def written_by(self, flag_set: ObjectKey) -> list[Resource]:
        """What a FlagSet of ours wrote there: with its label, and by its field manager."""

    async def find(self, key: ObjectKey) -> Resource | None:
        """One object with flags."""


class RemoteClusters(Protocol):
    """Opens other clusters."""

    async def open(self, namespace: str, config: KubeConfig, account: str | None) -> RemoteObjects:
        """The cluster that objects of the namespace name so, with the rights of a service account there;
        None: those of the kubeconfig's user. Asks our own API server alone. Raises Setback: Waiting
        (`MISSING`) where the Secret or ConfigMap does not exist.
        """

    async def set_finalizers(self, resource: Resource, finalizers: tuple[str, ...]) -> Resource | None:
        """Make `finalizers` those of an object of ours, and return it as it is now; None: it is gone. Raises
        Setback.
        """


class Place(NamedTuple):
    """Where a FlagSet's objects are."""

    objects: Cache
    """What is known there of its objects, listed by `BY_OWNER`."""
    writer: Applier
    server: str = ""
    """The URL of the API server of another cluster; empty: the FlagSet's own cluster."""


class Moved(NamedTuple):
    """What became of the objects elsewhere."""

    clusters: tuple[RemoteClusterStatus, ...] = ()
    """Other clusters that still have some."""
    events: tuple[Occurrence, ...] = ()
    problem: str = ""
    """Why some are not removed yet."""


@dataclass(frozen=True, slots=True)
class FlagSetPlaces:
    """Opens the places of FlagSets, and removes what they leave."""

    objects: Cache
    """Of our own cluster."""
    writer: Callable[[str, str | None], Applier]
    """(namespace, service account) -> who writes here."""
    clusters: RemoteClusters | None = None
    """None: every FlagSet writes here."""

    async def open(self, resource: Resource, spec: FlagSetSpec) -> Place:
        """The place that its spec names. Raises Setback."""
        if spec.kube_config is None or self.clusters is None:
            return Place(self.objects, self.writer(resource.namespace, spec.local_account))
        remote = await self.clusters.open(resource.namespace, spec.kube_config, spec.service_account_name)
        known = Cache((BY_OWNER,))
        for written in await remote.written_by(resource.key):
            known.put(written)
        for kind in spec.target.kinds:
            key = ObjectKey(kind, resource.namespace, spec.target.name or resource.name)
            # Another may have written it.
            if known.get(key) is None and (found := await remote.find(key)) is not None:
                known.put(found)
        return Place(known, remote, remote.server)

    async def hold(self, resource: Resource, spec: FlagSetSpec) -> None:
        """Keep the FlagSet, once it is deleted, until its objects elsewhere are removed. Raises Setback."""
        if spec.prune and spec.kube_config is not None:
            await self._set_finalizer(resource, present=True)

    async def leave_others(self, resource: Resource, spec: FlagSetSpec, place: Place) -> Moved:
        """Remove what the FlagSet wrote in other places than this one, or say that it stays. Raises
        Setback.
        """
        before = FlagSetStatus.of(resource).remote_clusters or ()
        # The same cluster may have two addresses.
        kept = frozenset(one.uid for one in place.objects.find(BY_OWNER, resource.namespace, resource.name))
        here: tuple[RemoteClusterStatus, ...] = ()
        events: tuple[Occurrence, ...] = ()
        if place.server and spec.kube_config is not None:
            account = spec.service_account_name
            here = (
                RemoteClusterStatus(
                    server=place.server, kube_config=spec.kube_config, service_account_name=account
                ),
            )
            events = await self._leave_own_cluster(resource, spec, kept, new=not before)
        left, problems = [], []
        for cluster in before:
            if cluster.server == place.server:
                continue
            try:
                why = await self._remove(resource, cluster, kept) if spec.prune else "spec.prune is false"
            except Setback as setback:
                left.append(cluster)
                problems.append(setback.message)
                continue
            events += (_left_event(cluster, why),) if why else ()
        for cluster in left[MOST_LEFT:]:
            events += (_left_event(cluster, "there are too many others to be removed first"),)
        moved = Moved((*here, *left[:MOST_LEFT]), events, "; ".join(problems))
        if not moved.clusters or not spec.prune:
            await self._set_finalizer(resource, present=False)
        return moved

    async def finalize(self, resource: Resource, now: datetime) -> Result:
        """Remove what a deleted FlagSet wrote elsewhere, and let it go."""
        clusters = FlagSetStatus.of(resource).remote_clusters or ()
        events: tuple[Occurrence, ...] = ()
        spec = _spec_of(resource)
        named = None if spec is None else spec.kube_config
        if spec is not None and named is not None and all(one.kube_config != named for one in clusters):
            # Its last reconcile ended before its status was written.
            account = spec.service_account_name
            last = RemoteClusterStatus(server="", kube_config=named, service_account_name=account)
            clusters = (*clusters, last)
        for cluster in clusters if resource.spec.get("prune") is not False else ():
            try:
                why = await self._remove(resource, cluster)
            except Setback as setback:
                deleted = parse_time(resource.deleted_at) or now
                if now < deleted + PATIENCE:
                    message = f"what was written elsewhere is not removed yet: {setback.message}"
                    return Result.of(Waiting("Deleting", message, delay=_AGAIN))
                why = f"it could not be removed for {PATIENCE.seconds // 60} minutes: {setback.message}"
            events += (_left_event(cluster, why),) if why else ()
        try:
            await self._set_finalizer(resource, present=False)
        except Setback as setback:
            return Result.of(setback, events=events)
        return Result(Done("what was written elsewhere is removed, or stays"), events=events)

    async def _leave_own_cluster(
        self, resource: Resource, spec: FlagSetSpec, kept: frozenset[str], *, new: bool
    ) -> tuple[Occurrence, ...]:
        """Remove what the FlagSet wrote in its own cluster before it named another one, but for the uids
        `kept`. `new`: it is to be said that this stays.
        """
        found = self.objects.find(BY_OWNER, resource.namespace, resource.name)
        written = [one for one in found if one.uid not in kept]
        if written and not spec.prune:
            message = "what the FlagSet wrote in its own cluster stays there, since spec.prune is false"
            return (Occurrence(LEFT, message, warning=True),) if new else ()
        for one in written:
            await _delete(self.writer(resource.namespace, None), one)
        return ()

    async def _remove(
        self, resource: Resource, cluster: RemoteClusterStatus, kept: frozenset[str] = frozenset()
    ) -> str:
        """Remove what the FlagSet wrote in a cluster, but for the uids `kept`. Returns why it stays for good;
        empty: it is removed.
        """
        if self.clusters is None:
            return "no other cluster is reached"
        try:
            remote = await self.clusters.open(
                resource.namespace, cluster.kube_config, cluster.service_account_name
            )
        except Waiting as waiting:
            if waiting.reason != MISSING:
                raise
            return waiting.message
        if cluster.server not in {"", remote.server}:
            return f"{cluster.kube_config} names {remote.server} by now"
        for one in await remote.written_by(resource.key):
            if one.uid not in kept:
                await _delete(remote, one)
        return ""

    async def _set_finalizer(self, resource: Resource, *, present: bool) -> None:
        latest = self.objects.get(resource.key) or resource
        if self.clusters is None or (FINALIZER in latest.finalizers) == present:
            return
        others = tuple(one for one in latest.finalizers if one != FINALIZER)
        written = await self.clusters.set_finalizers(latest, (*others, FINALIZER) if present else others)
        if written is not None and (written.finalizers or not written.deleting):
            self.objects.learn(written)


async def _delete(writer: Applier, one: Resource) -> None:
    await writer.delete(one.api_version, one.key.kind, one.namespace, one.name, uid=one.uid)


def _spec_of(resource: Resource) -> FlagSetSpec | None:
    try:
        return parse_spec(FlagSetSpec, resource)
    except InvalidSpecError:
        return None


def _left_event(cluster: RemoteClusterStatus, why: str) -> Occurrence:
    where = f"cluster {cluster.server}" if cluster.server else f"the cluster of {cluster.kube_config}"
    return Occurrence(LEFT, f"what the FlagSet wrote in {where} stays there: {why}", warning=True)
