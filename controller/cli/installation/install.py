"""`flagstaff install`: applies or prints the manifests of the usual installation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.cli.shared.clusters import add_kubeconfig_arguments
from controller.cli.shared.ending import OK, USAGE, Exit
from controller.cli.shared.status_line import progress

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--export", action="store_true", help="print the manifests, and change nothing")
    parser.add_argument(
        "--registry", metavar="HOST/PATH", help="where the images are, in place of registry.example"
    )
    add_kubeconfig_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 applied or printed; 1 the cluster refuses; 2 wrong usage; 3 no kubectl."""
    from controller.cli.installation.packaged import cluster_words, definitions, kubectl, manifests

    if not (options.export or options.registry):
        raise Exit(
            "name the registry that has the images, as in --registry ghcr.io/your-team; no images are "
            "published, and docs/install.md says how to build them",
            USAGE,
        )
    objects = manifests(options.registry)
    if options.export:
        print(f"{definitions()}---\n{objects}", end="")
        return OK
    apply = ["apply", "--server-side", "--force-conflicts", *cluster_words(options), "-f", "-"]
    with progress("applying the manifests"):
        # Objects of a kind need its definition first.
        applied = kubectl(apply, definitions()) + kubectl(apply, objects)
    print(applied, end="")
    return OK
