"""FlagShard: a part of a flag set that is larger than one object may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from controller.api import kind as record
from controller.api import meta
from controller.api.fields import RuledModel, SpecRule, in_schema
from controller.api.kind import AGE_COLUMN, Kind, PrinterColumn
from controller.api.meta import API_VERSION, ObjectKey, Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


KIND: Final = meta.SHARD_KIND


class FlagShardSpec(RuledModel):
    """A part, immutable."""

    RULES = (
        SpecRule("self.digest == oldSelf.digest", "a shard never changes; another content is another shard"),
    )

    digest: Annotated[str, Field(min_length=1, max_length=128)]
    """Of flagSpec, in its canonical form."""
    flag_spec: Annotated[dict[str, Any], in_schema(x_kubernetes_map_type="atomic")]
    """The part, as flagd's JSON; in `$lists`, values of long lists of `$evaluators`."""


def names(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The names in `spec.shards` of a FeatureFlagConfiguration, each once, as far as it can be read."""
    listed = spec.get("shards")
    names = (
        [str(reference.get("name")) for reference in listed if isinstance(reference, dict)]
        if isinstance(listed, list)
        else []
    )
    return tuple(dict.fromkeys(names))


def finder(find: Callable[[ObjectKey], Resource | None], namespace: str) -> Callable[[str], Resource | None]:
    """Finds the FlagShards of a namespace by their names; `find` finds any object."""
    return lambda name: find(ObjectKey(KIND, namespace, name))


RECORD: Final = Kind(
    API_VERSION,
    KIND,
    "flagshards",
    short_name="fshard",
    description=(
        "FlagShard holds a part of one flag set. It never changes; a FeatureFlagConfiguration lists "
        "the shards that it is made of."
    ),
    spec=FlagShardSpec,
    spec_description="A part of a flag set, written once and never changed.",
    columns=(PrinterColumn("Set", ".metadata.labels.flagstaff\\.dev/flagset"), AGE_COLUMN),
    judged=False,
    status=None,
    rights=(
        record.READ_BY_CONTROLLER,
        record.SHOWN_BY_PAGE,
        record.FOLLOWED_BY_PROXY,
        record.DELIVERED_FOR_SETS,
    ),
    quota=500,
)
