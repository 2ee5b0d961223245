"""Workloads that admission has marked, and the FeatureFlagConfiguration of each. No I/O."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagset
from controller.api.featureflagconfiguration import FLAG_KIND, KIND
from controller.api.flagreceipt import OBSERVED_AT
from controller.api.kinds import FLAG_CARRIERS
from controller.api.meta import OPENFEATURE_VERSION, ObjectKey, Resource
from controller.pods import installation
from controller.pods.carried_flags import KINDS, carried_flags, is_run_of_cron_job, record_in
from controller.pods.installation import DIRECT_SET, PodRefused
from evaluator.flags.canonical import canonical
from evaluator.flags.model import AUTHOR_KEY, COMMITTED_AT_KEY, REVISION_KEY, FlagSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from controller.runtime.cache import Cache


_VERSIONS = {type_.kind: type_.api_version for type_ in FLAG_CARRIERS}


@dataclass(frozen=True, slots=True)
class MarkedWorkload:
    """What matters of a workload."""

    resource: Resource
    """The workload without its content."""
    text: str
    """The flags that it carries."""
    where: str
    """Their place, as messages name it."""
    by: str
    """Who applied the flags; empty where that is not known, or not to be said."""
    at: str
    """When; RFC 3339."""
    refusal: str = ""
    """Why its flags cannot be read; empty where they can."""

    @property
    def key(self) -> ObjectKey:
        """Kind, namespace and name."""
        return self.resource.key


class MarkedWorkloads:
    """Implements `kube.reflector.Sink` for each of FLAG_CARRIERS. `wake` receives the key of each workload
    that is new, deleted, no longer marked, or whose flags changed.
    """

    def __init__(
        self, views: Iterable[str], wake: Callable[[ObjectKey], None], *, authors: bool = True
    ) -> None:
        """`views`: the namespaces that are listed, an empty one for all; `authors`: whether the names of
        users are kept.
        """
        self.known = asyncio.Event()
        """Set once all workloads were reported."""
        self._wake = wake
        self._authors = authors
        self._unlisted = set(itertools.product(KINDS, views))
        self._workloads: dict[ObjectKey, MarkedWorkload] = {}

    def get(self, key: ObjectKey) -> MarkedWorkload | None:
        """The workload, if it is marked."""
        return self._workloads.get(key)

    def all(self) -> list[ObjectKey]:
        """The keys of all marked workloads."""
        return list(self._workloads)

    def keys_named(self, namespace: str, name: str) -> list[ObjectKey]:
        """The keys of the marked workloads of one name."""
        keys = (ObjectKey(kind, namespace, name) for kind in KINDS)
        return [key for key in keys if key in self._workloads]

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        """Take in the state of a workload."""
        workload = _marked_workload(kind, body)
        if not self._authors:
            workload = replace(workload, by="")
        known = self._workloads.get(workload.key)
        self._workloads[workload.key] = workload
        if known is None or _content(known) != _content(workload):
            self._wake(workload.key)

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Remove a workload that was deleted, or is marked no longer."""
        key = ObjectKey(kind, namespace, name)
        if self._workloads.pop(key, None) is not None:
            self._wake(key)

    def end_listing(self, kind: str, namespace: str) -> None:
        """Note that all workloads of this kind and namespace were reported."""
        self._unlisted.discard((kind, namespace))
        if not self._unlisted:
            self.known.set()


def _marked_workload(kind: str, body: dict[str, Any]) -> MarkedWorkload:
    # A list leaves out what its items are.
    body = {**body, "apiVersion": _VERSIONS[kind], "kind": kind}
    meta = {name: text for name, text in body["metadata"].items() if name not in {"annotations", "labels"}}
    resource = Resource.of({"apiVersion": body["apiVersion"], "kind": kind, "metadata": meta})
    if is_run_of_cron_job(body):
        # Admission lets it through as it is, so its record may name anybody.
        return MarkedWorkload(resource, "", "", "", "", "its CronJob carries the flags; remove the label")
    record = record_in(body)
    by, at = str(record.get("by", "")), str(record.get("at", ""))
    try:
        carried = carried_flags(body)
    except PodRefused as refusal:
        return MarkedWorkload(resource, "", "", by, at, str(refusal))
    if carried is None:
        # The label was written by hand: admission would have removed it.
        return MarkedWorkload(resource, "", "", by, at, "it carries no flags; remove the label")
    return MarkedWorkload(resource, carried.text, carried.where, by, at)


