"""ConfigCat's own cases, and what its files have that has no exact form here.

The suite has users, values and logs of evaluations; most of its settings are on servers. Here they are as the
logs show them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.unit.controller.importers.suites import (
    Tally,
    assert_never_fails,
    compiled,
    imported,
    suite,
    value_of,
)

if TYPE_CHECKING:
    from evaluator.resolving.resolve import CompiledFlagSet

ALLOWED: Final = frozenset({"decimal-points", "numeric-dates", "json-lists"})
IS_ONE_OF, CONTAINS, STARTS, HASHED, EQUALS, LIST_CONTAINS = 0, 2, 30, 16, 28, 34
IDENTIFIER: Final = {"u": {"a": "Identifier", "c": CONTAINS, "l": ["1"]}}


def served(value: Any) -> dict[str, Any]:
    kinds: dict[type, str] = {bool: "b", str: "s", int: "i", float: "d"}
    return {"v": {kinds[type(value)]: value}}


def setting(default: Any, *rules: Any, **fields: Any) -> dict[str, Any]:
    kinds: dict[type, int] = {bool: 0, str: 1, int: 2, float: 3}
    return {"t": kinds[type(default)], "r": list(rules), **served(default), **fields}


def user(attribute: str, comparator: int, value: Any) -> dict[str, Any]:
    field = "l" if isinstance(value, list) else "s" if isinstance(value, str) else "d"
    return {"u": {"a": attribute, "c": comparator, field: value}}


def then(value: Any, *conditions: dict[str, Any]) -> dict[str, Any]:
    return {"c": list(conditions), "s": served(value)}


def options(*parts: tuple[int, Any]) -> list[dict[str, Any]]:
    return [{"p": percentage, **served(value)} for percentage, value in parts]


def needs(key: str, value: Any, comparator: int = 0) -> dict[str, Any]:
    return {"p": {"f": key, "c": comparator, **served(value)}}


def segment(number: int, comparator: int = 0) -> dict[str, Any]:
    return {"s": {"s": number, "c": comparator}}


OF_CONFIGCAT: Final = user("Email", CONTAINS, ["@configcat.com"])
SECRET: Final = user("Email", HASHED, ["0123"])
CAT_OR_FALCON: Final = options((75, "Cat"), (0, "Dog"), (25, "Falcon"), (0, "Horse"))
RELATIONS: Final = ((6, "1.0.0,"), (6, "1.0.0"), (7, "1.0.0"), (8, "2.0.0"), (9, "2.0.0"))
SETTINGS: Final = {
    "stringContainsDogDefaultCat": setting("Cat", then("Dog", OF_CONFIGCAT)),
    "stringIsInDogDefaultCat": setting(
        "Cat",
        then("Dog", user("Email", IS_ONE_OF, ["a@configcat.com", "b@configcat.com"])),
        then("Dog", user("Custom1", IS_ONE_OF, ["admin"])),
    ),
    "emailAnd": setting("Cat", then("Dog", SECRET)),
    "allinone": setting("default", then("1h", SECRET)),
    "boolTrueIn202304": setting(
        False, then(True, user("Custom1", 19, 1680307200), user("Custom1", 18, 1682899200))
    ),
    "number": setting("Default", then("<>5", user("Custom1", 11, 5))),
    "isNotOneOf": setting(
        "Default",
        then("a", user("Custom1", 5, ["1.0.0", "1.0.1", "2.0.0   ", "2.0.1", "2.0.2", ""])),
        then("b", user("Custom1", 5, ["1.0.0", "3.0.1"])),
    ),
    "relations": setting(
        "Default", *(then(f"{number}", user("Custom1", number, version)) for number, version in RELATIONS)
    ),
    "integer25One25Two25Three25FourAdvancedRules": setting(
        -1, then(5, OF_CONFIGCAT), p=options((25, 1), (25, 2), (25, 3), (25, 4))
    ),
    "string75Cat0Dog25Falcon0Horse": setting("Chicken", p=CAT_OR_FALCON),
    "string75Cat0Dog25Falcon0HorseCustomAttr": setting("Chicken", p=CAT_OR_FALCON, a="Country"),
    "stringContainsString75Cat0Dog25Falcon0HorseDefaultCat": setting(
        "Cat", {"c": [OF_CONFIGCAT], "p": CAT_OR_FALCON}, a="Country"
    ),
    "mainFeature": setting("public", then("private", SECRET)),
    "mainFeatureWithoutUserCondition": setting(True),
    "intermediateFeature": setting(False, then(True, needs("mainFeatureWithoutUserCondition", True))),
    "dependentFeatureMultipleLevels": setting("Cat", then("Dog", needs("intermediateFeature", True))),
    "dependentFeature": setting("Chicken", then("Cat", needs("mainFeature", "target"))),
    "dependentFeatureWithUserCondition": setting("Chicken", then("Dog", SECRET)),
    "dependentFeatureWithUserCondition2": setting("Chicken", then("Dog", SECRET)),
    "featureWithSegmentTargeting": setting(False, then(True, segment(0))),
    "featureWithNegatedSegmentTargeting": setting(False, then(True, segment(0, 1))),
    "featureWithNegatedSegmentTargetingCleartext": setting(False, then(True, segment(1, 1))),
    "featureWithSegmentTargetingMultipleConditions": setting(False, then(True, segment(1), IDENTIFIER)),
    "boolDefaultFalse": setting(False),
    "boolDefaultTrue": setting(True),
    "stringDefaultCat": setting("Cat"),
    "integerDefaultOne": setting(1),
    "doubleDefaultPi": setting(3.1415),
}
SEGMENTS: Final = [
    {"n": "Beta users", "r": [SECRET["u"]]},
    {
        "n": "Beta users (cleartext)",
        "r": [{"a": "Email", "c": IS_ONE_OF, "l": ["jane@example.com", "john@example.com"]}],
    },
]
CONFIG: Final = {"p": {"s": "salt"}, "s": SEGMENTS, "f": SETTINGS}


def context_of(given: dict[str, Any] | None) -> dict[str, Any]:
    return {
        ("targetingKey" if name == "Identifier" else name): value for name, value in (given or {}).items()
    }


def test_the_cases_of_the_evaluation_log() -> None:
    tally = Tally()
    folder = suite("configcat")
    for file in sorted(folder.glob("*.json")):
        cases = json.loads(file.read_text())
        override = cases.get("jsonOverride")
        content = json.loads((folder / "_overrides" / override).read_text()) if override else CONFIG
        what = imported("configcat", content, allowed=ALLOWED)
        flags = compiled(what)
        for case in cases["tests"]:

            def ask(case: dict[str, Any] = case, flags: CompiledFlagSet = flags) -> Any:
                return value_of(flags, case["key"], context_of(case.get("user")))

            tally.count(f"{file.stem} {case.get('user')}", what, case["key"], case["returnValue"], ask)
    tally.assert_published("ConfigCat, evaluation logs of common-js, all approximations allowed")


def answer(*rules: Any, default: Any = "no", segments: Any = (), **context: Any) -> Any:
    content = {"f": {"new": setting(default, *rules)}, "s": list(segments)}
    what = imported("configcat", content, allowed=ALLOWED)
    assert not what.refusals, what.refusals
    return value_of(compiled(what), "new", context)


def refusal(new: dict[str, Any], **others: Any) -> str:
    refusals = imported("configcat", {"f": {"new": new, **others}}).refusals
    return next((f"{item.place}: {item.message}" for item in refusals if item.name == "new"), "")


@pytest.mark.parametrize(
    ("comparator", "value"),
    [(1, ["a"]), (29, "a"), (3, ["a"]), (31, ["a"]), (33, ["a"]), (5, ["1.0.0"]), (11, 1), (35, ["a"])],
)
def test_a_negated_condition_is_not_true_without_its_attribute_or_of_another_type(
    comparator: int, value: Any
) -> None:
    rule = then("yes", user("plan", comparator, value))
    assert answer(rule) == "no"
    assert answer(rule, plan="") == "no"
    good: Any = {5: "1.0.1", 11: "2", 35: ["b"]}.get(comparator, "b")
    bad: Any = {5: "1.0.0", 11: 1, 35: ["b", "a"]}.get(comparator, "a")
    assert answer(rule, plan=good) == "yes"
    assert answer(rule, plan=bad) == "no"
    if comparator in (5, 11, 35):
        assert answer(rule, plan="x") == "no"


def test_numbers_equal_the_texts_that_they_are_written_as() -> None:
    rule = then("yes", user("plan", IS_ONE_OF, ["12", "1.5", "007"]))
    assert [answer(rule, plan=plan) for plan in (12, "12", 1.5, 7, "007")] == ["yes"] * 3 + ["no", "yes"]
    assert answer(then("yes", user("plan", 1, ["12"])), plan=12) == "no"


def test_numbers_are_read_from_texts() -> None:
    rule = then("yes", user("age", 15, 18))
    assert [answer(rule, age=age) for age in (18, "18.0", 17, "x", None, True)] == ["yes"] * 2 + ["no"] * 4


def test_an_empty_list_contains_nothing_and_that_is_a_list() -> None:
    assert answer(then("yes", user("groups", 35, ["a"])), groups=[]) == "yes"
    assert answer(then("yes", user("groups", LIST_CONTAINS, ["a"])), groups=[]) == "no"
    assert answer(then("yes", user("groups", LIST_CONTAINS, ["a"])), groups=["b", "a"]) == "yes"
    assert answer(then("yes", user("groups", LIST_CONTAINS, ["a"])), groups="a") == "no"
    assert answer(then("yes", user("groups", 35, ["a"])), groups=3) == "no"


def test_versions_have_three_numbers_and_a_wrong_one_to_compare_with_matches_nothing() -> None:
    assert answer(then("yes", user("version", 9, "1.0.0")), version="1.2") == "no"
    assert answer(then("yes", user("version", 9, "1.0.0")), version="1.2.0") == "yes"
    assert answer(then("yes", user("version", 9, "1.0")), version="1.2.0") == "no"
    assert answer(then("yes", user("version", 5, ["1.0.0", "x"])), version="1.2.0") == "no"
    assert answer(then("yes", user("version", 5, ["1.0.0", ""])), version="1.2.0") == "yes"


def test_who_lacks_an_attribute_of_a_segment_is_neither_in_nor_out_of_it() -> None:
    conditions = [{"a": "plan", "c": EQUALS, "s": "gold"}, {"a": "Email", "c": STARTS, "l": ["a"]}]
    segments = [{"n": "gold", "r": conditions}]
    inside, outside = then("in", segment(0)), then("out", segment(0, 1))
    for context, expected in (
        ({}, "no"),
        ({"plan": "gold"}, "no"),
        ({"plan": "iron"}, "out"),
        ({"Email": "b"}, "no"),
        ({"plan": "gold", "Email": "b"}, "out"),
        ({"plan": "gold", "Email": "a"}, "in"),
    ):
        assert answer(inside, outside, segments=segments, **context) == expected


def test_options_of_a_rule_leave_who_lacks_the_attribute_to_the_next_rule() -> None:
    content = {
        "f": {
            "new": setting("no", {"c": [], "p": options((100, "a"))}, then("next", IDENTIFIER), a="Country")
        }
    }
    flags = compiled(imported("configcat", content))
    assert value_of(flags, "new", {"Country": "US"}) == "a"
    assert value_of(flags, "new", {"targetingKey": "1"}) == "next"
    assert value_of(flags, "new", {}) == "no"


def test_a_prerequisite_compares_values() -> None:
    others = {"main": setting("a", then("b", IDENTIFIER))}
    for comparator, expected in ((0, ["no", "yes"]), (1, ["yes", "no"])):
        new = setting("no", then("yes", needs("main", "b", comparator)))
        flags = compiled(imported("configcat", {"f": {"new": new, **others}}))
        assert [value_of(flags, "new", context) for context in ({}, {"targetingKey": "1"})] == expected


def test_what_has_no_exact_form_is_refused_with_its_place() -> None:
    place = "file0.json:f.new.r[0].c[0]"
    assert refusal(setting("a", then("b", SECRET))).startswith(f"{place}.u: compares hashed values")
    assert refusal(setting("a", then("b", user("x", 36, "")))).startswith(f"{place}.u: has the comparator 36")
    assert "1,5" in refusal(setting("a", then("b", user("x", 10, 1))))
    assert "dates" in refusal(setting("a", then("b", user("x", 18, 1))))
    assert "list" in refusal(setting("a", then("b", user("x", LIST_CONTAINS, ["a"]))))
    assert "not 100" in refusal(setting("a", p=options((50, "a"))))
    assert "no value of the type" in refusal(setting("a", then(True)))
    assert "which is not in the files" in refusal(setting("a", then("b", needs("main", True))))
    assert refusal(setting("a", then("b", needs("main", True))), main=setting("x")).startswith(f"{place}.p.v")
    assert refusal(setting(True, then(False, needs("new", True))))


def test_the_values_of_a_setting_are_its_variants() -> None:
    what = imported("configcat", {"f": {"new": setting(2.0, p=options((50, 2.0), (50, 3.5)))}})
    assert what.flags[0].variants == {"2": 2, "3.5": 3.5}
    assert imported("configcat", {"f": {"new": setting(True)}}).flags[0].variants == {
        "on": True,
        "off": False,
    }


def test_spoiled_files_never_fail() -> None:
    keys = ("dependentFeatureMultipleLevels", "isNotOneOf", "string75Cat0Dog25Falcon0HorseCustomAttr")
    chosen = {key: SETTINGS[key] for key in (*keys, "featureWithNegatedSegmentTargetingCleartext")}
    assert_never_fails("configcat", {"f": chosen, "s": SEGMENTS})
