"""Layers: what replaces what, what null removes, and whose fault a problem is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from evaluator.flags.layer import Layer, read_layer
from evaluator.flags.merge import merge
from evaluator.flags.model import ABSENT, State

if TYPE_CHECKING:
    from evaluator.flags.merge import Parsed

BASE: dict[str, Any] = {
    "state": "ENABLED",
    "variants": {"on": True, "off": False},
    "defaultVariant": "off",
    "targeting": {"if": [{"var": "staff"}, "on"]},
    "metadata": {"team": "a", "ticket": 1},
}
NOTHING: dict[str, Any] = {"flags": {}}


def layer(**documents: Any) -> Layer:
    """Documents by name, as values or as text."""
    return read_layer(
        (f"{name}.json", (top if isinstance(top, str) else json.dumps(top, indent=1)).encode())
        for name, top in documents.items()
    )


def merge_layers(base: Any, *overlays: Any) -> Parsed:
    names = ("overlay", "second")
    return merge([layer(base=base), *(layer(**{n: o}) for n, o in zip(names, overlays, strict=False))])


def over(**fields: Any) -> Parsed:
    return merge_layers({"flags": {"f": BASE}}, {"flags": {"f": fields}})


def places(result: Parsed) -> list[tuple[str, str, str]]:
    return [(p.file, p.path, p.code) for p in result.problems]


REPLACED: dict[str, tuple[dict[str, Any], str, Any]] = {
    "state": ({"state": "DISABLED"}, "state", State.DISABLED),
    "default variant": ({"defaultVariant": "on"}, "default_variant", "on"),
    "no default variant": ({"defaultVariant": None}, "default_variant", None),
    "targeting is not spliced": ({"targeting": {"var": "v"}}, "targeting", {"var": "v"}),
    "targeting is removed": ({"targeting": None}, "targeting", ABSENT),
    "one variant": ({"variants": {"on": False}}, "variants", {"on": False, "off": False}),
    "a further variant": ({"variants": {"x": True}}, "variants", {"on": True, "off": False, "x": True}),
    "a variant is removed": ({"variants": {"on": None}, "targeting": None}, "variants", {"off": False}),
    "metadata by key": ({"metadata": {"team": "b", "n": 2}}, "metadata", {"team": "b", "ticket": 1, "n": 2}),
    "a metadata key is removed": ({"metadata": {"team": None}}, "metadata", {"ticket": 1}),
    "metadata is removed": ({"metadata": None}, "metadata", {}),
    "nothing": ({}, "default_variant", "off"),
}


@pytest.mark.parametrize(("fields", "attribute", "expected"), REPLACED.values(), ids=REPLACED)
def test_an_overlay_changes_what_it_names(fields: dict[str, Any], attribute: str, expected: Any) -> None:
    result = over(**fields)
    assert result.problems == ()
    assert getattr(result.flag_set.flags["f"], attribute) == expected


def test_a_variants_object_is_replaced_whole() -> None:
    base = {**BASE, "variants": {"off": {"a": {"x": 1}, "b": 2}}}
    result = merge_layers({"flags": {"f": base}}, {"flags": {"f": {"variants": {"off": {"a": None}}}}})
    assert result.flag_set.flags["f"].variants == {"off": {"a": None}}


def test_null_removes_a_flag() -> None:
    result = merge_layers({"flags": {"f": BASE, "g": BASE}}, {"flags": {"f": None}})
    assert (set(result.flag_set.flags), result.problems) == ({"g"}, ())


def test_a_removed_flag_may_come_back_anew() -> None:
    anew = {"state": "ENABLED", "variants": {"x": 1}}
    result = merge_layers({"flags": {"f": BASE}}, {"flags": {"f": None}}, {"flags": {"f": anew}})
    assert result.flag_set.flags["f"].variants == {"x": 1}
    assert result.flag_set.flags["f"].targeting is ABSENT


def test_evaluators_are_replaced_whole_and_removed_by_null() -> None:
    base = {"flags": {}, "$evaluators": {"a": {"var": "x"}, "b": {"var": "y"}}}
    result = merge_layers(base, {"$evaluators": {"a": {"!": [{"var": "z"}]}, "b": None}})
    assert (result.flag_set.evaluators, result.problems) == ({"a": {"!": [{"var": "z"}]}}, ())


def test_set_metadata_merges_by_key() -> None:
    base = {"flags": {}, "metadata": {"flagSetId": "shop", "a": 1, "b": 2}}
    result = merge_layers(base, {"metadata": {"a": 3, "b": None}})
    assert (result.flag_set.metadata, result.problems) == ({"flagSetId": "shop", "a": 3}, ())


NOTHING_TO_REMOVE: dict[str, tuple[dict[str, Any], str]] = {
    "a flag": ({"flags": {"g": None}}, "$.flags.g"),
    "a field": ({"flags": {"f": {"extra": None}}}, "$.flags.f.extra"),
    "a variant": ({"flags": {"f": {"variants": {"x": None}}}}, "$.flags.f.variants.x"),
    "a flag's metadata": ({"flags": {"f": {"metadata": {"x": None}}}}, "$.flags.f.metadata.x"),
    "an evaluator": ({"$evaluators": {"x": None}}, "$.$evaluators.x"),
    "metadata": ({"metadata": {"x": None}}, "$.metadata.x"),
}


@pytest.mark.parametrize(("overlay", "path"), NOTHING_TO_REMOVE.values(), ids=NOTHING_TO_REMOVE)
def test_a_null_that_removes_nothing_is_a_note(overlay: Any, path: str) -> None:
    result = merge_layers({"flags": {"f": BASE}}, overlay)
    assert [(note.file, note.path, note.code) for note in result.notes] == [
        ("overlay.json", path, "removes-nothing")
    ]
    assert (set(result.flag_set.flags), result.problems, result.warned) == ({"f"}, (), frozenset())


MISSPELT: dict[str, dict[str, Any]] = {
    "a flag": {"flags": {"baner": None}},
    "a field": {"flags": {"banner": {"targetting": None}}},
    "a variant": {"flags": {"banner": {"variants": {"partnr": None}}}},
    "an evaluator": {"$evaluators": {"staf": None}},
    "metadata": {"metadata": {"onwer": None}},
}


@pytest.mark.parametrize("overlay", MISSPELT.values(), ids=MISSPELT)
def test_a_null_that_misspells_what_it_removes_is_a_warning(overlay: Any) -> None:
    variants = {**BASE["variants"], "partner": True}
    base = {
        "flags": {"banner": {**BASE, "variants": variants, "targeting": {"if": [{"var": "a"}, "partner"]}}},
        "$evaluators": {"staff": {"var": "b"}},
        "metadata": {"owner": "shop"},
    }
    (problem,) = merge_layers(base, overlay).problems
    assert (problem.code, problem.severity.value) == ("removes-nothing", "warning")
    assert "did you mean" in problem.message


CAUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "an unknown default": ({"defaultVariant": "x"}, "$.flags.f.defaultVariant", "unknown-variant"),
    "the default's variant removed": (
        {"variants": {"off": None}},
        "$.flags.f.variants.off",
        "unknown-variant",
    ),
    "all variants removed": ({"variants": None}, "$.flags.f.variants", "missing-variants"),
    "the state removed": ({"state": None}, "$.flags.f.state", "missing-state"),
    "a variant of another type": ({"variants": {"on": "x"}}, "$.flags.f.variants.on", "mixed-variants"),
    "a rule": ({"targeting": {"iff": 1}}, "$.flags.f.targeting.iff", "unknown-operator"),
    "a shape": ({"variants": []}, "$.flags.f.variants", "wrong-variants"),
}


@pytest.mark.parametrize(("fields", "path", "code"), CAUSED.values(), ids=CAUSED)
def test_a_problem_is_placed_in_the_layer_that_caused_it(
    fields: dict[str, Any], path: str, code: str
) -> None:
    assert ("overlay.json", path, code) in places(over(**fields))


def test_what_the_base_did_wrong_stays_the_bases() -> None:
    result = merge_layers({"flags": {"f": {**BASE, "defaultVariant": "x"}}}, {"flags": {"f": {}}})
    assert places(result) == [("base.json", "$.flags.f.defaultVariant", "unknown-variant")]


def test_an_overlay_may_mend_the_base() -> None:
    result = merge_layers(
        {"flags": {"f": {**BASE, "defaultVariant": "x"}}}, {"flags": {"f": {"variants": {"x": True}}}}
    )  # fmt: skip
    assert result.problems == ()


def test_a_flag_that_only_the_overlay_has_is_incomplete_there() -> None:
    result = merge_layers(NOTHING, {"flags": {"f": {"defaultVariant": "on"}}})
    assert {file for file, *_ in places(result)} == {"overlay.json"}
    assert result.bad == {"f"}
    assert not result.whole_bad


def test_a_removed_evaluator_is_blamed_on_its_removal() -> None:
    base = {"flags": {"f": {**BASE, "targeting": {"!": [{"$ref": "e"}]}}}, "$evaluators": {"e": {"var": "x"}}}
    result = merge_layers(base, {"$evaluators": {"e": None}})
    assert places(result) == [("overlay.json", "$.$evaluators.e", "unknown-reference")]
    assert result.warned == {"f"}


def test_a_reference_added_after_a_removal_is_blamed_on_the_reference() -> None:
    base = {"flags": {"f": BASE}, "$evaluators": {"e": {"var": "x"}}}
    second = {"flags": {"f": {"targeting": {"!": [{"$ref": "e"}]}}}}
    result = merge_layers(base, {"$evaluators": {"e": None}}, second)
    assert {file for file, *_ in places(result)} == {"second.json"}


def test_layers_need_no_flags_where_another_has_them() -> None:
    assert merge_layers({"flags": {"f": BASE}}, {"metadata": {"a": 1}}).problems == ()


@pytest.mark.parametrize("layers", [[], [layer()]], ids=["no layer", "no document"])
def test_nothing_to_read_is_an_error_of_the_whole(layers: list[Layer]) -> None:
    result = merge(layers)
    assert ([p.code for p in result.errors], result.whole_bad) == (["no-document"], True)


def test_flags_in_no_layer_is_an_error_of_the_whole() -> None:
    result = merge_layers({"metadata": {}}, {"metadata": {}})
    assert (places(result), result.whole_bad) == ([("base.json", "$", "missing-flags")], True)


def test_a_flag_twice_in_one_layer_is_an_error_that_names_both_places() -> None:
    top = {"flags": {"f": BASE, "g": BASE}}
    result = merge([layer(a=top, b={"flags": {"f": BASE}})])
    (problem,) = result.problems
    assert (problem.file, problem.line, problem.column, problem.flag) == ("b.json", 3, 3, "f")
    assert "a.json:3:3" in problem.message
    assert result.bad == {"f"}
    assert set(result.flag_set.flags) == {"g"}


def test_a_flag_removed_by_two_files_of_a_layer_is_an_error_too() -> None:
    result = merge(
        [layer(base={"flags": {"f": BASE}}), layer(a={"flags": {"f": None}}, b={"flags": {"f": None}})]
    )
    assert [p.code for p in result.errors] == ["duplicate-flag"]


@pytest.mark.parametrize("section", ["metadata", "$evaluators"])
def test_a_section_may_repeat_an_entry_within_a_layer_but_not_change_it(section: str) -> None:
    same = merge([layer(a={**NOTHING, section: {"x": 1}}, b={section: {"x": 1}})])
    other = merge([layer(a={**NOTHING, section: {"x": 1}}, b={section: {"x": True}})])
    assert same.errors == ()
    assert ([p.code for p in other.errors], other.whole_bad) == (["conflicting-key"], True)
    assert f"a.json:{4}:" in other.errors[0].message


def test_an_unreadable_file_makes_the_whole_bad_and_its_siblings_are_still_read() -> None:
    read = layer(a={"flags": {"f": BASE}}, b='{"flags": {')
    result = merge([read])
    assert result.whole_bad
    assert set(result.flag_set.flags) == {"f"}
    assert [each.code for each in read.findings] == ["broken-json"]


def test_a_flag_that_is_broken_below_and_removed_above_is_gone_and_not_bad() -> None:
    result = merge_layers({"flags": {"f": 1, "g": BASE}}, {"flags": {"f": None}})
    assert [p.code for p in result.errors] == ["not-a-flag"]
    assert (result.bad, set(result.flag_set.flags)) == (frozenset(), {"g"})


def test_layers_themselves_stay_as_read() -> None:
    base = layer(base={"flags": {"f": BASE}})
    merge([base, layer(overlay={"flags": {"f": {"variants": {"x": True}, "metadata": {"a": 1}}}})])
    assert base.flags["f"].value == BASE


def test_null_in_a_single_layer_removes_and_in_a_document_is_a_value() -> None:
    read = layer(base={"flags": {"f": {**BASE, "targeting": None}}})
    assert merge([read]).flag_set.flags["f"].targeting is ABSENT
    assert merge([read], document=True).flag_set.flags["f"].targeting is None


def test_a_variant_that_an_overlay_removes_and_the_base_still_returns_is_the_overlays_problem() -> None:
    result = over(variants={"on": None})
    assert places(result) == [("overlay.json", "$.flags.f.variants.on", "unknown-outcome")]


def test_a_change_to_a_flag_that_no_lower_layer_has_is_one_problem_with_a_suggestion() -> None:
    result = merge_layers({"flags": {"banner": BASE}}, {"flags": {"baner": {"defaultVariant": "on"}}})
    (problem,) = result.problems
    assert (problem.file, problem.code, problem.path) == ("overlay.json", "missing-base", "$.flags.baner")
    assert (
        'this layer changes "baner", which no lower layer defines (did you mean "banner"?)' in problem.message
    )
    assert result.bad == {"baner"}


def test_a_whole_flag_that_only_an_overlay_has_is_a_note_and_served() -> None:
    result = merge_layers({"flags": {"f": BASE}}, {"flags": {"g": BASE}})
    assert (result.problems, result.warned, set(result.flag_set.flags)) == ((), frozenset(), {"f", "g"})
    assert [(note.severity, note.code, note.path) for note in result.notes] == [
        ("note", "added-flag", "$.flags.g")
    ]


def test_a_file_that_cannot_be_read_is_reported_without_problems_of_its_flags() -> None:
    result = merge_layers('{"flags": {', {"flags": {"f": {"defaultVariant": "on", "state": "ENABLD"}}})
    assert places(result) == [
        ("base.json", "$", "broken-json"),
        ("overlay.json", "$.flags.f.state", "unknown-state"),
    ]
    assert result.whole_bad


def test_no_flag_has_the_key_of_an_archived_one_again() -> None:
    archive = {"$archived": {"f": {"date": "2026-11-29"}, "gone": {}}, "flags": {}}
    result = merge([layer(base={"flags": {"f": BASE, "g": BASE}}, archive=archive), layer(top=NOTHING)])
    assert places(result) == [("base.json", "$.flags.f", "archived-key")]
    assert "is archived (archive.json:3:3); choose another one" in result.problems[0].message
    assert (set(result.flag_set.flags), set(result.bad)) == ({"g"}, {"f"})


def test_a_flag_that_a_layer_removes_may_be_archived_there() -> None:
    top = {"$archived": {"f": {}}, "flags": {"f": None}}
    result = merge([layer(base={"flags": {"f": BASE, "g": BASE}}), layer(top=top)])
    assert (places(result), set(result.flag_set.flags)) == ([], {"g"})
