"""`flagstaff uninstall`: removes the processes and their rights, and keeps flags and kinds."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from controller.cli.shared.clusters import add_kubeconfig_arguments
from controller.cli.shared.ending import OK, USAGE, Exit
from controller.cli.shared.status_line import progress

if TYPE_CHECKING:
    import argparse

_KEPT: Final = ("Namespace", "CustomResourceDefinition")
_FIRST: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
"""Kinds that are deleted before the processes: a webhook that nobody answers refuses pods."""
_NOTE: Final = """\
kept: the CustomResourceDefinitions with all sources, flag sets and flags, and the namespace
Evaluators keep serving what they have; nothing new reaches them until Flagstaff is installed again.
New pods get no evaluator meanwhile, and use the defaults in their code.
To delete the flags, too: kubectl delete -f <(flagstaff install --export)\
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="only print what would be deleted")
    add_kubeconfig_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 removed; 1 the cluster refuses; 2 wrong usage, or not confirmed; 3 no kubectl."""
    import json

    from controller.cli.installation.packaged import cluster_words, documents, kubectl, manifests

    removed = [body for body in documents(manifests(None)) if body["kind"] not in _KEPT]
    removed.sort(key=lambda body: body["kind"] not in _FIRST)
    if options.dry_run:
        print("\n".join(map(_name, removed)))
        return OK
    _confirm(options, len(removed))
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": removed})
    with progress("deleting"):
        deleted = kubectl(["delete", "--ignore-not-found", *cluster_words(options), "-f", "-"], given)
    print(f"{deleted}{_NOTE}")
    return OK


def _confirm(options: argparse.Namespace, count: int) -> None:
    """Raise Exit unless the user agrees."""
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise Exit("write --yes to confirm", USAGE)
    if input(f"Delete {count} objects of Flagstaff, and keep all flags? [y/N] ").strip().lower() != "y":
        raise Exit("not confirmed; nothing was deleted", USAGE)


def _name(body: dict[str, Any]) -> str:
    namespace = body["metadata"].get("namespace")
    return f"{body['kind']}/{body['metadata']['name']}{f' in {namespace}' if namespace else ''}"
