"""`flagstaff lint`: the parser that serves, run over files before they are committed."""

from __future__ import annotations

import json
import sys
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.flagsets.layers import select
from controller.runtime.setbacks import Setback
from evaluator.flags import Severity, merge, parse, read_layer

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from evaluator.flags import Problem

SARIF_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
MOST_BYTES = 64 * 1024 * 1024


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "documents",
        nargs="*",
        metavar="PATH",
        help="a definition file, folder or glob; each file on its own",
    )
    parser.add_argument(
        "--path", action="append", default=[], metavar="P", dest="layers",
        help="a layer of one flag set, base first, as `flagstaff up` takes them",
    )  # fmt: skip
    parser.add_argument("--lenient", action="store_true", help="warnings do not count as failures")
    parser.add_argument("--output", choices=["text", "json", "sarif"], default="text")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print every problem; exit 0 for none that counts, 1 for problems, 2 for wrong usage."""
    if bool(arguments.documents) == bool(arguments.layers):
        print("flagstaff lint: give documents, or layers by --path, and not both", file=sys.stderr)
        return 2
    try:
        problems = (
            lint_layers(arguments.layers)
            if arguments.layers
            else lint_documents(arguments.documents)
        )
    except (Setback, OSError) as error:
        print(f"flagstaff lint: {error}", file=sys.stderr)
        return 2
    print(_FORMATS[arguments.output](problems), end="")
    counts = [p for p in problems if p.severity is Severity.ERROR or not arguments.lenient]
    return 1 if counts else 0


def lint_documents(paths: Sequence[str]) -> list[Problem]:
    """The problems of each document below `paths`, every document on its own."""
    problems: list[Problem] = []
    for path in paths:
        for file, content in _read(path):
            problems.extend(parse(content, file=file).problems)
    return problems


def lint_layers(paths: Sequence[str]) -> list[Problem]:
    """The problems of the one flag set that the layers `paths` make."""
    return list(merge([read_layer(_read(path)) for path in paths]).problems)


def _read(path: str) -> list[tuple[str, bytes]]:
    """The files that `path` names, under the names that the user would type."""
    parts = Path(path).parts
    fixed = list(takewhile(lambda part: not set(part) & set("*?["), parts))
    below = Path(*fixed)
    if not below.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    if below.is_file():
        return [(path, _content(below))]
    names = [str(entry.relative_to(below)) for entry in below.rglob("*") if entry.is_file()]
    pattern = "/".join(parts[len(fixed) :]) or "."
    return [(str(below / name), _content(below / name)) for name in select(names, pattern)]


def _content(path: Path) -> bytes:
    if path.stat().st_size > MOST_BYTES:
        raise OSError(f"{path} is larger than {MOST_BYTES >> 20} MiB; split it")
    return path.read_bytes()


def _text(problems: Sequence[Problem]) -> str:
    return "".join(f"{problem}\n" for problem in problems)


def _fields(problem: Problem) -> dict[str, Any]:
    return {
        "severity": problem.severity.value,
        "code": problem.code,
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "message": problem.message,
    }


def _json(problems: Sequence[Problem]) -> str:
    return (
        json.dumps([_fields(problem) for problem in problems], indent=2, ensure_ascii=False) + "\n"
    )


def _sarif(problems: Sequence[Problem]) -> str:
    """SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/), which code hosts show beside the lines."""
    results = [
        {
            "ruleId": problem.code,
            "level": problem.severity.value,
            "message": {"text": problem.message},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": problem.file},
                        "region": {
                            "startLine": max(problem.line, 1),
                            "startColumn": max(problem.column, 1),
                        },
                    }
                }
            ],
        }
        for problem in problems
    ]
    rules = [{"id": code} for code in sorted({problem.code for problem in problems})]
    tool = {"driver": {"name": "flagstaff", "rules": rules}}
    log = {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": tool, "results": results}],
    }
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


_FORMATS = {"text": _text, "json": _json, "sarif": _sarif}
