"""`flagstaff inject`: what the webhook makes of a manifest, without a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from controller.cli.manifests import exit_if_unreadable
from controller.cli.printing import OK, PROBLEM, Exit, printable
from controller.migration.migrated_objects import GivenObjects
from controller.pods.carried_flags import mark_manifest
from controller.pods.installation import ADDRESS, AUDIENCE, IMAGE, NODE_HOST, OPERATORS, Options, PodRefused
from controller.pods.near_misses import near_misses
from controller.pods.pod_injection import inject_manifest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

STDIN = "-"


def configure_inject(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "-f", "--filename", action="append", required=True, metavar="FILE", dest="files",
        help="manifests in YAML or JSON, several documents allowed; - reads standard input",
    )  # fmt: skip
    parser.add_argument(
        "-n", "--namespace", default="default", metavar="NS",
        help="namespace of manifests that name none (default: default)",
    )  # fmt: skip
    given = (
        ("--image", IMAGE, "image of the evaluator"),
        ("--proxy-address", ADDRESS, "host:port where evaluators find the proxy"),
        ("--proxy-audience", AUDIENCE, "audience of the tokens that they show to it"),
        ("--proxy-ca", "", "ConfigMap whose ca.crt signed the proxy's certificate"),
    )
    for option, default, text in given:
        shown = default or "plain text"
        parser.add_argument(option, default=default, metavar="X", help=f"{text} (default {shown})")
    parser.add_argument("--compat", choices=[OPERATORS], help="make containers as OpenFeature Operator's")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print all manifests with evaluators, or none; exit with 0, 1 if one is refused, 2 if unreadable."""
    options = Options(
        image=arguments.image,
        proxy_address=arguments.proxy_address,
        proxy_audience=arguments.proxy_audience,
        proxy_ca=arguments.proxy_ca,
        compat=bool(arguments.compat),
        flag_files=True,
        node_host=NODE_HOST,
    )
    given: dict[str, list[Any]] = {}
    for file in arguments.files:
        with exit_if_unreadable(_file_words(file)):
            given[file] = [*_documents(file)]
    manifests = [manifest for documents in given.values() for manifest in documents]
    known = GivenObjects(manifests, arguments.namespace, whole=False)
    injected: list[Any] = []
    for file, documents in given.items():
        try:
            marked = [mark_manifest(document) for document in documents]
            injected += [
                inject_manifest(manifest, arguments.namespace, options, known) for manifest in marked
            ]
        except PodRefused as refusal:
            raise Exit(f"{_file_words(file)}: {refusal}", PROBLEM) from refusal
    for file, documents in given.items():
        for document in documents:
            _report_near_misses(file, document)
    yaml.safe_dump_all(injected, sys.stdout, sort_keys=False, allow_unicode=True, width=1_000)
    return OK


def _report_near_misses(file: str, document: Any) -> None:
    """Say on standard error which annotations of a manifest nothing reads."""
    items = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else None
    for manifest in items if isinstance(items, list) else [document]:
        for miss in near_misses(manifest):
            metadata = manifest.get("metadata")
            name = metadata.get("name", "") if isinstance(metadata, dict) else ""
            text = f"{_file_words(file)}: {manifest['kind']} {name}: {miss.message}"
            print(printable(f"flagstaff inject: {text}"), file=sys.stderr)


def _documents(file: str) -> Iterator[Any]:
    text = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    # As kubectl, which skips empty documents.
    yield from (document for document in yaml.safe_load_all(text) if document is not None)


def _file_words(file: str) -> str:
    return "standard input" if file == STDIN else file
