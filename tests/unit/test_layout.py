"""The layout of the packages: where a file name leads, how deep folders are, which modules import which,
and how much code a package has."""

from __future__ import annotations

import ast
import re
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.code_size import BUDGET, MOST_IMPORTS, sizes

if TYPE_CHECKING:
    from collections.abc import Collection

ROOT: Final = Path(__file__).parents[2]
REPEATED: Final = {"__init__.py", "reconciler.py", "stage.py", "metrics.py"}
"""The names that stages have in common."""
DEEPEST: Final = 2
SHORTEST: Final = 120
"""Lines of a module that one neighbour alone imports: a shorter one is a part of that neighbour."""
APART: Final = {
    "controller.app.pod_work": "what settings ask for pods: controller_process joins the parts of a replica",
    "controller.cli.event_stream": "imported when its verb runs: it loads the client of a cluster",
    "controller.cli.events": "a verb",
    "controller.cli.history": "a verb",
    "controller.cli.sample_message": "imported when its verb runs: it loads the client of a cluster",
    "controller.cli.stats": "a verb; the schemas of what verbs print list its record",
    "evaluator.sync.signed": "imported for a signed source: it loads cryptography",
}
"""Shorter modules with one importer beside them, and why they stay modules of their own."""
WORLDS: Final = {"World", "Around", "Scene"}
"""Names of what surrounds a test, which say nothing of it."""
MOST_OF_A_NAME: Final = 10
MANY_OF_A_NAME: Final = {
    "answer": "of another server or protocol in each module",
    "ask": "by another protocol in each module",
    "configuration": "of other fields in each module, by tests/worlds/objects",
    "document": "as text, bytes or values, of other flags in each module",
    "flag": "the model's, a definition, or one that a format spells otherwise",
    "flag_set": "the model's, a manifest, or a spec",
    "flags": "a document of the flags that a module is about",
    "read": "of another format in each module",
    "refusal_of": "what another function of the code raises in each module",
    "source": "a manifest, a spec, or an object",
}
"""Names of functions that more test modules define, and why no shared one can be all of them."""
CONSTANT: Final = re.compile(r"(?:^|\.)_?[A-Z][A-Z0-9_]+$")


def modules(package: str) -> list[Path]:
    return [file.relative_to(ROOT) for file in (ROOT / package).rglob("*.py")]


def module_name(file: Path) -> str:
    return ".".join(file.with_suffix("").parts).removesuffix(".__init__")


def imported_modules(file: Path, known: Collection[str]) -> set[str]:
    """Names of the imported modules, also of those for type checkers alone."""
    names = set()
    for node in ast.walk(ast.parse((ROOT / file).read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            members = (f"{node.module}.{alias.name}" for alias in node.names)
            names |= {member if member in known else str(node.module) for member in members}
    return names & set(known)


@pytest.mark.parametrize("package", ["controller", "evaluator"])
def test_file_name_is_found_once_in_a_package(package: str) -> None:
    names = Counter(file.name for file in modules(package) if file.name not in REPEATED)
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("package", ["controller", "evaluator"])
def test_folders_are_at_most_two_deep(package: str) -> None:
    assert [str(file) for file in modules(package) if len(file.parts) - 1 > DEEPEST] == []


def test_a_short_module_has_more_than_one_neighbour_that_imports_it() -> None:
    files = {module_name(file): file for package in ("controller", "evaluator") for file in modules(package)}
    importers: dict[str, set[str]] = {}
    for name, file in files.items():
        for imported in imported_modules(file, files) - {name}:
            importers.setdefault(imported, set()).add(name)
    lonely = {
        name
        for name, (importer, *others) in importers.items()
        if not others
        and files[name].parent == files[importer].parent
        and files[name].name not in ("__init__.py", "__main__.py")
        and (ROOT / files[name]).read_bytes().count(b"\n") < SHORTEST
    }
    assert lonely == set(APART), "join each with the module that imports it, or say in APART why not"


def test_each_package_keeps_its_budget_of_code() -> None:
    code = {package: size.code for package, size in sizes().items()}
    assert set(code) == set(BUDGET)
    over = {
        package: f"{lines} of {BUDGET[package]}" for package, lines in code.items() if lines > BUDGET[package]
    }
    assert over == {}, "make it smaller, or raise the budget in tests/code_size.py and say why in the commit"


def test_imports_are_a_small_share_of_the_code() -> None:
    counts = sizes().values()
    assert sum(size.imports for size in counts) <= MOST_IMPORTS * sum(size.code for size in counts)


def test_modules_do_not_import_one_another_in_a_circle() -> None:
    files = {module_name(file): file for package in ("controller", "evaluator") for file in modules(package)}
    imports = {name: imported_modules(file, files) - {name} for name, file in files.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_a_public_class_has_a_name_of_its_own() -> None:
    names: Counter[str] = Counter()
    for package in ("controller", "evaluator"):
        for file in modules(package):
            if not file.stem.endswith("_pb2"):
                classes = (
                    node
                    for node in ast.walk(ast.parse((ROOT / file).read_bytes()))
                    if isinstance(node, ast.ClassDef)
                )
                names.update(node.name for node in classes if not node.name.startswith("_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_one_module_reads_times_and_writes_durations() -> None:
    reads = re.compile(r"\b(?:fromisoformat|strptime|parsedate\w*)\(|def \w*duration(?:_text)?\(seconds")
    files = (file for package in ("controller", "evaluator") for file in modules(package))
    assert [str(file) for file in files if reads.search((ROOT / file).read_text())] == [
        "evaluator/host/times.py"
    ]


def patched_constants(file: Path) -> list[str]:
    """Where `monkeypatch.setattr` names a constant: such a test knows how the value is kept."""
    calls = (node for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.Call))
    patches = (call for call in calls if ast.unparse(call.func).endswith("monkeypatch.setattr"))
    names = (
        (patch.lineno, arg.value) for patch in patches for arg in patch.args if isinstance(arg, ast.Constant)
    )
    return [f"{file.relative_to(ROOT)}:{line}" for line, name in names if CONSTANT.search(str(name))]


def test_tests_patch_no_constants() -> None:
    assert [place for file in (ROOT / "tests").rglob("*.py") for place in patched_constants(file)] == []


def test_what_surrounds_a_test_has_a_name_that_says_what_it_is_or_is_shared() -> None:
    found = [
        f"{file}: {node.name}"
        for file in modules("tests")
        if file.parts[:2] != ("tests", "worlds")
        for node in ast.parse((ROOT / file).read_bytes()).body
        if isinstance(node, ast.ClassDef) and node.name in WORLDS
    ]
    assert found == [], "name it by what it holds, or share it in tests/worlds"


def test_few_test_modules_define_a_function_of_one_name() -> None:
    names = Counter(
        node.name
        for file in modules("tests")
        for node in ast.parse((ROOT / file).read_bytes()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.decorator_list
        and not node.name.startswith(("test_", "_"))
    )
    common = {name for name, count in names.items() if count > MOST_OF_A_NAME}
    assert common <= set(MANY_OF_A_NAME), "share it in tests/worlds, or say in MANY_OF_A_NAME why not"
