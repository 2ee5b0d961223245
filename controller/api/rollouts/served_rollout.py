"""What the status of an object with flags says of the rollouts of its flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from controller.api.objects.fields import Model
from controller.api.objects.schema_words import in_schema

RolloutPhase = Literal["Idle", "Held", "Exposed", "Everyone", "Abandoned"]


class ServedRollout(Model):
    """One candidate of a FlagRollout, as it was when the digest in the status was computed. A FlagRollout
    without a candidate has one entry as well.
    """

    name: Annotated[str, Field(max_length=253)]
    """The FlagRollout."""
    shard: Annotated[str, Field(max_length=253)]
    """The FlagShard with the promoted definitions."""
    candidate: Annotated[str, Field(max_length=128)] | None = None
    """The digest of the candidate; absent: no flag differs, or no candidate has the flags yet."""
    flags: Annotated[
        dict[str, Annotated[str, Field(max_length=64)]], in_schema(x_kubernetes_map_type="atomic")
    ] = Field(default_factory=dict)
    """The digest of each new definition by the flag's key."""
    step: Annotated[str, Field(max_length=64)] | None = None
    """The step that is served, such as `2/4`."""
    share: Annotated[str, Field(max_length=16)] | None = None
    """Percent of users who get the new definitions, besides audiences."""
    phase: RolloutPhase
    """`Idle`: nothing differs. `Held`: everybody gets the promoted definitions. `Exposed`: the cohort of the
    step gets the new ones. `Everyone`: everybody does. `Abandoned`: as `Held`, of a FlagRollout that is gone:
    each flag until it changes, or until the annotation `flagstaff.dev/rollout-promote` names the candidate.
    """


class RolloutEntry(NamedTuple):
    """The parts of a `ServedRollout` that decide what is served."""

    name: str
    shard: str
    candidate: str
    """Empty: none."""
    flags: Mapping[str, str]


def rollout_entries(status: object) -> tuple[RolloutEntry, ...]:
    """The entries of FlagRollouts in an object's status."""
    listed = status.get("rollouts") if isinstance(status, Mapping) else None
    entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
    return tuple(
        RolloutEntry(
            str(entry.get("name") or ""),
            str(entry.get("shard") or ""),
            str(entry.get("candidate") or ""),
            _flags(entry),
        )
        for entry in entries
    )


def _flags(entry: Mapping[str, object]) -> dict[str, str]:
    flags = entry.get("flags")
    return {str(key): str(value) for key, value in flags.items()} if isinstance(flags, Mapping) else {}


def held_entries(status: object) -> tuple[RolloutEntry, ...]:
    """The entries of FlagRollouts whose flags differ."""
    return tuple(entry for entry in rollout_entries(status) if entry.flags)
