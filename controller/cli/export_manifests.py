"""`flagstaff export`: objects of a cluster as manifests, without what the cluster added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.cli import clusters
from controller.cli.output import add_output_argument, document
from controller.cli.printing import OK, USAGE, Exit

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

_KEPT: Final = ("name", "namespace", "labels", "annotations")
_ALL: Final = "all"


def configure_export(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    clusters.add_objects_arguments(parser, "source, set, another kind, or all")
    clusters.add_selector_argument(parser)
    add_output_argument(parser, "yaml", "json")
    clusters.add_cluster_arguments(parser, lists=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 printed; 1 no such object or namespace; 2 wrong usage; 3 no cluster."""
    word, names = clusters.named_objects(options)
    if names and (word == _ALL or options.all_namespaces or options.selector):
        raise Exit(
            "names need a kind and one namespace, and no selector: export set NAME -n NAMESPACE", USAGE
        )
    manifests = clusters.run_on_cluster(lambda: _read(options, word, names), doing="reading the cluster")
    if options.output == "json":
        print(document({"apiVersion": "v1", "kind": "List", "items": manifests}, "json"), end="")
    else:
        print("".join(f"---\n{document(manifest, 'yaml')}" for manifest in manifests), end="")
    return OK


async def _read(options: argparse.Namespace, word: str, names: list[str]) -> list[dict[str, Any]]:
    # Imported here: it takes a second or two.
    from controller.cli.connection import open_connection
    from controller.cli.object_rows import SHOWN, type_named

    types = SHOWN if word == _ALL else (type_named(word, _ALL),)
    async with open_connection(clusters.scope_of(options)) as connection:
        if names:
            bodies = [await connection.body(types[0], name) for name in names]
        else:
            bodies = [body for type_ in types for body in await connection.bodies(type_, options.selector)]
    return [manifest_of(body) for body in bodies if names or not _is_written(body)]


def _is_written(body: Mapping[str, Any]) -> bool:
    """Whether a FlagSet or another object writes it, so that it needs no manifest."""
    from controller.api.flagset import proven_writer
    from controller.api.meta import Resource

    return bool(body["metadata"].get("ownerReferences") or proven_writer(Resource.of(body)))


def manifest_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of an object: without its status, and without what servers and requests left in it."""
    from controller.api import flagrollout
    from controller.api.flagset import LABEL
    from controller.api.meta import REQUESTS
    from controller.pods.installation import DIRECT_SET

    meta = {name: body["metadata"][name] for name in _KEPT if body["metadata"].get(name)}
    marks = {LABEL, DIRECT_SET, flagrollout.LABEL}
    # They say who writes the object, which the copy of it has no owner of.
    labels = {name: text for name, text in (meta.pop("labels", None) or {}).items() if name not in marks}
    if labels:
        meta["labels"] = labels
    annotations = {
        name: text
        for name, text in (meta.pop("annotations", None) or {}).items()
        if name not in REQUESTS and not name.startswith("kubectl.kubernetes.io/")
    }
    if annotations:
        meta["annotations"] = annotations
    manifest = {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": meta}
    return {**manifest, "spec": body["spec"]} if "spec" in body else manifest
