"""`flagstaff schema`: the JSON Schema of definitions, layers, kinds, or of what a verb prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.cli.output import document
from controller.cli.printing import OK, USAGE, Exit, did_you_mean

if TYPE_CHECKING:
    import argparse


def configure_schema(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "name", metavar="NAME", nargs="?",
        help="definitions, layer, flagtest, policy, kinds, one kind such as flagset, or output-VERB "
        "(default: list the names)",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 printed; 2 no such schema."""
    # Imported here: it takes a second.
    from controller.cli.json_schemas import json_schemas

    schemas = json_schemas()
    if options.name is None:
        print("\n".join(schemas))
        return OK
    if (schema := schemas.get(options.name.lower())) is None:
        raise Exit(f"there is no schema {options.name!r}{did_you_mean(options.name, schemas)}", USAGE)
    print(document(schema, "json"), end="")
    return OK
