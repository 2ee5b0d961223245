"""The objects that pods may name, kept current by a watch of each kind."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import (
    FEATURE_FLAG,
    FEATURE_FLAG_CONFIGURATION,
    FEATURE_FLAG_SOURCE,
    FLAG_GRANT,
    FLAG_SET,
    IN_PROCESS_CONFIGURATION,
    NAMESPACE,
)
from controller.api.objects.meta import ObjectKey, Resource
from controller.delivery.claim import claim_of
from controller.pods.settings.installation import SERVED
from controller.runtime.objects.cache import Cache, take

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

WATCHED: Final = (
    FLAG_SET,
    FEATURE_FLAG_CONFIGURATION,
    FEATURE_FLAG,
    FLAG_GRANT,
    FEATURE_FLAG_SOURCE,
    IN_PROCESS_CONFIGURATION,
)
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
