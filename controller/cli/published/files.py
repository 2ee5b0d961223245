"""`python -m controller.cli.published.files` writes the files that are made from the program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.cli.published.bound_table import with_bounds
from controller.cli.published.cli_reference import reference
from controller.cli.published.json_schemas import json_schemas
from controller.cli.published.reason_reference import reason_reference
from controller.cli.published.shared_resources import with_table
from controller.cli.shared.output import document

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).parents[3]
PROMISES: Final = "docs/security-promises.md"


def published_files() -> Mapping[str, str]:
    """The content of each file by its path from the root of the repository."""
    schemas = {f"schemas/{name}.json": document(schema, "json") for name, schema in json_schemas().items()}
    pages = {"docs/reference/cli.md": reference(), "docs/reference/conditions.md": reason_reference()}
    promises = with_bounds(with_table((ROOT / PROMISES).read_text(encoding="utf-8")))
    return {**pages, PROMISES: promises, **schemas}


def main() -> None:
    """Write each file anew."""
    for name, content in published_files().items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
