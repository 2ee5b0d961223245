"""What a flag set of a cluster delivers, as one side of a comparison, and how its definitions are read."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from controller.api.flagset import FlagSetSpec, Validation, target_name
from controller.api.objects.parsed_spec import parse_spec
from controller.cli.shared.arguments import local_options
from controller.flagsets.building.compose import FailurePolicy
from controller.flagsets.preparing.patches import Patch
from evaluator.flags.model import Bucketing, FlagSet

if TYPE_CHECKING:
    import argparse

    from controller.api.objects.meta import Resource
    from controller.cli.cluster.connection import Connection
    from controller.local.local_options import LocalOptions


@dataclass(frozen=True, slots=True)
class DeliveredSide:
    """A FlagSet, and what belongs to it."""

    flag_set: Resource
    flags: FlagSet | None
    """What it delivers; None: nothing yet."""
    rollouts: list[Resource] = field(default_factory=list)
    """All FlagRollouts of the namespace; none where the user may not read them."""

    @property
    def names(self) -> frozenset[str]:
        """The names by which FlagRollouts refer to it."""
        return frozenset({self.flag_set.name, target_name(self.flag_set)})

    @property
    def flag_set_id(self) -> str:
        """The `flagSetId` of flags that have none of their own."""
        return str(self.flag_set.spec.get("flagSetId") or f"{self.flag_set.namespace}/{self.flag_set.name}")


async def read_delivered(connection: Connection, name: str) -> DeliveredSide:
    """What the FlagSet `name` delivers. Raises Exit where there is none, Setback."""
    # Imported here: it takes a second or two.
    from controller.api.kinds import FEATURE_FLAG_CONFIGURATION, FLAG_ROLLOUT, FLAG_SET, FLAG_SHARD
    from controller.cli.objects.object_rows import delivered_set
    from controller.runtime.reconciling.setbacks import Setback

    flag_set = await connection.get(FLAG_SET, name)
    written = await connection.find(FEATURE_FLAG_CONFIGURATION, connection.namespace, target_name(flag_set))
    shards = {shard.key: shard for shard in await connection.resources(FLAG_SHARD)}
    try:
        rollouts = await connection.resources(FLAG_ROLLOUT)
    except Setback:
        # A Role for comparing may lack the kind.
        rollouts = []
    return DeliveredSide(
        flag_set, None if written is None else delivered_set(written, shards.get), rollouts
    )  # fmt: skip


async def read_promoted(connection: Connection, rollout: Resource) -> DeliveredSide:
    """What the FlagSet of a FlagRollout delivers to users in no cohort. Raises Exit, Setback."""
    from controller.api.kinds import FLAG_SHARD
    from controller.delivery.progress.overrides import set_name
    from controller.delivery.progress.rollouts import promoted_set
    from controller.delivery.state.rollout_state import rollout_state
    from evaluator.flags.rule_copies import RuleCopier

    side = await read_delivered(connection, set_name(rollout))
    promoted = rollout_state(rollout).promoted
    shard = (
        await connection.find(FLAG_SHARD, connection.namespace, promoted.shard)
        if promoted is not None and promoted.shard is not None
        else None
    )
    if shard is None or side.flags is None:
        return side
    kept = promoted_set(shard)
    copier = RuleCopier(kept.evaluators, side.flags.evaluators)
    copied = {key: replace(flag, targeting=copier.copy(flag.targeting)) for key, flag in kept.flags.items()}
    flags = MappingProxyType({**side.flags.flags, **copied})
    return replace(side, flags=replace(side.flags, flags=flags))


def options_of_set(flag_set: Resource, options: argparse.Namespace, verb: str) -> LocalOptions:
    """The command line's options, and where it names none those of the FlagSet. Raises InvalidSpecError."""
    spec: Any = parse_spec(FlagSetSpec, flag_set)
    unread = [name for name in ("substituteFrom", "decryption") if flag_set.spec.get(name)]
    if unread and not (options.age_key or options.substitute):
        text = f"spec.{' and spec.'.join(unread)} of the FlagSet are not read; give --substitute or --age-key"
        print(f"flagstaff {verb}: {text}", file=sys.stderr)
    local = local_options(options)
    patches = [Patch(f"spec.patches[{index}]", entry.patch) for index, entry in enumerate(spec.patches)]
    return replace(
        local,
        paths=tuple(options.paths) or tuple(spec.paths),
        patches=local.patches or tuple(patches),
        substitute=local.substitute if local.substitute is not None else spec.substitute,
        lenient=local.lenient or spec.validation is Validation.LENIENT,
        policy=FailurePolicy(spec.failure_policy),
        bucketing=Bucketing(spec.bucketing),
    )
