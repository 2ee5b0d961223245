"""`flagstaff stats`: how many objects of each kind there are, and how they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api.meta import ObjectKey
from controller.cli.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.object_rows import RECORD, SHOWN, object_row
from controller.cli.output import DOCUMENTS, Column, add_output_argument, document, plain, table
from controller.cli.printing import OK

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from controller.api.kind import ResourceType
    from controller.cli.effects import ReadSets


@dataclass(frozen=True, slots=True)
class KindStats:
    """The objects of one kind."""

    __pydantic_config__ = RECORD

    kind: str
    """The kind."""
    total: int
    """All objects."""
    ready: int
    """Objects whose condition Ready is True."""
    failing: int
    """Objects whose condition Ready is False."""
    suspended: int
    """Objects that are suspended."""
    flags: int
    """Flags of all objects."""
    evaluators: int
    """Evaluators that follow the objects, one that follows two counted twice."""
    up_to_date: int
    """Of these, how many serve what they should."""


COLUMNS: Final = (
    Column("KIND", lambda row: row.kind),
    Column("TOTAL", lambda row: str(row.total)),
    Column("READY", lambda row: str(row.ready), style=lambda row: "green" if row.ready else ""),
    Column("FAILING", lambda row: str(row.failing), style=lambda row: "red" if row.failing else ""),
    Column("SUSPENDED", lambda row: str(row.suspended), style=lambda row: "yellow" if row.suspended else ""),
    Column("FLAGS", lambda row: str(row.flags)),
    Column("EVALUATORS", lambda row: f"{row.up_to_date}/{row.evaluators}" if row.evaluators else "-"),
)


def configure_stats(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_output_argument(parser, "table", *DOCUMENTS)
    add_cluster_arguments(parser, lists=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 shown; 1 no such namespace; 2 wrong usage; 3 no cluster."""
    read = run_on_cluster(lambda: _read(options), doing="reading the cluster")
    rows = [*kind_stats(SHOWN, read)]
    if options.output in DOCUMENTS:
        print(document(plain(rows, KindStats), options.output), end="")
    else:
        print(table(COLUMNS, rows, rows="objects"), end="")
    return OK


async def _read(options: argparse.Namespace) -> ReadSets:
    # Imported here: it takes a second or two.
    from controller.cli.connection import open_connection
    from controller.cli.effects import read_states

    async with open_connection(scope_of(options)) as connection:
        return await read_states(connection, *SHOWN)


def kind_stats(types: Iterable[ResourceType], read: ReadSets) -> Iterator[KindStats]:
    """Yield the numbers of each kind that has objects."""
    rows = [object_row(resource, read.states.get(resource.key)) for resource in read.resources]
    served = {key: state.served for key, state in read.states.items()}
    for type_ in types:
        if of_kind := [row for row in rows if row.kind == type_.kind]:
            keys = [ObjectKey(row.kind, row.namespace, row.name) for row in of_kind]
            counted = [served[key] for key in keys if key in served]
            yield KindStats(
                type_.kind,
                len(of_kind),
                ready=sum(row.ready == "True" for row in of_kind),
                failing=sum(row.ready == "False" for row in of_kind),
                suspended=sum(row.suspended for row in of_kind),
                flags=sum(row.flags or 0 for row in of_kind),
                evaluators=sum(one.total or 0 for one in counted),
                up_to_date=sum(one.count for one in counted),
            )
