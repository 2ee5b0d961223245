"""The objects that a pod's annotations name, kept current by a watch of each kind."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from controller.api import flaggrant, flagset
from controller.api.featureflagconfiguration import ConfigurationStatus
from controller.api.flagset_status import FlagSetStatus
from controller.api.kind import ADMISSION
from controller.api.kinds import NAMESPACE, watched_by
from controller.api.meta import NOTHING, OPENFEATURE_VERSION, ObjectKey, Resource
from controller.delivery.claims import claim_of
from controller.delivery.grants import denial_message, granted_kinds, pods
from controller.pods import installation
from controller.pods.installation import FLAG_SETS, SERVED, FlagSetFound, NotThere, PodRefused
from controller.runtime.cache import Cache
from controller.runtime.informer import Informer, Transform, transforms_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class KnownObjects:
    """Implements injection's `Known`."""

    objects: Cache
    namespaces: Sequence[str]
    """The namespaces that the controller works in; empty: all."""
    open: bool = False
    """Whether pods may refer to other namespaces without a grant, as with OpenFeature Operator."""
    flag_set_id: Callable[[ObjectKey], str] = lambda _key: ""
    """Returns the flagSetId of an object with flags; empty: it has none."""

    def refer(
        self, reader: str, kinds: Sequence[str], namespace: str, name: str
    ) -> tuple[tuple[str, ...], str]:
        """See Known."""
        who = pods(reader)
        granted = granted_kinds(self.objects.of_kind(flaggrant.KIND, namespace), who, name, kinds)
        if granted:
            return granted, ""
        message = denial_message(who, namespace, name, kinds)
        if not self.open:
            raise PodRefused(message)
        return tuple(kinds), f"{message} (--allow-cross-namespace=ofo lets it pass)"

    def flag_set(self, namespace: str, name: str, kinds: Sequence[str] = FLAG_SETS) -> FlagSetFound:
        """See Known."""
        for kind in kinds:
            served = self.objects.get(ObjectKey(kind, namespace, name))
            if served is not None:
                return self._describe(served)
        kind_names = " or ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))
        raise self._absence(kind_names, kinds, namespace, name)

    def spec(self, kind: str, namespace: str, name: str) -> Mapping[str, Any]:
        """See Known."""
        resource = self.objects.get(ObjectKey(kind, namespace, name))
        if resource is None:
            raise self._absence(kind, (kind,), namespace, name)
        return resource.spec

    def _absence(self, kind_names: str, kinds: Iterable[str], namespace: str, name: str) -> PodRefused:
        if self.namespaces and namespace not in self.namespaces:
            return PodRefused(
                f"namespace {namespace}: the controller works in {', '.join(self.namespaces)} alone; "
                f"add it to its option --namespaces, or set {installation.ENABLED} to false"
            )
        names = sorted(
            {resource.name for kind in kinds for resource in self.objects.of_kind(kind, namespace)}
        )
        # A hundred names of this length take some milliseconds, whatever tenants call their objects.
        near = difflib.get_close_matches(
            name[:63], [candidate for candidate in names[:100] if len(candidate) <= 63], n=1
        )
        return NotThere(
            f"namespace {namespace} has no {kind_names} {name}; create it, or correct the name"
            + (f" (did you mean {near[0]}?)" if near else "")
        )

    def _describe(self, served: Resource) -> FlagSetFound:
        """Return the served object: a FlagSet may write one of another name."""
        if served.key.kind == flagset.KIND:
            name, revision = flagset.target_name(served), FlagSetStatus.of(served).last_applied_revision
        else:
            name, revision = served.name, ConfigurationStatus.of(served).revision
        keys = (ObjectKey(kind, served.namespace, name) for kind in SERVED)
        flag_set_id = next(filter(None, map(self.flag_set_id, keys)), "")
        return FlagSetFound(name, f"{served.key.kind}/{served.name}", revision or "", flag_set_id)


WATCHED: Final = watched_by(ADMISSION)
_KINDS: Final = tuple(type_.kind for type_ in WATCHED)
_FLAG_SET_ID: Final = "flagSetId"


class WatchedObjects:
    """What admission keeps: of a flag set no flags: pods ask for its name, flagSetId and revision alone."""

    def __init__(self, namespaces: Collection[str]) -> None:
        """`namespaces` are watched one by one; an empty name is all of them."""
        self.objects = Cache()
        transforms = {**transforms_of(WATCHED), NAMESPACE.kind: _ordered_namespace}
        transforms |= {kind: _without_flags(kind) for kind in SERVED}
        self.informer = Informer(self.objects, transforms)
        self._namespaces = namespaces

    @property
    def synced(self) -> bool:
        """Whether all objects are known: before that, none can be called missing."""
        return self.informer.has_listed(_KINDS, self._namespaces)

    def flag_set_id(self, key: ObjectKey) -> str:
        """Return the flagSetId of an object with flags; empty: it has none."""
        resource = self.objects.get(key)
        return "" if resource is None else str(resource.spec.get(_FLAG_SET_ID, ""))

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a Namespace with a standing order; None: it has none, or is not known yet."""
        namespace = self.objects.get(ObjectKey(NAMESPACE.kind, "", name))
        return None if namespace is None else namespace.labels


def _ordered_namespace(body: Mapping[str, Any], _known: Resource | None) -> Resource:
    meta = body["metadata"]
    labels = meta.get("labels") or {}
    return Resource(ObjectKey(NAMESPACE.kind, "", meta["name"]), "", 0, "", labels=labels)


def _without_flags(kind: str) -> Transform:
    def transform(body: Mapping[str, Any], _known: Resource | None) -> Resource:
        named = {"apiVersion": OPENFEATURE_VERSION, "kind": kind, "metadata": body["metadata"]}
        resource = Resource.of({**named, "status": body.get("status")})
        spec = body.get("spec")
        flag_set_id = claim_of(resource, spec if isinstance(spec, dict) else {}).flag_set_id
        return replace(resource, spec={_FLAG_SET_ID: flag_set_id} if flag_set_id else NOTHING)

    return transform
