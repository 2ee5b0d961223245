"""Whatever work of several owners waits for is in the register of shared resources, which a page prints."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from controller.cli.shared_resources import REGISTER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT: Final = Path(__file__).parents[2]
PRIMITIVES: Final = frozenset({
    "BoundedSemaphore", "Semaphore", "ProcessPoolExecutor", "ThreadPoolExecutor",
    "FairShare", "FairThreads", "Helpers", "KeyedQueue", "Offload", "Places", "StreamLimits", "FairQueue",
    "Limits", "LifoQueue", "PriorityQueue", "Queue", "SimpleQueue",
    "FIFOCache", "LFUCache", "LRUCache", "TLRUCache", "TTLCache", "cache", "lru_cache",
})  # fmt: skip
"""What limits, or keeps for a while, what several may want."""
_MODULES: Final = frozenset({"asyncio", "cachetools", "futures", "functools", "queue", "threading"})


class Uses(ast.NodeVisitor):
    """The uses of primitives in a module, each by the name that it is assigned to, or of its function. What
    only types name is no use.
    """

    def __init__(self, module: str) -> None:
        self.module = module
        self.found: list[str] = []
        self._names: dict[str, str] = {}
        self._inside = [""]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._names |= {alias.asname or alias.name: alias.name for alias in node.names}

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.body):
            self.visit(part)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        defaults = (*node.args.defaults, *(default for default in node.args.kw_defaults if default))
        self._visit_inside(node.name, (*node.decorator_list, *defaults, *node.body))

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._visit_inside(_name(node.targets[0]), (node.value,))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._visit_inside(_name(node.target), (node.value,))

    def visit_Call(self, node: ast.Call) -> None:
        if _name(node.func) == "deque" and any(word.arg == "maxlen" for word in node.keywords):
            self._add()
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        name = self._names.get(node.id, node.id)
        # Many a variable is called `cache`.
        if name in PRIMITIVES and (name != "cache" or node.id in self._names):
            self._add()

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in PRIMITIVES and _name(node.value) in _MODULES:
            self._add()
        self.generic_visit(node)

    def _visit_inside(self, name: str, parts: Iterable[ast.AST]) -> None:
        self._inside.append(name or self._inside[-1])
        for part in parts:
            self.visit(part)
        self._inside.pop()

    def _add(self) -> None:
        self.found.append(f"{self.module}:{self._inside[-1]}")


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def uses_in(source: bytes, module: str) -> list[str]:
    visitor = Uses(module)
    visitor.visit(ast.parse(source))
    return visitor.found


def modules() -> Iterator[tuple[str, bytes]]:
    for package in ("controller", "evaluator"):
        for file in sorted((ROOT / package).rglob("*.py")):
            yield ".".join(file.relative_to(ROOT).with_suffix("").parts), file.read_bytes()


def test_each_use_of_what_limits_or_keeps_is_in_the_register() -> None:
    used = Counter(use for module, source in modules() for use in uses_in(source, module))
    registered = Counter(use for row in REGISTER for use in row.uses)
    assert used - registered == Counter(), "say in the register who shares it"
    assert registered - used == Counter(), "this is not there any more"


@pytest.mark.parametrize(
    "source",
    [
        "x = asyncio.Semaphore(3)",
        "class A:\n    def __init__(self):\n        self.x = asyncio.Queue(5)",
        "x: T = field(default_factory=lambda: LRUCache(64))",
        "@lru_cache(maxsize=64)\ndef x(): ...",
        "@functools.cache\ndef x(): ...",
        "from functools import cache\n@cache\ndef x(): ...",
        "async def x():\n    return client(Places(4))",
        "from a import ThreadPoolExecutor as Pool\nx = Pool(4)",
        "x = deque(maxlen=4)",
        "class A:\n    x: Places = field(default_factory=partial(Places, 1))",
        "def x(limits=Limits()): ...",
        "x = Limits(connections=1)",
    ],
)
def test_a_use_is_seen_however_it_is_written(source: str) -> None:
    assert uses_in(source.encode(), "m") == ["m:x"]


def test_nothing_else_is_a_use() -> None:
    assert uses_in(b"x = deque()\ny = cache.get(1)\ndef z(places: Places) -> FairShare[str]: ...", "m") == []


def test_each_name_of_a_resource_in_the_metric_is_a_row() -> None:
    named = {name for _, source in modules() for name in re.findall(rb'resource="([^"]+)"', source)}
    rows = {row.name for row in REGISTER if row.metric == "flagstaff_shared_waiting"}
    assert {name.decode() for name in named} - {"Events for Flux"} == rows


def test_each_metric_of_the_register_is_served() -> None:
    served = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    assert [row.metric for row in REGISTER if row.metric and f"`{row.metric}`" not in served] == []


def test_what_waits_has_an_owner_a_share_and_an_end() -> None:
    for row in REGISTER:
        assert row.share
        assert row.end
        assert (row.owner == "none") == (not row.metric)
