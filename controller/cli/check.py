"""`flagstaff check`: whether a cluster and the installation in it are sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.cli.clusters import ClusterScope, add_kubeconfig_arguments, run_on_cluster
from controller.cli.output import DOCUMENTS, Column, add_output_argument, document, plain, table
from controller.cli.printing import OK, PROBLEM

if TYPE_CHECKING:
    import argparse

    from controller.cli.cluster_checks import CheckResult


_COLOURS: Final = {"ok": "green", "warning": "yellow", "failed": "red"}
_COLUMNS: Final = (
    Column("RESULT", lambda row: row.result, style=lambda row: _COLOURS.get(row.result, "")),
    Column("CHECK", lambda row: row.check),
    Column("MESSAGE", lambda row: row.message),
)


def configure_check(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "--pre", action="store_true", help="before an installation: only what the cluster must have"
    )
    parser.add_argument(
        "--system-namespace", default="flagstaff-system", metavar="NS",
        help="the namespace of the installation (default flagstaff-system)",
    )  # fmt: skip
    add_output_argument(parser, "table", *DOCUMENTS)
    add_kubeconfig_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0: sound, perhaps with warnings; 1: something failed; 2 wrong usage; 3 no cluster."""
    from controller.cli.cluster_checks import CheckResult

    results = run_on_cluster(lambda: _check(options), doing="checking the cluster")
    if options.output in DOCUMENTS:
        print(document(plain(results, CheckResult), options.output), end="")
    else:
        print(table(_COLUMNS, results), end="")
    return PROBLEM if any(result.result == "failed" for result in results) else OK


async def _check(options: argparse.Namespace) -> list[CheckResult]:
    # Imported here: it takes a second or two.
    from controller.cli.cluster_checks import check_cluster, check_installation
    from controller.cli.connection import open_connection

    scope = ClusterScope(options.kubeconfig, options.context, everywhere=True)
    async with open_connection(scope) as connection:
        results = [result async for result in check_cluster(connection.cluster)]
        if not options.pre:
            checks = check_installation(connection.cluster, options.system_namespace)
            results += [result async for result in checks]
    return results