def _content(workload: MarkedWorkload) -> object:
    resource = workload.resource
    return (
        resource.uid,
        resource.deleting,
        workload.text,
        workload.where,
        workload.by,
        workload.at,
        workload.refusal,
    )


MANAGER: Final = "flagstaff-direct-sets"
"""The field manager of sets of workloads."""


def name_refusal(objects: Cache, workload: ObjectKey) -> str:
    """Why the flags of a workload cannot get its name, and what to do; empty where they can."""
    namespace, name = workload.namespace, workload.name
    configuration = objects.get(ObjectKey(KIND, namespace, name))
    holder = _flag_set(objects, namespace, name) or _other_maker(configuration, workload)
    if not holder and objects.get(ObjectKey(FLAG_KIND, namespace, name)) is not None:
        holder = f"a {FLAG_KIND}"
    if not holder:
        return ""
    return (
        f"the flags of {workload.kind} {name} are served under its name, which {holder} has already; rename "
        f"one of the two, or remove the annotation and follow what is there with {installation.FLAG_SET}"
    )


def is_set_of(configuration: Resource, workload: ObjectKey) -> bool:
    """Whether a FeatureFlagConfiguration was made of the annotation of this workload, or of one that had its
    kind and name before: it may have been kept when that was deleted.
    """
    owned_by = {(owner.get("kind"), owner.get("name")) for owner in configuration.owners}
    # Kubernetes removes the owner of what is kept. The label alone proves nothing: anybody may write it.
    proven = owned_by == {(workload.kind, workload.name)} or (
        not owned_by and MANAGER in configuration.managers
    )
    return proven and configuration.labels.get(installation.DIRECT_SET) == workload.kind


def _flag_set(objects: Cache, namespace: str, name: str) -> str:
    """The FlagSet that writes, or will write, an object of this name; empty: none."""
    for resource in objects.of_kind(flagset.KIND, namespace):
        target = resource.spec.get("target")
        named = target.get("name") if isinstance(target, dict) else None
        if (named or resource.name) == name:
            return f"FlagSet {resource.name}"
    return ""


def _other_maker(configuration: Resource | None, workload: ObjectKey) -> str:
    if configuration is None or is_set_of(configuration, workload):
        return ""
    kind = configuration.labels.get(installation.DIRECT_SET)
    return f"{kind} {configuration.name} with flags of its own" if kind else f"another {KIND}"


GENERATION: Final = "flagstaff.dev/workload-generation"
"""The annotation with the workload's generation when its flags were written."""


def set_manifest(workload: MarkedWorkload, flag_set: FlagSet) -> dict[str, Any]:
    """The object, named after the workload and owned by it, with provenance in its annotations and, for
    answers, in the set's metadata.
    """
    key, digest = workload.key, hashlib.sha256(workload.text.encode(errors="surrogatepass")).hexdigest()
    given = {
        REVISION_KEY: f"{key.kind}/{key.name}@sha256:{digest}",
        AUTHOR_KEY: workload.by,
        COMMITTED_AT_KEY: workload.at,
    }
    provenance = {name: text for name, text in given.items() if text}
    metadata = MappingProxyType({**flag_set.metadata, **provenance})
    observed = {OBSERVED_AT: workload.at} if workload.at else {}
    return {
        "apiVersion": OPENFEATURE_VERSION,
        "kind": KIND,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {DIRECT_SET: key.kind},
            "annotations": {**provenance, **observed, GENERATION: str(workload.resource.generation)},
            "ownerReferences": [workload.resource.owner_reference],
        },
        "spec": {"flagSpec": json.loads(canonical(replace(flag_set, metadata=metadata), provenance=True))},
    }


def is_written(current: Resource | None, manifest: Mapping[str, Any]) -> bool:
    """Whether the object is as the manifest has it. A newer generation of the workload alone is none."""
    if current is None:
        return False
    meta = manifest["metadata"]
    wanted = {name: text for name, text in meta["annotations"].items() if name != GENERATION}
    (owner,) = meta["ownerReferences"]
    return (
        current.spec == manifest["spec"]
        and meta["labels"].items() <= current.labels.items()
        and wanted.items() <= current.annotations.items()
        and [reference.get("uid") for reference in current.owners] == [owner["uid"]]
    )
