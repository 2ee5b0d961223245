"""`flagstaff version`: the version of this program and, where there is a cluster, of what runs there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from controller.cli.clusters import add_kubeconfig_arguments
from controller.cli.output import DOCUMENTS, add_output_argument, document
from controller.cli.printing import OK, UNREACHABLE, Exit, printable
from evaluator.host.build_version import describe_build

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping


def configure_version(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--client", action="store_true", help="only this program, and no cluster")
    parser.add_argument(
        "--system-namespace", default="flagstaff-system", metavar="NS",
        help="the namespace of the installation (default flagstaff-system)",
    )  # fmt: skip
    add_output_argument(parser, "text", *DOCUMENTS)
    add_kubeconfig_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 printed; 2 wrong usage; 3 this program's alone, since no cluster can be read."""
    versions = {"flagstaff": describe_build()}
    fault = ""
    if not options.client:
        # Imported here: it takes long, and this program's own version needs no cluster.
        from controller.cli.clusters import run_on_cluster

        try:
            versions |= run_on_cluster(lambda: _running(options), doing="reading the cluster")
        except Exit as ended:
            fault = f"flagstaff version: {ended}; --client asks no cluster"
    if options.output in DOCUMENTS:
        print(document(versions, options.output), end="")
    else:
        print("\n".join(printable(f"{name}: {text}") for name, text in versions.items()))
    if fault:
        print(printable(fault), file=sys.stderr)
    return UNREACHABLE if fault else OK


async def _running(options: argparse.Namespace) -> dict[str, str]:
    """The images of the installation, by Deployment."""
    from controller.cli.cluster_checks import deployments_of
    from controller.cli.clusters import ClusterScope
    from controller.cli.connection import open_connection

    scope = ClusterScope(options.kubeconfig, options.context, everywhere=True)
    async with open_connection(scope) as connection:
        deployments = await deployments_of(connection.cluster, options.system_namespace)
    return {one["metadata"]["name"]: running_text(one) for one in deployments} or {
        options.system_namespace: "no Deployment of Flagstaff"
    }


def running_text(deployment: Mapping[str, Any]) -> str:
    """The images of a Deployment, and whether it has no replica that runs them."""
    # Imported here, as above.
    from controller.cli.cluster_checks import images_of

    images = ", ".join(images_of(deployment))
    return images if deployment["spec"].get("replicas", 1) else f"{images} (0 replicas)"
