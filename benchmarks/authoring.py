"""(aa) What authors wait for: verbs over 10,000 flags, in one file and in 100, and the check of an editor.

    python -m benchmarks.authoring [VERB]

Each verb is a process of its own: wall time, CPU time and peak memory, start included. A commit has the
flags, and one of them differs on disk. The check is what `flagstaff lsp` does after a keystroke, in a process
that has its modules.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from benchmarks.commands import FLAGSTAFF, run
from benchmarks.flag_tests import FLAGS, case, definition
from benchmarks.footprint import bytecode_environment
from benchmarks.results import keep, median, show
from controller.authoring.document_format import format_document
from controller.cli.edited_files import EditedSet, check_set

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 5
VERBS = (
    ("lint", "."),
    ("test", "."),
    ("fmt", "--check", "."),
    ("eval", ".", "flag-00000"),
    ("diff",),
    ("plan",),
    ("stale", "."),
)
SHAPES = (("json", 1), ("json", 100), ("yaml", 1), ("yaml", 100))


def write(folder: Path, syntax: str, files: int) -> None:
    """Write a repository with a commit of FLAGS flags and a test of each hundredth, and change one flag."""
    numbers = range(FLAGS)
    for part in range(files):
        flags = {f"flag-{number:05}": definition(number) for number in numbers[part::files]}
        (folder / f"flags-{part:03}.{syntax}").write_text(_text({"flags": flags}, syntax))
    tests = {"tests": [case(number, "answers") for number in numbers[::100]]}
    (folder / "flags.flagtest.json").write_text(format_document(json.dumps(tests), "flags.flagtest.json"))
    git = ["git", "-C", str(folder), "-c", "user.name=us", "-c", "user.email=us@example.com"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "add flags"]):
        subprocess.run([*git, *arguments], check=True)
    first = folder / f"flags-000.{syntax}"
    flags = {f"flag-{number:05}": definition(number) for number in numbers[0::files]}
    flags["flag-00000"]["targeting"]["if"][2]["fractional"] = [["on", 25], ["off", 75]]
    first.write_text(_text({"flags": flags}, syntax))


def _text(value: dict[str, Any], syntax: str) -> str:
    if syntax == "json":
        text = json.dumps(value, indent=2)
    else:
        text = yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False)
    return format_document(text, f"flags.{syntax}")


def rows(only: str) -> Iterator[dict[str, Any]]:
    """Yield what each verb takes of each shape."""
    for syntax, files in SHAPES:
        shape = f"{syntax.upper()}, {files} file{'s' * (files > 1)}"
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "repository"
            folder.mkdir()
            environment = bytecode_environment(Path(name) / "bytecode")
            # Peak memory of a command is at least that of the process that starts it.
            with ProcessPoolExecutor(1) as aside:
                aside.submit(write, folder, syntax, files).result()
            for verb in VERBS:
                if only in ("", verb[0]):
                    command = [FLAGSTAFF, *verb]
                    run(command, folder, environment, differs=True)
                    used = [run(command, folder, environment, differs=True) for _ in range(ROUNDS)]
                    wall, cpu, memory = (median(column) for column in zip(*used, strict=True))
                    shown = {"wall s": wall / 1000, "CPU s": cpu / 1000, "peak MB": memory}
                    yield {"verb": verb[0], "of": shape, **shown}
            if only in ("", "lsp"):
                with ProcessPoolExecutor(1) as aside:
                    spent = [*aside.map(_check, [folder] * ROUNDS)]
                yield {"verb": "check of lsp", "of": shape, "CPU s": median(spent)}


def _check(folder: Path) -> float:
    began = time.process_time()
    checked = check_set(EditedSet(folder, (".",), ()), {})
    assert checked.complete
    return time.process_time() - began


def main() -> None:
    """Measure and keep; of one verb, only print."""
    title = f"verbs over {FLAGS:,} flags"
    if sys.argv[1:]:
        show(title, rows(sys.argv[1]))
    else:
        keep(title, rows(""))


if __name__ == "__main__":
    main()
