"""The last good flag set, read back from the cluster, so that no replica needs a disk for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.api import flagshard
from controller.api.objects.fields import InvalidSpecError
from controller.api.openfeature import featureflagconfiguration
from controller.api.openfeature.featureflagconfiguration import MissingShardsError, flag_document
from controller.flagsets.stage import BY_OWNER
from evaluator.flags.canonical import digest
from evaluator.flags.layers.merge import parse
from evaluator.flags.model import DIGEST_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.api.flagset import FlagSetSpec
    from controller.api.objects.meta import Resource
    from controller.runtime.objects.cache import Cache
    from evaluator.flags.model import FlagSet


@dataclass(frozen=True, slots=True)
class LastDelivered:
    """What was delivered before."""

    flag_set: FlagSet
    """The flag set with its provenance and its held flags."""
    edited: str = ""
    """`FeatureFlagConfiguration shop`, where that object is not what the FlagSet wrote."""


def objects_written_by(resource: Resource, spec: FlagSetSpec, objects: Cache) -> list[Resource]:
    """The objects with flags that the FlagSet wrote, those of its present target name first."""
    written = [
        known
        for known in objects.find(BY_OWNER, resource.namespace, resource.name)
        if known.key.kind in {featureflagconfiguration.KIND, featureflagconfiguration.FLAG_KIND}
    ]
    name = spec.target.name or resource.name
    return sorted(
        written, key=lambda known: (known.name != name, known.key.kind != featureflagconfiguration.KIND)
    )


def last_applied(written: Iterable[Resource], objects: Cache) -> LastDelivered | None:
    """What the first unedited object of `written` delivers, else the first edited one, else None."""
    edited: LastDelivered | None = None
    for known in written:
        flag_set = read_back(known, objects)
        if flag_set is None:
            continue
        if flag_set.metadata.get(DIGEST_KEY) == digest(flag_set):
            return LastDelivered(flag_set)
        edited = edited or LastDelivered(flag_set, f"{known.key.kind} {known.name}")
    return edited


def read_back(written: Resource, objects: Cache) -> FlagSet | None:
    """Return the flag set that an object delivers, or None if the object is incomplete."""
    try:
        document = flag_document(written, flagshard.finder(objects.get, written.namespace))
    except (InvalidSpecError, MissingShardsError):
        return None
    parsed = parse(document.content, file=f"{written.key.kind}/{written.name}.json")
    return None if parsed.whole_bad else parsed.flag_set
