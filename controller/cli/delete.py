"""`flagstaff delete`: deletes objects, after it has said what follows from that."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from controller.cli import clusters
from controller.cli.effects import TIMEOUT, add_effect_arguments, follow_effect, report
from controller.cli.printing import OK, USAGE, Exit, printable
from controller.delivery.actions import Effect

if TYPE_CHECKING:
    import argparse

    from controller.api.kind import ResourceType
    from controller.api.meta import Resource
    from controller.cli.connection import ClusterConnection


_CONSEQUENCES: Final = {
    "FlagSource": "its FlagSets keep what they applied, and get nothing new",
    "FlagSet": "the flags that it writes are deleted with it, unless spec.prune is false",
    "FlagRollout": "each of its flags keeps the promoted definition until it changes",
    "FlagOverride": "the flag is served as Git has it again",
}
"""What follows from the deletion of an object, where that is more than that it is gone."""


def configure_delete(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    clusters.add_objects_arguments(parser, "source, set, or another kind")
    parser.add_argument("-s", "--silent", "--yes", dest="yes", action="store_true", help="do not ask")
    add_effect_arguments(parser)
    clusters.add_cluster_arguments(parser, timeout=TIMEOUT)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 deleted; 1 no such object, refused, or not gone in time; 2 wrong usage, or not confirmed; 3 no
    cluster.
    """
    from controller.cli.object_rows import type_named

    word, names = clusters.named_objects(options)
    type_ = type_named(word)
    if not names:
        raise Exit(f"name what to delete: {word} NAME", USAGE)
    _confirm(options, type_.kind, names)
    effects = clusters.run_on_cluster(lambda: _delete(options, type_, names), verb="changed")
    return max(
        (report(f"{type_.kind}/{name}", effect, options.timeout) for name, effect in effects), default=OK
    )


def _confirm(options: argparse.Namespace, kind: str, names: list[str]) -> None:
    """Raise Exit unless the user agrees."""
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise Exit("write --silent to confirm", USAGE)
    follows = f" ({_CONSEQUENCES[kind]})" if kind in _CONSEQUENCES else ""
    if input(printable(f"Delete {kind} {', '.join(names)}{follows}? [y/N] ")).strip().lower() != "y":
        raise Exit("not confirmed; nothing was deleted", USAGE)


async def _delete(
    options: argparse.Namespace, type_: ResourceType, names: list[str]
) -> list[tuple[str, Effect]]:
    # Imported here: it takes a second or two.
    from controller.cli.connection import open_connection

    async with open_connection(clusters.scope_of(options)) as connection:
        resources = [await connection.get(type_, name) for name in names]
        return [
            (resource.name, await _delete_one(connection, type_, resource, options)) for resource in resources
        ]


async def _delete_one(
    connection: ClusterConnection, type_: ResourceType, resource: Resource, options: argparse.Namespace
) -> Effect:
    namespace, name = resource.namespace, resource.name
    await connection.cluster.delete(type_.api_version, type_.kind, namespace, name, uid=resource.uid)
    if not options.wait:
        return Effect("its deletion was accepted")

    async def look() -> Effect:
        seen = await connection.find(type_, namespace, name)
        if seen is None or seen.uid != resource.uid:
            return Effect("deleted")
        return Effect("is marked for deletion, and still there", done=False)

    return await follow_effect(look, options.timeout)
