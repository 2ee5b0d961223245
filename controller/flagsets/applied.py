"""The last good flag set, read back from the cluster: a standby with an empty disk decides as the leader did. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.api import configuration, shard
from controller.api.configuration import MissingShardsError, flag_document
from controller.api.fields import InvalidSpecError
from controller.api.meta import ObjectKey
from controller.flagsets.plan import belongs_to
from evaluator.flags.parse import parse

if TYPE_CHECKING:
    from controller.api.flagset import FlagSetSpec
    from controller.api.meta import Resource
    from controller.runtime.loop import Objects
    from evaluator.flags.model import FlagSet


def last_applied(resource: Resource, spec: FlagSetSpec, objects: Objects) -> FlagSet | None:
    """What the FlagSet wrote last, with its provenance and its held flags; None where nothing of it can be read."""
    name = spec.target.name or resource.name
    for kind in (configuration.KIND, configuration.FLAG_KIND):
        found = objects.get(ObjectKey(kind, resource.namespace, name))
        if found is not None and belongs_to(found, resource.name):
            flag_set = read_back(found, objects)
            if flag_set is not None:
                return flag_set
    return None


def read_back(found: Resource, objects: Objects) -> FlagSet | None:
    """The flag set that a FeatureFlagConfiguration or FeatureFlag delivers, or None where it is not whole."""

    def part(name: str) -> Resource | None:
        return objects.get(ObjectKey(shard.KIND, found.namespace, name))

    try:
        document = flag_document(found, part)
    except (InvalidSpecError, MissingShardsError):
        return None
    parsed = parse(document.content, file=f"{found.key.kind}/{found.name}")
    return None if parsed.whole_bad else parsed.flag_set
