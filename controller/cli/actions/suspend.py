"""`flagstaff suspend` and `flagstaff resume`: keep the controller from acting on objects, and let it act."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from controller.cli.shared.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.shared.ending import OK, USAGE, Exit

if TYPE_CHECKING:
    import argparse

    from controller.api.kinds import ResourceType


def configure(parser: argparse.ArgumentParser, *, suspend: bool = True) -> None:
    """Declare the arguments of either verb."""
    parser.add_argument("what", metavar="KIND", help="source, set, or another kind that can be suspended")
    parser.add_argument("names", metavar="NAME", nargs="*", help="the objects' names")
    parser.add_argument("--all", action="store_true", help="all objects of the kind in the namespace")
    add_cluster_arguments(parser)
    parser.set_defaults(run=partial(run, suspend=suspend))


def run(options: argparse.Namespace, *, suspend: bool) -> int:
    """0 done; 1 no such object; 2 wrong usage; 3 no cluster."""
    from controller.cli.objects.kind_words import WORDS, suspendable, type_named

    type_ = type_named(options.what)
    if not suspendable(type_):
        kinds = sorted({other.kind for other in WORDS.values() if suspendable(other)})
        raise Exit(f"a {type_.kind} cannot be suspended; {', '.join(kinds)} can", USAGE)
    if bool(options.names) == options.all:
        raise Exit("name objects, or write --all", USAGE)
    run_on_cluster(lambda: _change(options, type_, suspend=suspend), verb="changed", doing="changing objects")
    return OK


async def _change(options: argparse.Namespace, type_: ResourceType, *, suspend: bool) -> None:
    # Imported here: it takes a second or two.
    from controller.cli.cluster.connection import open_connection

    async with open_connection(scope_of(options)) as connection:
        resources = (
            await connection.resources(type_)
            if options.all
            else [await connection.get(type_, name) for name in options.names]
        )
        done = "suspended" if suspend else "resumed"
        for resource in resources:
            if resource.suspended == suspend:
                done_already = "already suspended" if suspend else "not suspended"
                print(f"{type_.kind}/{resource.name} is {done_already}")
                continue
            await connection.merge(type_, resource.name, {"spec": {"suspend": suspend}})
            print(f"{type_.kind}/{resource.name} {done}")
