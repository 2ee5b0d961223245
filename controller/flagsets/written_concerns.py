"""What the status of the object that a FlagSet has written says for people, repeated on the FlagSet. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.api.flagset import target_name
from controller.api.objects.conditions import NAME_CONFLICT, OVERRIDE_ACTIVE, ROLLOUT_ACTIVE, TRUE, Condition
from controller.api.objects.meta import ObjectKey
from controller.api.openfeature import featureflagconfiguration
from controller.api.openfeature.featureflagconfiguration import ConfigurationStatus
from controller.flagsets.applying.plan import belongs_to

if TYPE_CHECKING:
    from controller.api.objects.meta import Resource
    from controller.runtime.objects.cache import Cache


def written_concerns(flag_set: Resource, objects: Cache) -> tuple[Condition, ...]:
    """The conflict if another object has the name or the flagSetId of what the FlagSet wrote, and overrides
    and rollouts of its flags.
    """
    key = ObjectKey(featureflagconfiguration.KIND, flag_set.namespace, target_name(flag_set))
    written = objects.get(key)
    if written is None or not belongs_to(written, flag_set.name):
        return ()
    status = ConfigurationStatus.of(written)
    name = f"{written.key.kind} {written.name}"
    conflicts = status.conditions_of(NAME_CONFLICT)
    named = (Condition(NAME_CONFLICT, TRUE, c.reason, f"{name}: {c.message}") for c in conflicts)
    repeated = (c for type_ in (OVERRIDE_ACTIVE, ROLLOUT_ACTIVE) for c in status.conditions_of(type_))
    return (*named, *(Condition(c.type, TRUE, c.reason, c.message) for c in repeated))
