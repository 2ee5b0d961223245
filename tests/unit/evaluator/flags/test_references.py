from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.flags.known_operators import DEPTH, NODES
from evaluator.flags.references import Expander, RuleTooLarge, check_cycles, measure


def expand(rule: Any, evaluators: dict[str, Any]) -> Any:
    return Expander(evaluators).expand(rule)


def ref(name: str) -> dict[str, str]:
    return {"$ref": name}


STAFF = {"ends_with": [{"var": "email"}, "@example.com"]}


def test_a_reference_is_replaced_wherever_it_stands() -> None:
    rule = {"if": [ref("staff"), [ref("staff")], {"a": ref("staff"), "b": 1}]}
    expected = {"if": [STAFF, [STAFF], {"a": STAFF, "b": 1}]}
    assert expand(rule, {"staff": STAFF}) == expected


def test_nested_references_are_expanded_whatever_their_order() -> None:
    evaluators = {"a": {"!": ref("b")}, "b": {"!": ref("c")}, "c": STAFF}
    assert expand(ref("a"), evaluators) == {"!": {"!": STAFF}}
    assert expand(ref("a"), dict(reversed(evaluators.items()))) == {"!": {"!": STAFF}}


def test_a_reference_to_nothing_stays_as_it_is() -> None:
    assert expand({"!": ref("nobody")}, {"staff": STAFF}) == {"!": ref("nobody")}


def test_a_reference_with_company_is_no_reference() -> None:
    rule = {"!": {"$ref": "staff", "comment": "x"}}
    assert expand(rule, {"staff": STAFF}) == rule


def test_members_of_a_cycle_stay_and_those_that_lead_to_it_are_expanded() -> None:
    evaluators = {"a": {"!": ref("b")}, "b": {"!": ref("a")}, "in": {"or": [1, ref("a")]}}
    assert expand({"!": ref("in")}, evaluators) == {"!": {"or": [1, ref("a")]}}
    assert expand({"!": ref("b")}, evaluators) == {"!": ref("b")}


def test_a_rule_without_references_is_itself() -> None:
    assert expand(STAFF, {"staff": STAFF}) is STAFF


def test_expansion_changes_neither_the_rule_nor_the_evaluators() -> None:
    rule, evaluators = {"!": ref("a")}, {"a": {"!": ref("b")}, "b": STAFF}
    expand(rule, evaluators)
    assert rule == {"!": ref("a")}
    assert evaluators == {"a": {"!": ref("b")}, "b": STAFF}


def test_references_to_one_evaluator_share_its_body() -> None:
    expanded = expand({"or": [ref("staff"), ref("staff")]}, {"staff": STAFF})
    assert expanded["or"][0] is expanded["or"][1]


@pytest.mark.parametrize(
    ("rule", "nodes", "depth"),
    [
        (1, 1, 0), ({}, 1, 1), ({"!": 1}, 2, 1), ({"!": [1]}, 3, 1), ({"!": [{"var": "a"}]}, 4, 2),
        ([1, [2]], 4, 2),
    ],
    ids=["scalar", "empty", "bare", "listed", "nested", "arrays"],
)  # fmt: skip
def test_a_rule_is_measured_in_parts_and_levels(rule: Any, nodes: int, depth: int) -> None:
    extent = measure(rule)
    assert (extent.nodes, extent.depth) == (nodes, depth)


def nest(levels: int, operator: str) -> Any:
    rule: Any = 1
    for _ in range(levels):
        rule = {operator: rule}
    return rule


def test_measuring_stops_at_the_first_excess() -> None:
    assert measure([[0] * 100] * NODES).nodes == NODES + 1
    assert measure(nest(2 * DEPTH, "!")).depth == DEPTH + 1


def test_a_cycle_and_its_members_are_warnings_at_their_references() -> None:
    evaluators = {"a": {"!": [ref("b")]}, "b": {"!": ref("a")}, "c": {"!": ref("c")}}
    found = [(name, each.code, each.path) for name, each in check_cycles(evaluators)]
    assert found == [
        ("a", "reference-cycle", ("!", 0, "$ref")),
        ("b", "reference-cycle", ("!", "$ref")),
        ("c", "reference-cycle", ("!", "$ref")),
    ]


def test_a_nested_reference_is_a_warning_even_into_a_cycle() -> None:
    evaluators = {"a": {"!": ref("a")}, "b": {"or": [ref("a"), ref("c"), ref("no")]}, "c": STAFF}
    found = [(name, each.code) for name, each in check_cycles(evaluators) if name == "b"]
    assert found == [("b", "nested-reference"), ("b", "nested-reference")]


def test_evaluators_that_refer_to_none_have_no_problem() -> None:
    assert check_cycles({"a": STAFF, "b": STAFF}) == []


names = st.sampled_from("abcdef")
graphs = st.dictionaries(names, st.lists(names, max_size=3), max_size=6)


def reaches(graph: dict[str, list[str]], start: str, end: str) -> bool:
    seen: set[str] = set()
    pending = list(graph.get(start, ()))
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            pending.extend(graph.get(name, ()))
    return end in seen


@settings(max_examples=300)
@given(graphs)
def test_a_cycle_is_reported_where_a_reference_leads_back_to_its_evaluator(
    graph: dict[str, list[str]],
) -> None:
    evaluators = {name: {"or": [ref(each) for each in targets]} for name, targets in graph.items()}
    cyclic = [name for name, each in check_cycles(evaluators) if each.code == "reference-cycle"]
    expected = [
        name
        for name, targets in graph.items()
        for target in targets
        if target in graph and (target == name or reaches(graph, target, name))
    ]
    assert cyclic == expected


@settings(max_examples=300)
@given(graphs)
def test_the_size_foretold_is_the_size_expanded(graph: dict[str, list[str]]) -> None:
    evaluators = {name: {"or": [ref(each) for each in targets]} for name, targets in graph.items()}
    rule = {"and": [ref(name) for name in "abcdef"]}
    expanded = measure(expand(rule, evaluators))
    foretold = Expander(evaluators).extent(rule)
    assert (expanded.nodes, expanded.depth) == (foretold.nodes, foretold.depth)
    assert expanded.nodes == Expander(evaluators).extent(rule).nodes


def test_the_expanded_rule_is_what_is_bounded() -> None:
    rule, most = {"or": [ref("a"), ref("a")]}, (NODES - 6) // 2
    assert Expander({"a": {"+": [1] * most}}).check(rule) == []
    evaluators = {"a": {"+": [1] * (most + 1)}}
    (problem,) = Expander(evaluators).check(rule)
    assert problem.code == "rule-too-large"
    with pytest.raises(RuleTooLarge, match=f"more than {NODES} parts"):
        expand(rule, evaluators)


def test_an_expansion_too_deep_is_reported_at_the_reference_that_leads_there() -> None:
    evaluators = {"a": nest(DEPTH, "!")}
    (problem,) = Expander(evaluators).check({"or": [1, ref("a")]})
    assert (problem.code, problem.path) == ("rule-too-deep", ("or", 1))
