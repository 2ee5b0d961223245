"""Decides whether a FlagSet may read a source of another namespace: a FlagGrant there must permit it.
Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.api import grant
from controller.api.flagset import KIND
from controller.delivery.grants import Referring, denied, granted
from controller.runtime.reconciling.setbacks import Stalled

if TYPE_CHECKING:
    from controller.api.meta import ObjectKey
    from controller.runtime.objects.cache import Cache


def require_grant(reader: str, source: ObjectKey, objects: Cache) -> None:
    """Raises Stalled, with the grant to write, unless FlagSets of the namespace `reader` may refer to
    `source`, be it there or not.
    """
    if reader == source.namespace:
        return
    who, kinds = Referring(KIND, reader), (source.kind,)
    if not granted(objects.of_kind(grant.KIND, source.namespace), who, source.name, kinds):
        raise Stalled("AccessDenied", denied(who, source.namespace, source.name, kinds))
