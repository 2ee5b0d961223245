"""The objects that pods may name, kept current by a watch of each kind."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import (
    FEATURE_FLAG,
    FEATURE_FLAG_CONFIGURATION,
    FEATURE_FLAG_SOURCE,
    FLAG_GRANT,
    FLAG_SET,
    IN_PROCESS_CONFIGURATION,
)
from controller.api.objects.meta import ObjectKey
from controller.pods.injection.installation import SERVED
from controller.runtime.objects.cache import Cache, take

if TYPE_CHECKING:
    from collections.abc import Collection

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
        self._unlisted = set(itertools.product(_TYPES, namespaces))

    @property
    def synced(self) -> bool:
        """Whether all objects are known: before that, none can be called missing."""
        return not self._unlisted

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        """Store an object. The flags of a flag set are left out: pods ask for its name and revision alone."""
        body.pop("spec" if kind in SERVED else "", None)
        take(self.objects, _TYPES[kind], body)

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Remove a deleted object."""
        self.objects.forget(ObjectKey(kind, namespace, name))

    def end_listing(self, kind: str, namespace: str) -> None:
        """Note that all objects of this kind and namespace were reported."""
        self._unlisted.discard((kind, namespace))
