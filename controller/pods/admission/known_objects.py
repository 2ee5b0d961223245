"""Finds the objects that a pod's annotations name among those that the controller knows. Pure."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controller.api import flaggrant, flagset
from controller.api.flagset_status import FlagSetStatus
from controller.api.objects.meta import ObjectKey
from controller.api.openfeature.featureflagconfiguration import ConfigurationStatus
from controller.delivery.grants import denial_message, granted_kinds, pods
from controller.pods.settings import well_known
from controller.pods.settings.installation import FLAG_SETS, SERVED, FlagSetFound, NotThere, Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from controller.api.objects.meta import Resource
    from controller.runtime.objects.cache import Cache


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
            raise Refused(message)
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

    def _absence(self, kind_names: str, kinds: Iterable[str], namespace: str, name: str) -> Refused:
        if self.namespaces and namespace not in self.namespaces:
            return Refused(
                f"namespace {namespace}: the controller works in {', '.join(self.namespaces)} alone; "
                f"add it to its option --namespaces, or set {well_known.ENABLED} to false"
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
