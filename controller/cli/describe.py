"""`flagstaff describe`: one object in words: its conditions, problems, history, evaluators and Events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.cli import clusters
from controller.cli.output import DOCUMENTS, add_output_argument, document
from controller.cli.printing import OK

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from controller.api.meta import ObjectKey
    from controller.delivery.set_state import SetState


def configure_describe(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    clusters.add_objects_arguments(parser, "source, set, or another kind")
    add_output_argument(parser, "text", *DOCUMENTS)
    clusters.add_cluster_arguments(parser)
    parser.set_defaults(run=run_describe)


def run_describe(options: argparse.Namespace) -> int:
    """0 shown; 1 no such object; 2 wrong usage; 3 no cluster."""
    body, events, states = clusters.run_on_cluster(lambda: _read_object(options), doing="reading the cluster")
    from controller.api.meta import Resource
    from controller.cli.description import describe_object

    if options.output in DOCUMENTS:
        body["metadata"].pop("managedFields", None)
        print(document({"object": body, "events": events}, options.output), end="")
    else:
        resource = Resource.of(body)
        print(describe_object(resource, events, states.get(resource.key)), end="")
    return OK


async def _read_object(
    options: argparse.Namespace,
) -> tuple[dict[str, Any], list[dict[str, Any]], Mapping[ObjectKey, SetState]]:
    # Imported here: it takes a second or two.
    from controller.api.kinds import EVENT
    from controller.cli.connection import open_connection
    from controller.cli.effects import STATE_TYPES, read_states
    from controller.cli.object_rows import type_named
    from controller.runtime.event import as_event

    word, name = clusters.named_object(options)
    type_ = type_named(word)
    async with open_connection(clusters.scope_of(options)) as connection:
        body = await connection.body(type_, name)
        about = [
            as_event(event)
            for event in await connection.bodies(EVENT)
            if (event.get("involvedObject") or {}).get("uid") == body["metadata"]["uid"]
        ]
        states = (await read_states(connection, type_)).states if type_ in STATE_TYPES else {}
    whole = {"apiVersion": type_.api_version, **body, "kind": type_.kind}
    return whole, sorted(about, key=lambda event: str(event["timestamp"])), states
