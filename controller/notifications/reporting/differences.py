"""What differs between two flag sets as they are delivered. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.api import shard
from controller.api.configuration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.api.meta import ObjectKey
from controller.delivery.changed_flags import changed_flags
from controller.delivery.delivered import delivered
from evaluator.flags.diff import diff

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.meta import Resource
    from controller.runtime.objects.cache import Cache
    from evaluator.flags.model import FlagSet

MOST_LINES: Final = 100
_ID: Final = "flagSetId"
UNKNOWN: Final = "unknown: not both are whole"


def difference(objects: Cache, base: Resource, thing: Resource) -> str:
    """A line for each flag that evaluates otherwise in FlagSet `thing` than in `base`; empty where none does.
    Takes long for large sets.
    """
    old, new = (_flags(objects, each) for each in (base, thing))
    if old is None or new is None:
        return UNKNOWN
    return "\n".join(changed_flags(old, new, diff(old, new), MOST_LINES))


def _flags(objects: Cache, flag_set: Resource) -> FlagSet | None:
    """As the first object that the FlagSet writes has them; None where they are not whole."""
    namespace = flag_set.namespace
    for each in flag_set.status.get("target") or ():
        found = objects.get(ObjectKey(str(each.get("kind")), namespace, str(each.get("name"))))
        if found is not None:
            return _delivered(found, lambda name: objects.get(ObjectKey(shard.KIND, namespace, name)))
    return None


def _delivered(resource: Resource, part: Callable[[str], Resource | None]) -> FlagSet | None:
    try:
        found = delivered(resource, part).flag_set
    except (InvalidSpecError, MissingShardsError):
        return None
    # Both sets have an id of their own, and no flag answers otherwise for that.
    metadata = {name: value for name, value in found.metadata.items() if name != _ID}
    return replace(found, metadata=metadata)
