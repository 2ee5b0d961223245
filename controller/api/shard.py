"""FlagShard: a part of a flag set that is larger than one object may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from controller.api.objects.fields import Model
from controller.api.objects.meta import ObjectKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from controller.api.objects.meta import Resource

KIND: Final = "FlagShard"


class FlagShardSpec(Model):
    """A part, immutable."""

    digest: Annotated[str, Field(min_length=1, max_length=128)]
    flag_spec: dict[str, Any]


def names(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The names in `spec.shards` of a FeatureFlagConfiguration, each once, as far as it can be read."""
    listed = spec.get("shards")
    found = (
        [str(each.get("name")) for each in listed if isinstance(each, dict)]
        if isinstance(listed, list)
        else []
    )
    return tuple(dict.fromkeys(found))


def finder(find: Callable[[ObjectKey], Resource | None], namespace: str) -> Callable[[str], Resource | None]:
    """Finds the FlagShards of a namespace by their names; `find` finds any object."""
    return lambda name: find(ObjectKey(KIND, namespace, name))
