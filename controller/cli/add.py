"""`flagstaff add`: writes a new flag into a file of definitions."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from controller.authoring.definition_edits import EditRefused, with_item, with_value
from controller.authoring.document_format import keep_layout
from controller.authoring.flag_life import expiry
from controller.cli.definition_changes import add_change_arguments, choose, finish, read_definition_change
from controller.cli.printing import USAGE, Exit, did_you_mean, exit_on
from controller.flagsets.layers import select
from evaluator.flags.document import Syntax, format_of, read_document
from evaluator.flags.layer import FLAGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.cli.definition_changes import DefinitionChange
    from evaluator.flags.model import Json
    from evaluator.flags.problems import Document

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "boolean": (bool,),
    "string": (str,),
    "integer": (int,),
    "float": (int, float),
    "object": (dict,),
}
_ON_OFF: Final = {"on": True, "off": False}
_EMPTY: Final = {Syntax.YAML: b"flags: {}\n", Syntax.JSON: b'{\n  "flags": {}\n}\n'}


def configure_add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("flag", metavar="FLAG", help="the flag's key")
    parser.add_argument(
        "--type", choices=_TYPES, default="boolean", help="the type of its values (default boolean)"
    )
    parser.add_argument(
        "--variant", action="append", type=_named, default=[], metavar="NAME=VALUE", dest="variants",
        help="a variant; VALUE is JSON but for --type string; may be repeated (default: on=true off=false)",
    )  # fmt: skip
    parser.add_argument(
        "--default", metavar="VARIANT",
        help="what everybody gets (default: off of a boolean flag, else the first variant)",
    )  # fmt: skip
    parser.add_argument("--owner", metavar="NAME", help="the team or person to ask")
    parser.add_argument(
        "--expires",
        type=_date,
        metavar="DATE",
        help="the last day, such as 2026-12-31, or a time with its zone",
    )
    parser.add_argument(
        "--metadata", action="append", type=_named, default=[], metavar="NAME=VALUE",
        help="an entry of its metadata, such as ticket=SHOP-1 or type=release; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--file",
        metavar="FILE",
        help="the file that gets it, which may be new (default: the layer's only one)",
    )
    add_change_arguments(parser, layer="the layer that gets it, one of --path (default: the only one)")
    parser.set_defaults(run=run)


def _named(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=VALUE")
    return name, value


def _date(text: str) -> str:
    if expiry(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no date such as 2026-12-31, nor a time with its zone")
    return text


def run(options: argparse.Namespace) -> int:
    """0: added; 1: the flag would be a problem; 2: wrong usage, or there is such a flag; 3: no source."""
    flag = _definition(options)
    change = read_definition_change(options)
    for layer in change.layers.values():
        if (piece := layer.flags.get(options.flag)) is not None:
            place = piece.place(key=True)
            raise Exit(f"the flag {options.flag!r} is already defined at {place}", USAGE)
    path = choose("--layer", options.layer, [*change.layers], "the flag set has several layers")
    documents = _documents(change, path)
    if options.file is None or options.file in documents:
        several = f"{path} has several files" if documents else f"{path} has no file of flags by key"
        document = documents[choose("--file", options.file, [*documents], several)]
        _add(change, document, options.flag, flag)
    else:
        _add_file(change, path, options, flag)
    return finish(change, options)


def _definition(options: argparse.Namespace) -> dict[str, Json]:
    """Return the flag as a file has it. Raises Exit."""
    variants = {name: _value(options.type, name, text) for name, text in options.variants}
    if not variants:
        if options.type != "boolean":
            raise Exit(f"a flag of type {options.type} needs a --variant NAME=VALUE", USAGE)
        variants = dict(_ON_OFF)
    default = options.default or (
        "off" if "off" in variants and options.type == "boolean" else next(iter(variants))
    )
    if default not in variants:
        raise Exit(f"--default: there is no variant {default!r}{did_you_mean(default, variants)}", USAGE)
    flag: dict[str, Json] = {"state": "ENABLED", "variants": variants, "defaultVariant": default}
    named = {"owner": options.owner, "expires": options.expires, **dict(options.metadata)}
    if metadata := {name: value for name, value in named.items() if value is not None}:
        flag["metadata"] = metadata
    return flag


def _value(type_: str, name: str, text: str) -> Json:
    if type_ == "string":
        return text
    value: Any = read_document(text.encode(), file="VALUE.json").value
    if type(value) not in _TYPES[type_]:
        raise Exit(f"--variant {name}: {text!r} is no JSON of type {type_}", USAGE)
    return value


def _documents(change: DefinitionChange, path: str) -> dict[str, Document]:
    """The files of a layer that may get a flag: those with flags, if there are any."""
    named = {
        document.file: document
        for document in change.layers[path].documents
        if _flags_of(document) is not None and not document.embedded
    }
    return {file: document for file, document in named.items() if _flags_of(document)} or named


def _flags_of(document: Document) -> Any:
    return document.value.get(FLAGS) if isinstance(document.value, dict) else None


def _add(change: DefinitionChange, document: Document, key: str, flag: Mapping[str, Json]) -> None:
    flags = _flags_of(document)
    if isinstance(flags, list):
        item = {"key": key, **flag}
        change.edit(document, partial(with_item, path=(FLAGS, len(flags)), value=item))
    else:
        change.edit(document, partial(with_value, path=(FLAGS, key), value=dict(flag), spread=True))


def _add_file(
    change: DefinitionChange, path: str, options: argparse.Namespace, flag: Mapping[str, Json]
) -> None:
    """Add a file with the flag alone. Raises Exit."""
    file = options.file
    format_ = format_of(file)
    if (
        format_ is None
        or (change.folder / file).exists()
        or file not in select([*change.tree.files, file], path)
    ):
        raise Exit(f"--file: {file} is no file of definitions of {path}, nor a new one there", USAGE)
    with exit_on(USAGE, EditRefused):
        empty = _EMPTY[format_]
        made = with_value(empty, file, (FLAGS, options.flag), dict(flag), spread=True)
        change.changed[file] = keep_layout(empty, made, file)
