"""What a FlagSet refers to, as far as its spec can be read, and whether it may read the source. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.api import grant
from controller.api.flagset import KIND
from controller.delivery.grants import Referring, denied, granted
from controller.runtime.reconciling.setbacks import Stalled

if TYPE_CHECKING:
    from controller.api.meta import ObjectKey, Resource
    from controller.runtime.objects.cache import Cache


def listed(flag_set: Resource, field: str) -> list[dict[str, Any]]:
    """The objects in a list of the spec."""
    found = flag_set.spec.get(field)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def may_read(reader: str, source: ObjectKey, objects: Cache) -> bool:
    """Whether FlagSets of `reader`, a namespace, may refer to `source`: elsewhere by a FlagGrant alone."""
    if reader == source.namespace:
        return True
    grants = objects.of_kind(grant.KIND, source.namespace)
    return bool(granted(grants, Referring(KIND, reader), source.name, (source.kind,)))


def require_grant(reader: str, source: ObjectKey, objects: Cache) -> None:
    """Raises Stalled, with the grant to write, unless `may_read`."""
    if not may_read(reader, source, objects):
        message = denied(Referring(KIND, reader), source.namespace, source.name, (source.kind,))
        raise Stalled("AccessDenied", message)
