"""JSON Patch over what layers come to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.flagsets.compose import Composition, compose, provenance_of
from controller.flagsets.patches import Patch, apply_patches
from controller.flagsets.preparation import Steps
from controller.flagsets.substitution import Variables
from evaluator.flags.canonical import canonical
from evaluator.flags.document import read_document
from evaluator.flags.layer import read_layer
from evaluator.flags.text import Bounds
from tests.worlds.flagsets import World, document, flag

RULE = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on", "off"]}
BASE = json.dumps({
    "flags": {"a": flag(targeting=RULE), "b": flag(), "c": flag(metadata={"owner": "ada"})},
    "$evaluators": {"gold": {"==": [{"var": "tier"}, "gold"]}},
    "metadata": {"team": "shop"},
})  # fmt: skip
OVER = json.dumps({"flags": {"b": {"defaultVariant": "on", "variants": {"more": True}}}})


def compose_patched(*patches: str, lenient: bool = False) -> Composition:
    files = {"base.json": BASE.encode(), "over.json": OVER.encode()}
    named = [Patch(f"spec.patches[{index}]", text) for index, text in enumerate(patches)]
    provenance = provenance_of("main@sha1:1")
    return compose(files, list(files), provenance=provenance, previous=None, patches=named, lenient=lenient)


def operations(*each: dict[str, Any]) -> str:
    return json.dumps(each)


def test_operations_change_what_the_layers_come_to() -> None:
    made = compose_patched(
        """
        - {op: test, path: /flags/b/defaultVariant, value: on}
        - {op: replace, path: /flags/a/targeting/if/0/==/1, value: silver}
        - {op: remove, path: /flags/b/variants/more}
        - {op: move, from: /flags/c, path: /flags/d}
        - {op: copy, from: /flags/d, path: /flags/e}
        - {op: add, path: /flags/e/metadata/owner, value: bob}
        - {op: add, path: /metadata/stage, value: test}
        - {op: remove, path: /metadata/team}
        """,
        operations({"op": "replace", "path": "/$evaluators/gold/==/1", "value": "platinum"}),
    )
    flags = made.flag_set.flags
    assert (made.problems, sorted(flags)) == ((), ["a", "b", "d", "e"])
    assert flags["a"].targeting == {"if": [{"==": [{"var": "tier"}, "silver"]}, "on", "off"]}
    assert (dict(flags["b"].variants), flags["b"].default_variant) == ({"on": True, "off": False}, "on")
    assert (flags["d"].metadata["owner"], flags["e"].metadata["owner"]) == ("ada", "bob")
    assert made.flag_set.evaluators == {"gold": {"==": [{"var": "tier"}, "platinum"]}}
    assert (made.flag_set.metadata.get("stage"), "team" in made.flag_set.metadata) == ("test", False)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ({"op": "test", "path": "/flags/a/state", "value": "DISABLED"}, "test /flags/a/state"),
        ({"op": "remove", "path": "/flags/a/nothing"}, "remove /flags/a/nothing"),
        ({"op": "remove", "path": "/flags/nothing"}, "remove /flags/nothing"),
        ({"op": "replace", "path": "/flags/a/targeting/if/9", "value": 1}, "replace"),
        ({"op": "add", "path": "/flags/a/targeting/if/x", "value": 1}, "add"),
        ({"op": "add", "path": "/flags/a/state/x", "value": 1}, "add"),
        ({"op": "add", "path": "/flags/a/x"}, "add"),
        ({"op": "move", "path": "/flags/a/x"}, "move"),
        ({"op": "frobnicate", "path": "/flags/a/x"}, "frobnicate"),
        ({"op": "remove", "path": "/flags"}, "not below /flags/KEY"),
        ({"op": "remove", "path": ""}, "not below /flags/KEY"),
        ({"op": "remove", "path": "/other/a"}, "not below /flags/KEY"),
        ({"op": "remove", "path": "flags/a"}, "remove"),
        ({"op": "remove", "path": 5}, "remove"),
        ({"op": "remove"}, "remove"),
        ({"path": "/flags/a"}, "/flags/a"),
        ({"op": "copy", "from": "/flags/a/state", "path": "/metadata/a"}, "from one section to another"),
        ("remove", "an operation is an object"),
    ],
)
def test_an_operation_that_fails_refuses_the_whole_and_names_its_line(operation: Any, message: str) -> None:
    fine = {"op": "add", "path": "/flags/b/state", "value": "DISABLED"}
    made = compose_patched(f"- {json.dumps(fine)}\n- {json.dumps(operation)}\n")
    (problem,) = made.problems
    assert not made.accepted
    assert (problem.file, problem.line, problem.code) == ("spec.patches[0]", 2, "patch-failed")
    assert message in problem.message


@pytest.mark.parametrize("text", ["{", "a: 1", "- [", "text"])
def test_what_is_no_patch_refuses_the_whole(text: str) -> None:
    made = compose_patched(text)
    assert not made.accepted
    assert {each.file for each in made.problems} == {"spec.patches[0]"}


def test_what_a_patch_makes_is_judged_and_placed_at_the_operation() -> None:
    made = compose_patched(
        "- {op: remove, path: /flags/c/metadata}\n"
        "- {op: replace, path: /flags/b/defaultVariant, value: none such}\n"
        "- {op: replace, path: /flags/a/targeting, value: {frobnicate: 1}}\n"
    )
    places = [(each.file, each.line, each.flag) for each in made.problems]
    assert places == [("spec.patches[0]", 2, "b"), ("spec.patches[0]", 3, "a")]
    assert (sorted(made.flag_set.flags), made.missing) == (["c"], ("a", "b"))


def test_a_flag_that_a_patch_adds_and_one_that_it_removes() -> None:
    made = compose_patched(
        operations({"op": "add", "path": "/flags/new", "value": flag()}, {"op": "remove", "path": "/flags/a"})
    )
    assert (made.problems, sorted(made.flag_set.flags)) == ((), ["b", "c", "new"])


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/flags/a/variants/on", "value": "x"},
        {"op": "add", "path": "/flags/a/variants/on/deeper", "value": "x"},
        {"op": "remove", "path": "/flags/a/variants/none"},
        {"op": "replace", "path": "/flags/a/defaultVariant", "value": "none"},
        {"op": "copy", "from": "/flags/a", "path": "/flags/z"},
        {"op": "move", "from": "/flags/a/variants/on", "path": "/flags/b/variants/more"},
    ],
)
def test_a_patch_shows_no_secret_and_a_value_made_of_one_is_marked(operation: dict[str, Any]) -> None:
    text = json.dumps({"flags": {"a": flag("off", variants={"on": "${T}", "off": "x"}), "b": flag()}})
    made = compose(
        {"a.json": text.encode()}, ["a.json"], provenance=provenance_of("main@sha1:1"), previous=None,
        steps=Steps(variables=Variables({"T": "s3cr3t"}, frozenset("T"))),
        patches=[Patch("p", operations(operation))], lenient=True,
    )  # fmt: skip
    assert "s3cr3t" not in repr(made.problems)
    for each in made.flag_set.flags.values():
        assert ("s3cr3t" in repr(each.variants)) <= ("flagstaff.dev/secret" in each.metadata)


def test_copies_of_copies_are_refused_before_they_fill_the_memory() -> None:
    doubled = [
        {"op": "copy", "from": "/flags/a", "path": f"/flags/a/metadata/{number}"} for number in range(40)
    ]
    made = compose_patched(
        operations({"op": "add", "path": "/flags/a/metadata", "value": {"long": "x" * 10_000}}, *doubled)
    )
    (problem,) = made.problems
    assert (made.accepted, problem.code) == (False, "patch-failed")
    assert "copy and move more than" in problem.message


def test_patches_of_a_set_share_what_they_may_copy() -> None:
    text = "x" * 6_000_000
    add = operations({"op": "add", "path": "/flags/a/metadata", "value": {"long": text}})
    copy = operations({"op": "copy", "from": "/flags/a/metadata", "path": "/flags/b/metadata"})
    move = operations({"op": "move", "from": "/flags/b/metadata", "path": "/flags/b/metadata"})
    assert "patch-failed" not in {each.code for each in compose_patched(add, copy, move).problems}
    made = compose_patched(add, copy, move, move)
    assert [(each.file, each.code) for each in made.problems] == [("spec.patches[3]", "patch-failed")]


def nest(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"x": value}
    return value


@pytest.mark.parametrize("op", ["add", "replace", "copy", "move"])
def test_a_patch_nests_no_deeper_than_a_document_may(op: str) -> None:
    def at(levels: int) -> Composition:
        value = nest(levels)
        first = {"op": "add", "path": "/flags/b/variants", "value": {"on": value, "off": {}}}
        path = "/flags/a/variants/on/x"
        given = {"from": "/flags/b/variants/on"} if op in {"copy", "move"} else {"value": value}
        second = {"op": "add", "path": "/flags/a/variants", "value": {"on": {"x": {}}, "off": {}}}
        return compose_patched(
            operations({"op": "replace", "path": "/flags/a/targeting", "value": {}}, first, second),
            operations({"op": op, "path": path, **given}),
        )

    made = at(95)
    assert "a" in made.flag_set.flags
    assert not read_document(canonical(made.flag_set), file="flags.json").unreadable
    (problem,) = at(96).problems
    assert (problem.file, problem.line, problem.code) == ("spec.patches[1]", 1, "patch-failed")
    assert "100 levels" in problem.message


def test_a_part_that_a_patch_makes_holds_no_more_than_a_document_may() -> None:
    values = {"op": "add", "path": "/flags/a/variants/on", "value": [0] * 30}
    more = {"op": "add", "path": "/flags/a/variants/off", "value": [0] * 30}
    base = [read_layer([("a.json", document(a=flag()).encode())])]
    (layer,), _ = apply_patches(base, [Patch("p", operations(values, more))], Bounds(nodes=50))
    assert [finding.code for finding in layer.findings] == ["patch-failed"]


def test_what_an_alias_repeats_is_changed_at_one_place_alone() -> None:
    made = compose_patched(
        "- {op: add, path: /flags/a/variants, value: {on: &v {x: 1}, off: *v}}\n"
        "- {op: add, path: /flags/a/variants/on/y, value: 2}\n"
    )
    assert dict(made.flag_set.flags["a"].variants) == {"on": {"x": 1, "y": 2}, "off": {"x": 1}}


async def test_patches_of_a_flag_set_are_applied() -> None:
    world = World()
    world.commit("r1", document(a=flag()))
    world.flag_set(patches=[{"patch": "- {op: replace, path: /flags/a/defaultVariant, value: on}"}])
    assert (await world.look()).reason == "Succeeded"
    assert world.defaults() == {"a": "on"}
    world.flag_set(patches=[{"patch": "- {op: remove, path: /flags/b}"}])
    seen = await world.look()
    assert (seen.reason, world.defaults()) == ("BuildFailed", {"a": "on"})
    assert "spec.patches[0]:1:3: the operation 1" in seen.message
