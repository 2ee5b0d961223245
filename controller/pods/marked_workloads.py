"""Workloads that admission has marked, and the FeatureFlagConfiguration of each. No I/O."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

from controller.api import flagset
from controller.api.featureflagconfiguration import FLAG_KIND, KIND
from controller.api.flagreceipt import OBSERVED_AT
from controller.api.kinds import FLAG_CARRIERS
from controller.api.meta import NOTHING, OPENFEATURE_VERSION, ObjectKey, Resource
from controller.pods import installation
from controller.pods.carried_flags import KINDS, carried_flags, is_run_of_cron_job, record_in
from controller.pods.installation import DIRECT_SET, PodRefused
from controller.runtime.cache import Cache, Change
from controller.runtime.informer import Informer, Transform
from evaluator.flags.canonical import canonical
from evaluator.flags.model import AUTHOR_KEY, COMMITTED_AT_KEY, REVISION_KEY, FlagSet

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


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

    @classmethod
    def of(cls, kept: Resource) -> Self:
        """Return the workload that `kept` holds."""
        return cls(replace(kept, spec=NOTHING), **kept.spec)

    def to_keep(self) -> Resource:
        """Return the workload as a store holds it."""
        names = ("text", "where", "by", "at", "refusal")
        return replace(self.resource, spec={name: getattr(self, name) for name in names})


class MarkedWorkloads:
    """The marked ones of FLAG_CARRIERS. `wake` receives the key of each workload that is new, deleted, no
    longer marked, or whose flags changed.
    """

    def __init__(
        self, views: Collection[str], wake: Callable[[ObjectKey], None], *, authors: bool = True
    ) -> None:
        """`views`: the namespaces that are listed, an empty one for all; `authors`: whether the names of
        users are kept.
        """
        self.informer = Informer(Cache(), {kind: _transform(kind, authors=authors) for kind in KINDS})
        self.informer.store.react(self._on_change)
        self._wake = wake
        self._views = views

    @property
    def has_listed(self) -> bool:
        """Whether all workloads were reported."""
        return self.informer.has_listed(KINDS, self._views)

    async def wait_listed(self) -> None:
        """Wait until all workloads were reported."""
        await self.informer.wait_listed(KINDS, self._views)

    def get(self, key: ObjectKey) -> MarkedWorkload | None:
        """The workload, if it is marked."""
        kept = self.informer.store.get(key)
        return None if kept is None else MarkedWorkload.of(kept)

    def all(self) -> list[ObjectKey]:
        """The keys of all marked workloads."""
        return [kept.key for kept in self.informer.store]

    def keys_named(self, namespace: str, name: str) -> list[ObjectKey]:
        """The keys of the marked workloads of one name."""
        keys = (ObjectKey(kind, namespace, name) for kind in KINDS)
        return [key for key in keys if self.informer.store.get(key) is not None]

    def _on_change(self, change: Change) -> None:
        before, after = change.before, change.after
        if before is None or after is None or _content(before) != _content(after):
            self._wake(change.latest.key)


def _transform(kind: str, *, authors: bool) -> Transform:
    def transform(body: Mapping[str, Any], _known: Resource | None) -> Resource:
        workload = _marked_workload(kind, body)
        return (workload if authors else replace(workload, by="")).to_keep()

    return transform


def _marked_workload(kind: str, body: Mapping[str, Any]) -> MarkedWorkload:
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


def _content(kept: Resource) -> object:
    return kept.uid, kept.deleting, kept.spec


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
