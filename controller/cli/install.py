"""`flagstaff install` and `flagstaff uninstall`: apply, print or remove the manifests of the usual
installation.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

import controller
from controller.cli.clusters import add_kubeconfig_arguments
from controller.cli.printing import OK, PROBLEM, UNREACHABLE, USAGE, Exit, progress

if TYPE_CHECKING:
    import argparse


_PACKAGE: Final = Path(controller.__file__).parent
_REGISTRY: Final = "registry.example"
"""The registry that the manifests name, in place of the user's."""


def definitions() -> str:
    """All CustomResourceDefinitions."""
    return "".join(
        f"---\n{file.read_text(encoding='utf-8')}" for file in sorted(_folder("crds").glob("*.yaml"))
    )


def manifests(registry: str | None) -> str:
    """The objects of the usual installation, with images of `registry`, if one is named. Raises Exit."""
    text = kubectl(["kustomize", str(_folder("deploy"))])
    return text if registry is None else text.replace(f"{_REGISTRY}/", f"{registry.rstrip('/')}/")


def _folder(name: str) -> Path:
    # In a checkout they are beside the package.
    folder = _PACKAGE / name
    return folder if folder.is_dir() else _PACKAGE.parent / name


def documents(text: str) -> list[dict[str, Any]]:
    """The objects of a stream of manifests."""
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def kubectl(words: list[str], given: str | None = None) -> str:
    """What kubectl prints. Raises Exit where it is not installed, or fails."""
    program = shutil.which("kubectl")
    if program is None:
        raise Exit("kubectl is not in PATH; it builds and applies the manifests", UNREACHABLE)
    done = subprocess.run(  # noqa: S603 - the user's own kubectl, with words of ours
        [program, *words], input=given, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Exit(f"kubectl {words[0]}: {done.stderr.strip()}", PROBLEM)
    return done.stdout


def cluster_words(options: argparse.Namespace) -> list[str]:
    """--kubeconfig and --context, as kubectl takes them."""
    named = {"--kubeconfig": options.kubeconfig, "--context": options.context}
    return [f"{name}={text}" for name, text in named.items() if text]


def configure_install(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--export", action="store_true", help="print the manifests, and change nothing")
    parser.add_argument(
        "--registry", metavar="HOST/PATH", help="where the images are, in place of registry.example"
    )
    add_kubeconfig_arguments(parser)
    parser.set_defaults(run=run_install)


def run_install(options: argparse.Namespace) -> int:
    """0 applied or printed; 1 the cluster refuses; 2 wrong usage; 3 no kubectl."""

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


_KEPT: Final = ("Namespace", "CustomResourceDefinition")
_FIRST: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
"""Kinds that are deleted before the processes: a webhook that nobody answers refuses pods."""
_NOTE: Final = """\
kept: the CustomResourceDefinitions with all sources, flag sets and flags, and the namespace
Evaluators keep serving what they have; nothing new reaches them until Flagstaff is installed again.
New pods get no evaluator meanwhile, and use the defaults in their code.
What FlagSets wrote in other clusters (spec.kubeConfig) stays there if they are deleted from now on.
To delete the flags, too: kubectl delete -f <(flagstaff install --export)\
"""


def configure_uninstall(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("-s", "--silent", "--yes", dest="yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="only print what would be deleted")
    add_kubeconfig_arguments(parser)
    parser.set_defaults(run=run_uninstall)


def run_uninstall(options: argparse.Namespace) -> int:
    """0 removed; 1 the cluster refuses; 2 wrong usage, or not confirmed; 3 no kubectl."""
    import json

    removed = [body for body in documents(manifests(None)) if body["kind"] not in _KEPT]
    removed.sort(key=lambda body: body["kind"] not in _FIRST)
    if options.dry_run:
        print("\n".join(map(_name, removed)))
        return OK
    _confirm(options, len(removed))
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": removed})
    with progress("deleting"):
        deleted = kubectl(["delete", "--ignore-not-found", *cluster_words(options), "-f", "-"], given)
        released = _release_flag_sets(options)
    print(f"{deleted}{released}{_NOTE}")
    return OK


def _release_flag_sets(options: argparse.Namespace) -> str:
    """Remove our finalizer from FlagSets, so that they can be deleted without a controller. Returns what
    kubectl prints. Raises Exit.
    """
    import json

    from controller.api.flagset import FINALIZER

    words, kind = cluster_words(options), "flagsets.flagstaff.dev"
    if not kubectl(["get", "crd", kind, "--ignore-not-found", "-o", "name", *words]):
        return ""
    listed = json.loads(kubectl(["get", kind, "--all-namespaces", "-o", "json", *words]))
    printed = ""
    for meta in (body["metadata"] for body in listed["items"]):
        finalizers = meta.get("finalizers", [])
        if FINALIZER in finalizers:
            others = [one for one in finalizers if one != FINALIZER]
            patch = {"metadata": {"finalizers": others, "resourceVersion": meta["resourceVersion"]}}
            place = ["-n", meta["namespace"], meta["name"], "--type=merge", "-p", json.dumps(patch)]
            printed += kubectl(["patch", kind, *place, *words])
    return printed


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
