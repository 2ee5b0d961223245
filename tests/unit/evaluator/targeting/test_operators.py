"""Each operator's answers, quirks of flagd's engine included."""

from __future__ import annotations

import math
from typing import Any

import pytest

from evaluator.flags.model import Bucketing
from evaluator.targeting import RuleError, compile_rule

CONTEXT: dict[str, Any] = {
    "text": "hello", "empty": "", "one": 1, "half": 0.5, "yes": True, "no": False, "nothing": None,
    "list": [1, "two", {"deep": [10, 20]}], "pair": [2, 1], "object": {"inner": {"leaf": "x"}, "a.b": 1},
    "single": {"var": "text"}, "users": [{"name": "ann", "age": 30}, {"name": "bob", "age": 20}],
    "name": "outer", "targetingKey": "user-1", "$flagd": {"flagKey": "flag", "timestamp": 1_700_000_000},
}  # fmt: skip
FAILS = object()


def evaluate(rule: Any, context: dict[str, Any] | None = None) -> Any:
    compiled = compile_rule(rule, bucketing=Bucketing.V2, flag_key="flag")
    return compiled(CONTEXT if context is None else context)


def var(name: Any) -> dict[str, Any]:
    return {"var": name}


VALUES: list[tuple[Any, Any]] = [
    ("on", "on"),
    (None, None),
    ({}, {}),
    ({"a": var("text"), "b": 1}, {"a": {"var": "text"}, "b": 1}),
    ([var("text"), [var("one")]], ["hello", [1]]),
    ({"nonsense": []}, FAILS),
    ({"if": [True, "on", {"nonsense": []}]}, "on"),
    ({"$ref": "gone"}, FAILS),
]
VARIABLES: list[tuple[Any, Any]] = [
    (var("text"), "hello"),
    (var(["text"]), "hello"),
    (var("object.inner.leaf"), "x"),
    (var("object..inner.leaf."), "x"),
    (var(".text"), "hello"),
    (var("object.a.b"), None),
    (var("list.1"), "two"),
    (var("list.2.deep.1"), 20),
    (var("list.words"), 1),
    (var("list.9"), None),
    (var("list.-1"), None),
    (var("text.0"), None),
    (var("missing"), None),
    (var(["missing", "default"]), "default"),
    (var(["nothing", "default"]), "default"),
    (var(["no", True]), False),
    (var(["object.missing", "default"]), "default"),
    (var(["missing", "default", "third"]), None),
    (var(["missing", var("text")]), "hello"),
    (var(""), CONTEXT),
    (var([]), CONTEXT),
    (var([""]), CONTEXT),
    ({"map": [[None], var(["", "default"])]}, ["default"]),
    ({"map": [[None], var("")]}, [None]),
    (var(None), None),
    (var(var("name")), None),
    (var({"cat": ["te", "xt"]}), "hello"),
    (var(True), FAILS),
    (var([1]), FAILS),
    (var({"a": 1, "b": 2}), FAILS),
    (var("$flagd.flagKey"), "flag"),
    (var("$flagd.timestamp"), 1_700_000_000),
    ({"missing": ["text", "gone", "object.inner.gone"]}, ["gone", "object.inner.gone"]),
    ({"missing": "gone"}, ["gone"]),
    ({"missing": []}, []),
    ({"missing": 1}, FAILS),
    ({"missing_some": [1, ["text", "gone"]]}, []),
    ({"missing_some": [2, ["text", "gone"]]}, ["gone"]),
    ({"missing_some": [1]}, FAILS),
    ({"missing_some": "gone"}, FAILS),
]
LOGIC: list[tuple[Any, Any]] = [
    ({"if": []}, None),
    ({"if": ["only"]}, "only"),
    ({"if": [False, "a"]}, None),
    ({"if": [var("empty"), "a", var("yes"), "b", "c"]}, "b"),
    ({"if": [[], "a", {}, "b", "c"]}, "c"),
    ({"if": [[0], "a", "b"]}, "a"),
    ({"if": var("pair")}, FAILS),
    ({"if": [True, var("single")]}, FAILS),
    ({"if": [True, var("object")]}, CONTEXT["object"]),
    ({"?:": [var("no"), 1, 2]}, 2),
    ({"and": [True, 1, "x"]}, "x"),
    ({"and": [True, 0, "x"]}, 0),
    ({"and": [1, 2]}, 2),
    ({"and": []}, None),
    ({"and": True}, FAILS),
    ({"and": [False, {"nonsense": []}]}, False),
    ({"or": [0, "", "x"]}, "x"),
    ({"or": [False, None, 0]}, 0),
    ({"or": [1, {"nonsense": []}]}, 1),
    ({"or": var("list")}, FAILS),
    ({"!": [True]}, False),
    ({"!": 0}, True),
    ({"!": []}, True),
    ({"!": [[]]}, True),
    ({"!": var("pair")}, False),
    ({"!": [0, {"nonsense": []}]}, FAILS),
    ({"!!": ["0"]}, True),
    ({"!!": var("list")}, True),
]
COMPARISONS: list[tuple[Any, Any]] = [
    ({"==": [1, 1.0]}, True), ({"==": ["1", 1]}, True), ({"==": [" ", 0]}, True), ({"==": [" 1", 1]}, False),
    ({"==": ["1_0", 10]}, False), ({"==": [True, 1]}, True), ({"==": [None, None]}, True),
    ({"==": [None, False]}, False), ({"==": [None, 0]}, False), ({"==": [[1], [1]]}, False),
    ({"==": [var("missing"), "x"]}, False), ({"==": [var("text"), "hello"]}, True),
    ({"==": ["hello", var("text")]}, True), ({"==": [var("one"), "1"]}, True),
    ({"==": [var("$flagd"), "x"]}, False), ({"==": var("pair")}, False), ({"==": [1]}, False),
    ({"==": 1}, FAILS), ({"==": []}, False), ({"==": var("list.2.deep")}, False),
    ({"==": {"merge": [1]}}, False), ({"==": {"merge": [1, 1]}}, True), ({"!=": [1, "1"]}, False),
    ({"!=": [1]}, True), ({"!=": 1}, FAILS), ({"===": [1, 1.0]}, True), ({"===": [1, "1"]}, False),
    ({"===": [True, 1]}, False), ({"===": [None, None]}, True), ({"===": [1]}, False), ({"!==": [1]}, True),
    ({"!==": [1, "1"]}, True), ({"<": [1, "2"]}, True), ({"<": ["10", "9"]}, True), ({"<": [None, 1]}, True),
    ({"<": [1, var("missing")]}, False), ({"<": ["x", 1]}, False), ({"<": [1, 2, 3]}, True),
    ({"<": [1, 3, 2]}, False), ({"<": [1, 2, 3, 0]}, True), ({"<": [1]}, False), ({"<=": [1, 1, 2]}, True),
    ({"<=": [1]}, False), ({"<=": [None, None]}, True), ({"<=": [None, 0]}, False), ({">": [3, 2, 1]}, True),
    ({">": []}, False), ({">": var("text")}, FAILS), ({">": var("pair")}, True), ({">=": [2, 2]}, True),
    ({">=": [1, 2]}, False), ({">=": [1]}, False),
]  # fmt: skip
ARITHMETIC: list[tuple[Any, Any]] = [
    ({"+": [1, "2", 0.5]}, 3.5), ({"+": "3"}, 3.0), ({"+": ["words"]}, 0.0), ({"+": []}, 0.0),
    ({"cat": [{"+": [-0.0]}, ""]}, "-0"), ({"cat": [{"+": ["-0"]}, ""]}, "-0"), ({"+": [None]}, FAILS),
    ({"+": [True]}, FAILS), ({"-": [5]}, -5.0), ({"-": [5, 2, 1]}, 2.0), ({"-": []}, 0), ({"-": 5}, FAILS),
    ({"*": [2, 3]}, 6.0), ({"*": []}, 1.0), ({"/": [8, 2, 2]}, 2.0), ({"/": [1, 0]}, math.inf),
    ({"/": [-1, 0]}, -math.inf), ({"%": [7, 3]}, 1.0), ({"%": [-7, 3]}, -1.0), ({"%": [1]}, FAILS),
    ({"max": [1, "3", 2]}, 3.0), ({"max": []}, None), ({"min": [1, -3]}, -3.0), ({"min": 1}, FAILS),
    ({"abs": -2}, 2.0), ({"abs": ["-2", 5]}, 2.0), ({"abs": []}, FAILS), ({"+": [10**400]}, FAILS),
    ({"==": ["1" * 5000, 1]}, FAILS),
]  # fmt: skip
TEXT: list[tuple[Any, Any]] = [
    ({"cat": ["a", 1, 1.5, None]}, "a11.5"),
    ({"cat": [" a ", "b "]}, "a b"),
    ({"cat": ["\x1c", "b"]}, "\x1cb"),
    ({"cat": [" a "]}, " a "),
    ({"cat": " a "}, " a "),
    ({"cat": []}, ""),
    ({"cat": [1e21, ""]}, "1000000000000000000000"),
    ({"cat": ["a", True]}, FAILS),
    ({"cat": ["a", []]}, FAILS),
    ({"cat": None}, FAILS),
    ({"substr": ["jsonlogic", 4]}, "logic"),
    ({"substr": ["jsonlogic", -5]}, "logic"),
    ({"substr": ["jsonlogic", 1, 3]}, "son"),
    ({"substr": ["jsonlogic", 4, -2]}, "log"),
    ({"substr": ["ab", 9]}, "ab"),
    ({"substr": ["ab", -9]}, "ab"),
    ({"substr": ["ab", 2, -1]}, FAILS),
    ({"substr": ["ab"]}, FAILS),
    ({"starts_with": [var("text"), "he"]}, True),
    ({"starts_with": [var("text"), "lo"]}, False),
    ({"starts_with": [var("one"), "1"]}, None),
    ({"starts_with": ["a"]}, None),
    ({"starts_with": "a"}, None),
    ({"ends_with": [var("text"), "lo"]}, True),
    ({"ends_with": [var("text"), "lo", "x"]}, None),
]
LISTS: list[tuple[Any, Any]] = [
    ({"in": ["ell", "hello"]}, True),
    ({"in": [var("missing"), "hello"]}, FAILS),
    ({"in": [1, "123"]}, FAILS),
    ({"in": ["a", ["a", "b"]]}, True),
    ({"in": [var("text"), ["hello"]]}, True),
    ({"in": [var("missing"), ["hello"]]}, False),
    ({"in": [1, ["1"]]}, True),
    ({"in": [0, ["words"]]}, True),
    ({"in": [1, [None]]}, FAILS),
    ({"in": ["1", [1]]}, False),
    ({"in": [None, [None]]}, True),
    ({"in": [True, [1]]}, False),
    ({"in": [5, [[1, 4], [5, 9]]]}, True),
    ({"in": ["5", [[1, 9]]]}, True),
    ({"in": [None, [[1, 9]]]}, FAILS),
    ({"in": [5, [[1]]]}, FAILS),
    ({"in": [1, [[5]]]}, FAILS),
    ({"in": ["a", None]}, False),
    ({"in": ["a"]}, False),
    ({"in": [{}, [{}]]}, FAILS),
    ({"merge": [1, [2, [3]], None]}, [1, 2, [3], None]),
    ({"merge": 1}, [1]),
    ({"merge": []}, []),
    ({"merge": None}, FAILS),
    ({"contains_all": [["a", "b"], ["b"]]}, True),
    ({"contains_all": [["a"], []]}, True),
    ({"contains_all": [["a"], ["a", "b"]]}, False),
    ({"contains_all": ["a", ["a"]]}, False),
    ({"contains_any": [["a", 1], [True, 1.0]]}, True),
    ({"contains_any": [["a", 1], [True]]}, False),
    ({"contains_any": [[2**53 + 1], [2**53]]}, True),
    ({"contains_any": [[[1]], [[1]]]}, FAILS),
    ({"contains_any": [["a"], [[1]]]}, False),
    ({"contains_none": [["a"], ["b"]]}, True),
    ({"contains_none": [["a"]]}, True),
    ({"contains_none": [["a"], ["a"]]}, False),
    ({"set": [{}, "a", 1]}, {"a": 1}),
    ({"set": [var("object"), "inner", None]}, {"inner": None, "a.b": 1}),
    ({"set": ["text", "a", 1]}, "text"),
    ({"set": [{}, "a"]}, {}),
    ({"set": [{}, 1, 1]}, FAILS),
    ({"set": [{}, "a", var("single")]}, FAILS),
]
LOOPS: list[tuple[Any, Any]] = [
    ({"map": [[1, 2], {"*": [var(""), 2]}]}, [2.0, 4.0]),
    ({"map": [var("users"), var("name")]}, ["ann", "bob"]),
    ({"map": [var("missing"), 1]}, []),
    ({"map": ["text", 1]}, []),
    ({"map": [[1]]}, []),
    ({"map": [var("text")]}, []),
    ({"map": var("list")}, FAILS),
    ({"map": [var("text"), 1]}, FAILS),
    ({"map": [[var("text")], var("")]}, [{"var": "text"}]),
    ({"filter": [var("users"), {">": [var("age"), 25]}]}, [CONTEXT["users"][0]]),
    ({"filter": [[1, 0], True]}, [1, 0]),
    ({"filter": [var("users"), {"==": [var("name"), "ann"]}]}, []),
    ({"filter": [var("users"), {"==": [var(".name"), "ann"]}]}, [CONTEXT["users"][0]]),
    ({"filter": [[1], {"==": [var("single"), 1]}]}, FAILS),
    ({"filter": [[1]]}, []),
    ({"filter": [{"nonsense": []}]}, []),
    ({"filter": var("list")}, FAILS),
    ({"all": [var("users"), {">": [var("age"), 10]}]}, True),
    ({"all": [var("users"), {">": [var("age"), 25]}]}, False),
    ({"all": [[], {"nonsense": []}]}, False),
    ({"all": [[1], True]}, FAILS),
    ({"all": [var("users"), var("age")]}, FAILS),
    ({"all": [[1, 2], var("")]}, True),
    ({"all": [var("text"), var("")]}, FAILS),
    ({"some": [var("users"), {"<": [var("age"), 25]}]}, True),
    ({"some": [var("users"), {"==": [var("name"), "bob"]}]}, False),
    ({"some": [var("missing"), True]}, False),
    ({"none": [var("users"), {"<": [var("age"), 10]}]}, True),
    ({"none": [var("users"), {"<": [var("age"), 25]}]}, False),
    ({"none": [[], True]}, True),
    ({"some": [[{"name": "ann"}], {"some": [var("text"), {"==": [1, 1]}]}]}, False),
    ({"some": [[1], {"some": [var("pair"), {"==": [var(""), 2]}]}]}, True),
    ({"some": [[1], {"some": [var("object"), {"==": [1, 1]}]}]}, FAILS),
    ({"some": [[1], {"map": [var("single"), 1]}]}, FAILS),
    ({"some": [[1], {"reduce": [[1], var("text"), 0]}]}, FAILS),
    ({"filter": [[1], {"reduce": [[], var("text"), 0]}]}, []),
    ({"all": [[None], var(["", "default"])]}, FAILS),
    ({"reduce": [[1, 2, None], {"+": [var("current"), var("accumulator")]}, 0]}, 3.0),
    ({"reduce": [["a", "b"], {"cat": [var("accumulator"), var("current")]}, ""]}, "ab"),
    ({"reduce": [[0, 1], {"or": [var("accumulator"), var("current")]}, False]}, True),
    ({"reduce": [var("missing"), {"nonsense": []}, 5]}, 0.0),
    ({"reduce": [[1], var("valueType"), "x"]}, "string"),
    ({"reduce": [[1], {"+": [1]}, None]}, FAILS),
    ({"reduce": [[1], {"+": [1]}]}, 0.0),
    ({"reduce": [[1]]}, 0.0),
    ({"reduce": var("list")}, FAILS),
    ({"reduce": [[1], 1, 1]}, FAILS),
]
SEMANTIC_VERSIONS: list[tuple[Any, Any]] = [
    ({"sem_ver": [left, operator, right]}, expected)
    for left, operator, right, expected in [
        ("1.2.3", "=", "v1.2.3", True),
        ("V1", "=", "1.0.0", True),
        ("1.2", "=", "1.2.0", True),
        (1.2, "=", "1.2.0", True),
        (2, ">", "1.9", True),
        (999_999, ">", "1.9", True),
        (1_000_000, ">", "1.9", None),
        ("1.2.3+a", "=", "1.2.3+b", True),
        ("1.0.0-alpha", "<", "1.0.0", True),
        ("1.0.0-alpha.1", "<", "1.0.0-alpha.beta", True),
        ("1.0.0-2", "<", "1.0.0-10", True),
        ("1.0.0-alpha", "<", "1.0.0-alpha.1", True),
        ("1.9.9", "~", "1.9.0", True),
        ("1.9.9", "~", "1.8.0", False),
        ("1.0.0", "^", "1.9.9", True),
        ("2.0.0", "^", "1.9.9", False),
        ("1.0.0", "!=", "1.0.0", False),
        ("10.0.0", ">=", "9.0.0", True),
        ("1.0.0", "<=", "0.9.9", False),
        ("2.0.0.0", "=", "2.0.0", None),
        ("01.0.0", "=", "1.0.0", None),
        ("1.0.0-01", "=", "1.0.0", None),
        ("1-alpha", "=", "1.0.0", None),
        ("1.0.0", "===", "1.0.0", None),
        (None, "=", "1.0.0", None),
        (True, "=", "1.0.0", None),
        ("1.0.0\n", "=", "1.0.0", None),
        ("1.0.0+" + "a" * 250, "=", "1.0.0", True),
        ("1.0.0+" + "a" * 251, "=", "1.0.0", None),
    ]
] + [({"sem_ver": ["1.0.0", "="]}, None), ({"sem_ver": "1.0.0"}, None)]
TABLES = {
    "values": VALUES, "variables": VARIABLES, "logic": LOGIC, "comparisons": COMPARISONS,
    "arithmetic": ARITHMETIC, "text": TEXT, "lists": LISTS, "loops": LOOPS, "versions": SEMANTIC_VERSIONS,
}  # fmt: skip
CASES = [
    pytest.param(rule, expected, id=f"{name}-{number}-{str(rule)[:60]}")
    for name, table in TABLES.items()
    for number, (rule, expected) in enumerate(table)
]


@pytest.mark.parametrize(("rule", "expected"), CASES)
def test_a_rule_comes_to_what_flagds_engine_makes_of_it(rule: Any, expected: Any) -> None:
    if expected is FAILS:
        with pytest.raises(RuleError):
            evaluate(rule)
        return
    result = evaluate(rule)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(("rule", "expected"), CASES)
def test_every_operator_reports_what_it_comes_to(rule: Any, expected: Any) -> None:
    compiled = compile_rule(rule, bucketing=Bucketing.V2, flag_key="flag")
    reports: list[Any] = []
    try:
        result = compiled(CONTEXT, trace=lambda *report: reports.append(report))
    except RuleError:
        result = FAILS
    assert result == expected
    if result is not FAILS and isinstance(rule, dict) and len(rule) == 1:
        path, name, value, _ = reports[-1]
        assert (path, name) == ((*rule,), *rule)
        assert value is result


def test_a_remainder_of_nothing_is_not_a_number() -> None:
    assert math.isnan(evaluate({"%": [1, 0]}))
    assert math.isnan(evaluate({"/": [0, 0]}))
