"""What the status of an object with flags says of the rollouts of its flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

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
        dict[str, Annotated[str, Field(max_length=64)]],
        in_schema(x_kubernetes_map_type="atomic"),
    ] = {}
    """The digest of each new definition by the flag's key."""
    step: Annotated[str, Field(max_length=64)] | None = None
    """The step that is served, such as `2/4`."""
    share: Annotated[str, Field(max_length=16)] | None = None
    """Percent of users who get the new definitions, besides audiences."""
    phase: RolloutPhase
    """`Idle`: nothing differs. `Held`: everybody gets the promoted definitions. `Exposed`: the cohort of the
    step gets the new ones. `Everyone`: everybody does. `Abandoned`: as `Held`, of a FlagRollout that is gone,
    until a flag changes, or the annotation `flagstaff.dev/rollout-promote` has the candidate's digest.
    """


def rollout_entries(status: object) -> list[dict[str, str]]:
    """The entries of an object's status of FlagRollouts: `name`, `shard`, and `candidate`, which is empty
    where no flag differs.
    """
    listed = status.get("rollouts") if isinstance(status, Mapping) else None
    entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
    return [
        {name: str(entry.get(name) or "") for name in ("name", "shard", "candidate")} for entry in entries
    ]


def held_entries(status: object) -> list[dict[str, str]]:
    """The entries of FlagRollouts whose flags differ."""
    return [entry for entry in rollout_entries(status) if entry["candidate"]]
