"""The public suites of other products: flags that are imported, evaluated by ours, and compared.

The suites are read where they are, or in the folder that IMPORT_SUITES names; nothing of them is copied.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from controller.importers.formats import import_files
from controller.importers.model import ONLY
from controller.importers.moves import moved_shares
from controller.importers.reading import ImportOptions, UnreadableFile
from controller.importers.writer import definitions
from evaluator.flags.document import read_documents
from evaluator.flags.merge import parse
from evaluator.flags.model import Bucketing
from evaluator.resolving.resolution import ErrorCode, FlagType
from evaluator.resolving.resolve import CompiledFlagSet, compile_flag_set, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from controller.importers.model import Imported

SUITES: Final = Path(
    os.environ.get("IMPORT_SUITES") or Path(__file__).parents[5] / "shared" / "conformance" / "import"
)
MOST_SPOILED: Final = 200
"""Spoiled copies of one content that are read."""
TABLE: Final = Path(__file__).parents[4] / "docs" / "importing.md"
CODE: Final = "<the caller's value>"
"""What a flag gives where the value in the caller's code applies."""
JUNK: Final[tuple[Any, ...]] = (
    *(None, True, -1, 1e300, 10**30, "", "\ud800", "x" * 300),
    *([], [[]], [None], {}, {"": {}}),
)


def suite(name: str) -> Path:
    """The folder of a suite; skips the test where it is missing."""
    folder = SUITES / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing; IMPORT_SUITES names the folder of the public suites")
    return folder


def imported(format_name: str, *contents: Any, environment: str = ONLY, **options: Any) -> Imported:
    """Import objects as if they were JSON files."""
    texts = [json.dumps(content).encode() for content in contents]
    files = [(environment, f"file{number}.json", text) for number, text in enumerate(texts)]
    return import_files(format_name, files, ImportOptions(**options))


def compiled(what: Imported, environment: str = ONLY) -> CompiledFlagSet:
    """The flags of one environment, ready for evaluation."""
    parsed = parse(json.dumps(definitions(what, environment)).encode(), file="imported.json")
    assert not parsed.problems, parsed.problems
    return compile_flag_set(parsed.flag_set, bucketing=Bucketing.V2)


def value_of(
    flags: CompiledFlagSet,
    key: str,
    context: Mapping[str, Any],
    *,
    now: int = 1_700_000_000,
    wanted: FlagType | None = None,
) -> Any:
    """The value that our evaluator gives, or CODE."""
    answer = resolve(flags, key, wanted, dict(context), now)
    if answer.error_code in (ErrorCode.FLAG_NOT_FOUND, ErrorCode.TYPE_MISMATCH):
        return CODE
    assert answer.error_code is None, answer
    return CODE if answer.variant is None else answer.value


def moved_share(what: Imported, key: str) -> float:
    """The share of users of a flag who may get another value, in the environment where it is largest."""
    return max(moved_shares(what).get(key, {}).values(), default=0.0)


def spoiled(content: Any) -> Iterator[Any]:
    """Copies of the content with one part each replaced by something else."""
    yield from JUNK
    if not isinstance(content, dict | list):
        return
    for key, part in list(content.items() if isinstance(content, dict) else enumerate(content)):
        for other in spoiled(part):
            copy = content.copy()
            copy[key] = other
            yield copy


def assert_never_fails(format_name: str, content: Any, **options: Any) -> None:
    """Spoiled copies of the content, and deep ones, are read, refused or unreadable."""
    deep: Any = content
    for _ in range(100):
        deep = [deep]
    copies = [*spoiled(content)]
    for other in (*copies[:: 1 + len(copies) // MOST_SPOILED], deep):
        with contextlib.suppress(UnreadableFile):
            compiled(imported(format_name, other, **options))


def read_yaml(file: Path) -> list[Any]:
    """The documents of a YAML file, by version 1.2, in which `on` is a text."""
    return [document.value for document in read_documents(file.read_bytes(), file=file.name)]


@dataclass
class Tally:
    """Counts of a suite's cases."""

    agree: int = 0
    refused: int = 0
    moved: int = 0
    """Cases in which a user is in another bucket: no hash of another product survives."""
    differ: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    def count(self, name: str, what: Imported, key: str, expected: Any, ask: Callable[[], Any]) -> None:
        """Count one case: refused where the flag is, else by what `ask` gives."""
        mine = (refusal for refusal in what.refusals if refusal.name == key and not refusal.segment)
        refusal = next(mine, None)
        if refusal is not None:
            self.refused += 1
            self.reasons[refusal.message] += 1
        elif (came := ask()) == expected and isinstance(came, bool) is isinstance(expected, bool):
            self.agree += 1
        elif moved_share(what, key) > 0:
            self.moved += 1
        else:
            self.differ.append(f"{name}: {key} gave {came!r}, not {expected!r}")

    def assert_published(self, name: str, *differ: str) -> None:
        """Assert that the table of suites has these counts, and that only the cases `differ` differ, of which
        the beginnings are given.
        """
        assert [case.startswith(tuple(differ)) for case in self.differ] == [True] * len(differ), self.differ
        row = f"| {name} | {self.agree} | {self.refused} | {self.moved} | {len(differ)} |"
        assert row in TABLE.read_text(encoding="utf-8").splitlines()
