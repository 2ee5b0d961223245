"""`flagstaff history`: the revisions that a flag set applied, the newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.cli.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.output import DOCUMENTS, Column, add_output_argument, document, plain, table
from controller.cli.printing import OK, short

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from controller.api.flagset_status import HistoryEntry
    from controller.api.meta import Resource


COLUMNS: Final = (
    Column("APPLIED", lambda entry: entry.applied_at or "-"),
    Column("REVISION", lambda entry: short(entry.revision)),
    Column("AUTHOR", lambda entry: entry.author or "-"),
    Column("COMMITTED", lambda entry: entry.committed_at or "-", wide=True),
    Column("VERIFIED", lambda entry: entry.verified_by or "-", wide=True),
    Column("HELD", lambda entry: str(entry.held or "-"), style=lambda entry: "red" if entry.held else ""),
    Column("SUBJECT", lambda entry: entry.subject or "-"),
    Column("CHANGES", lambda entry: entry.changes or "-"),
)


def configure_history(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("name", metavar="SET", help="the FlagSet's name")
    add_output_argument(parser, "table", "wide", *DOCUMENTS)
    add_cluster_arguments(parser)
    parser.set_defaults(run=run_history)


def run_history(options: argparse.Namespace) -> int:
    """0 shown; 1 no such flag set; 2 wrong usage; 3 no cluster."""
    from controller.delivery.set_reading import read_sets
    from controller.runtime.clock import now

    flag_set = run_on_cluster(lambda: _read_flag_set(options), doing="reading the cluster")
    (state,) = read_sets((flag_set,), now())
    print(render(state.history, options.output), end="")
    return OK


async def _read_flag_set(options: argparse.Namespace) -> Resource:
    # Imported here: it takes a second or two.
    from controller.api.kinds import FLAG_SET
    from controller.cli.connection import open_connection
    from controller.cli.object_rows import own_name

    async with open_connection(scope_of(options)) as connection:
        return await connection.get(FLAG_SET, own_name(options.name, FLAG_SET))


def render(history: Sequence[HistoryEntry], form: str) -> str:
    """The history as a table, or as JSON or YAML."""
    if form in DOCUMENTS:
        from controller.api.flagset_status import HistoryEntry as Record

        return document(plain(history, Record), form)
    return table(COLUMNS, history, wide=form == "wide", rows="revisions were applied")
