"""The states of flag sets of a cluster, of what the user may read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.api import kinds
from controller.delivery.state.set_reading import STATE_KINDS, by_member, read_sets
from controller.runtime.clock import now
from controller.runtime.reconciling.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.api.kinds import ResourceType
    from controller.api.objects.meta import ObjectKey, Resource
    from controller.cli.cluster.connection import Connection
    from controller.delivery.state.set_state import SetState

STATE_TYPES = tuple(type_ for type_ in kinds.WATCHED if type_.kind in STATE_KINDS)
"""The kinds of which a state is read."""


@dataclass(frozen=True, slots=True)
class ReadSets:
    """Objects, and the flag sets that they make."""

    resources: Sequence[Resource]
    states: dict[ObjectKey, SetState]
    """By object and by FlagSet."""


async def read_states(connection: Connection, *types: ResourceType) -> ReadSets:
    """The objects of these kinds, and the states of all flag sets. Kinds that only the states are read from
    may be denied to the user. Raises Setback.
    """
    resources = await connection.resources(*types)
    known, unknown = [*resources], []
    for type_ in STATE_TYPES:
        if type_ in types:
            continue
        try:
            known += await connection.resources(type_)
        except Failed as failure:
            if failure.reason != "AccessDenied":
                raise
            unknown.append(type_.kind)
    return ReadSets(resources, by_member(read_sets(known, now(), unknown=unknown)))
