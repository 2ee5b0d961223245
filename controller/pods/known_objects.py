"""The objects that a pod's annotations name, kept current by a watch of each kind."""

from __future__ import annotations

import contextlib
import difflib
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from controller.api import flaggrant, flagset
from controller.api.featureflagconfiguration import ConfigurationStatus
from controller.api.flagset_status import FlagSetStatus
from controller.api.kind import ADMISSION
from controller.api.kinds import NAMESPACE, watched_by
from controller.api.meta import ObjectKey, Resource
from controller.delivery.claims import claim_of
from controller.delivery.grants import denial_message, granted_kinds, pods
from controller.pods import installation
from controller.pods.installation import FLAG_SETS, SERVED, FlagSetFound, NotThere, PodRefused
from controller.runtime.cache import Cache, take

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class KnownObjects:
    """Implements injection's `Known`."""

    objects: Cache
    namespaces: Sequence[str]
    """The namespaces that the controller works in; empty: all."""
    open: bool = False
    """Whether pods may refer to other namespaces without a grant, as with OpenFeature Operator."""
    flag_set_ids: Mapping[ObjectKey, str] = field(default_factory=dict)
    """The flagSetIds of objects."""

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
        flag_set_id = next((self.flag_set_ids[key] for key in keys if key in self.flag_set_ids), "")
        return FlagSetFound(name, f"{served.key.kind}/{served.name}", revision or "", flag_set_id)


WATCHED: Final = watched_by(ADMISSION)
_TYPES: Final = {type_.kind: type_ for type_ in WATCHED}


class WatchedObjects:
    """Implements the Reflector's `Sink`."""

    def __init__(self, namespaces: Collection[str]) -> None:
        """`namespaces` are watched one by one; an empty name is all of them."""
        self.objects = Cache()
        self.flag_set_ids: dict[ObjectKey, str] = {}
        """Of the objects in `objects` that have one."""
        self._ordered: dict[str, Mapping[str, str]] = {}
        self._unlisted = set(itertools.product(_TYPES, namespaces))

    @property
    def synced(self) -> bool:
        """Whether all objects are known: before that, none can be called missing."""
        return not self._unlisted

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        """Store an object. The flags of a flag set are left out: pods ask for its name, flagSetId and
        revision alone.
        """
        if kind == NAMESPACE.kind:
            self._learn_namespace(body)
            return
        if kind in SERVED:
            self._learn_flag_set_id(kind, body)
        take(self.objects, _TYPES[kind], body)

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Remove a deleted object."""
        self.objects.forget(ObjectKey(kind, namespace, name))
        self.flag_set_ids.pop(ObjectKey(kind, namespace, name), None)
        if kind == NAMESPACE.kind:
            self._ordered.pop(name, None)

    def end_listing(self, kind: str, namespace: str) -> None:
        """Note that all objects of this kind and namespace were reported."""
        self._unlisted.discard((kind, namespace))

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a Namespace with a standing order; None: it has none, or is not known yet."""
        return self._ordered.get(name)

    def _learn_namespace(self, body: Mapping[str, Any]) -> None:
        meta = body.get("metadata") or {}
        self._ordered[str(meta.get("name"))] = dict(meta.get("labels") or {})

    def _learn_flag_set_id(self, kind: str, body: dict[str, Any]) -> None:
        spec = body.pop("spec", None)
        with contextlib.suppress(KeyError, TypeError, AttributeError):
            resource = Resource.of({**body, "kind": kind})
            wanted = claim_of(resource, spec if isinstance(spec, dict) else {}).flag_set_id
            self.flag_set_ids.pop(resource.key, None)
            if wanted:
                self.flag_set_ids[resource.key] = wanted
