"""`flagstaff suspend` and `flagstaff resume`: keep the controller from acting on objects, and let it act
again.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from controller.api.kinds import FLAG_ROLLOUT, status_of
from controller.cli import clusters
from controller.cli.effects import (
    TIMEOUT,
    add_effect_arguments,
    follow_effect,
    is_handled,
    ready_effect,
    report,
    request,
)
from controller.cli.printing import OK, USAGE, Exit
from controller.delivery.actions import Effect
from controller.delivery.rollout_state import rollout_state
from controller.delivery.state_words import candidate_name, position_text

if TYPE_CHECKING:
    import argparse

    from controller.api.kind import ResourceType
    from controller.api.meta import Resource
    from controller.cli.connection import ClusterConnection


def configure_suspend(parser: argparse.ArgumentParser, *, suspend: bool = True) -> None:
    """Declare the arguments of either verb."""
    clusters.add_objects_arguments(parser, "source, set, or another kind that can be suspended")
    parser.add_argument("--all", action="store_true", help="all objects of the kind in the namespace")
    add_effect_arguments(parser)
    clusters.add_cluster_arguments(parser, timeout=TIMEOUT)
    parser.set_defaults(run=partial(run, suspend=suspend))


def run(options: argparse.Namespace, *, suspend: bool) -> int:
    """0 done; 1 no such object, or it is not Ready in time; 2 wrong usage; 3 no cluster."""
    from controller.cli.object_rows import WORDS, suspendable, type_named

    word, names = clusters.named_objects(options)
    type_ = type_named(word)
    if not suspendable(type_):
        kinds = sorted({other.kind for other in WORDS.values() if suspendable(other)})
        raise Exit(f"a {type_.kind} cannot be suspended; {', '.join(kinds)} can", USAGE)
    if bool(names) == options.all:
        raise Exit("name objects, or write --all", USAGE)
    effects = clusters.run_on_cluster(lambda: _change(options, type_, names, suspend=suspend), verb="changed")
    codes = [report(f"{type_.kind}/{name}", effect, options.timeout) for name, effect in effects]
    return max(codes, default=OK)


async def _change(
    options: argparse.Namespace, type_: ResourceType, names: list[str], *, suspend: bool
) -> list[tuple[str, Effect]]:
    """The state that each object reached, by name."""
    # Imported here: it takes a second or two.
    from controller.cli.connection import open_connection

    async with open_connection(clusters.scope_of(options)) as connection:
        resources = (
            await connection.resources(type_)
            if options.all
            else [await connection.get(type_, name) for name in names]
        )
        changes = (_change_one(connection, type_, one, options, suspend=suspend) for one in resources)
        return list(
            zip((resource.name for resource in resources), await asyncio.gather(*changes), strict=True)
        )


async def _change_one(
    connection: ClusterConnection,
    type_: ResourceType,
    resource: Resource,
    options: argparse.Namespace,
    *,
    suspend: bool,
) -> Effect:
    if resource.suspended == suspend:
        return Effect(f"is already suspended: {kept_text(resource)}" if suspend else "is not suspended")
    token = await request(connection, type_, resource.name, {"spec": {"suspend": suspend}})
    word = "suspended" if suspend else "resumed"
    of_rollout = type_.kind == FLAG_ROLLOUT.kind
    if not options.wait or (suspend and not of_rollout):
        # Of a suspended object, only a FlagRollout has an effect to wait for: the clocks of its steps stop.
        return Effect(f"{word}: {kept_text(resource)}" if suspend else word)

    async def look() -> Effect:
        seen = await connection.get(type_, resource.name)
        if of_rollout and is_handled(seen, token):
            return Effect(kept_text(seen))
        return ready_effect(seen, token)

    effect = await follow_effect(look, options.timeout)
    return replace(effect, message=f"{word}: {effect.message}")


def kept_text(resource: Resource) -> str:
    """What stays as it is while an object is suspended."""
    revision = status_of(resource).content[0]
    if resource.key.kind == FLAG_ROLLOUT.kind:
        layers = [one.layer for one in rollout_state(resource).candidates]
        positions = [f"{candidate_name(layer)}: {position_text(layer)}" for layer in layers]
        return "; ".join(positions) or "nothing is rolled out"
    return f"{revision} stays" if revision else "the controller changes nothing about it"


configure_resume = partial(configure_suspend, suspend=False)
