"""A FeatureFlagConfiguration of any version, and of the first form, as the document that flagd would read."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.featureflagconfiguration import FlagDocument, MissingShardsError, flag_document
from controller.api.fields import InvalidSpecError
from controller.api.meta import ObjectKey, Resource
from evaluator.flags.merge import parse
from evaluator.resolving.resolution import FlagType, Resolution
from evaluator.resolving.resolve import compile_flag_set, resolve

FLAGS: Final = {"flags": {"a": {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}}}


def configuration(spec: Any, version: str = "v1beta1") -> Resource:
    meta = {"name": "c", "namespace": "shop", "uid": "u"}
    body = {"apiVersion": f"core.openfeature.dev/{version}", "kind": "FeatureFlagConfiguration"}
    return Resource.of({**body, "metadata": meta, "spec": spec})


def content(document: FlagDocument) -> Any:
    return json.loads(document.content)


def evaluate(document: FlagDocument, **context: Any) -> Resolution:
    parsed = parse(document.content, file="c.json")
    assert parsed.flag_set is not None
    assert not [each for each in parsed.problems if each.severity == "error"], parsed.problems
    return resolve(compile_flag_set(parsed.flag_set), "f", FlagType.STRING, context, 0)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"flagSpec": FLAGS}, id="v1beta1"),
        pytest.param({"featureFlagSpec": FLAGS}, id="v1alpha2, an object"),
        pytest.param({"featureFlagSpec": json.dumps(FLAGS)}, id="v1alpha1, a string"),
    ],
)
@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2", "v1beta1"])
def test_every_form_is_the_same_document_whichever_version_it_is_read_in(spec: Any, version: str) -> None:
    found = flag_document(configuration(spec, version))
    assert content(found) == FLAGS
    assert found.warnings == ()


# -- the first form ------------------------------------------------------------------------------------------


def historic(**flag: Any) -> FlagDocument:
    return flag_document(configuration({"featureFlagSpec": json.dumps({"f": flag})}))


@pytest.mark.parametrize("state", ["disabled", "DISABLED", "Disabled"])
def test_a_flag_that_is_off_needs_no_variants(state: str) -> None:
    assert evaluate(historic(state=state)).reason == "DISABLED"


VARIANTS: Final = {"variants": {"on": "yes", "off": "no"}, "defaultVariant": "off"}


def rule(variant: str, *conditions: tuple[str, str, Any]) -> dict[str, Any]:
    fields = ("context", "op", "value")
    needed = [dict(zip(fields, each, strict=True)) for each in conditions]
    return {"action": {"variant": variant}, "conditions": needed}


@pytest.mark.parametrize(
    ("rules", "context", "value"),
    [
        ([rule("on")], {}, "yes"),
        ([{"action": {"variant": "on"}}], {}, "yes"),
        ([rule("on", ("a", "==", 1), ("b", ">", 2))], {"a": 1, "b": 3}, "yes"),
        ([rule("on", ("a", "==", 1), ("b", ">", 2))], {"a": 1, "b": 2}, "no"),
        ([rule("off", ("a", "==", 1)), rule("on", ("a", "in", [1, 2]))], {"a": 2}, "yes"),
        ([], {}, "no"),
    ],
    ids=["no condition", "no status", "all hold", "one does not", "the second rule", "no rule"],
)  # fmt: skip
def test_a_list_of_rules_is_targeting(rules: Any, context: dict[str, Any], value: str) -> None:
    document = historic(state="enabled", rules=rules, **VARIANTS)
    assert evaluate(document, **context).value == value


@pytest.mark.parametrize("rules", [7, [7], [{}], [{"action": {"variant": "on"}, "conditions": [{}]}]])
def test_what_is_no_rule_is_the_parsers_to_judge(rules: Any) -> None:
    parsed = parse(historic(state="enabled", rules=rules, **VARIANTS).content, file="c.json")
    assert [each for each in parsed.problems if "f" in str(each.path)]


def test_a_return_type_is_ignored_and_contradicted_with_a_warning() -> None:
    right = historic(state="enabled", returnType="string", **VARIANTS)
    wrong = historic(state="enabled", returnType="boolean", **VARIANTS)
    assert right.warnings == ()
    assert wrong.warnings == ("flag 'f': returnType is boolean, not so: off, on",)
    assert evaluate(wrong).value == "no"


@pytest.mark.parametrize(
    ("kind", "value", "right"),
    [("number", 1.5, True), ("integer", True, False), ("boolean", True, True), ("object", {}, True),
     ("unheard-of", 1, True)],
)  # fmt: skip
def test_a_return_type_means_what_it_says(kind: str, value: Any, right: bool) -> None:
    document = historic(state="enabled", returnType=kind, variants={"a": value}, defaultVariant="a")
    assert (document.warnings == ()) is right


def test_nothing_else_becomes_lax() -> None:
    lower = {"flags": {"f": {"state": "enabled", **VARIANTS}}}
    assert content(flag_document(configuration({"flagSpec": lower}))) == lower
    assert content(flag_document(configuration({"featureFlagSpec": lower}))) == lower


def test_a_modern_text_is_left_to_the_byte() -> None:
    text = json.dumps(FLAGS, indent=3)
    assert flag_document(configuration({"featureFlagSpec": text})).content == text.encode()


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '"x"', "[" * 100_000, "{} {}"])
def test_a_text_that_is_no_document_is_the_parsers_to_judge(text: str) -> None:
    parsed = parse(flag_document(configuration({"featureFlagSpec": text})).content, file="c.json")
    assert [each for each in parsed.problems if each.severity == "error"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
            st.sampled_from(["flags", "f", "state", "variants", "rules", "returnType", "action", "variant",
                             "conditions", "op"]), inner, max_size=4
        ),
        max_leaves=12,
    )
)  # fmt: skip
def test_whatever_the_text_says_there_is_a_document_for_the_parser(value: Any) -> None:
    found = flag_document(configuration({"featureFlagSpec": json.dumps(value)}))
    parse(found.content, file="c.json")


@pytest.mark.parametrize("spec", [{}, {"flagSpec": None}, {"featureFlagSpec": None}, {"featureFlagSpec": 7}])
def test_where_there_are_no_flags_the_field_for_them_is_named(spec: Any) -> None:
    with pytest.raises(InvalidSpecError, match=r"^spec\.flagSpec: "):
        flag_document(configuration(spec))


def test_a_text_has_a_bound() -> None:
    with pytest.raises(InvalidSpecError, match=r"^spec\.featureFlagSpec: more than"):
        flag_document(configuration({"featureFlagSpec": " " * (3 * 1024 * 1024 + 1)}))


# -- shards --------------------------------------------------------------------------------------------------


def shard(name: str, digest: str, flag_spec: Any) -> Resource:
    spec = {"digest": digest, "flagSpec": flag_spec}
    return Resource(ObjectKey("FlagShard", "shop", name), "u", 1, "1", spec=spec)


SHARDS: Final = {
    "s1": shard("s1", "d1", {**FLAGS, "$evaluators": {"e": {}}, "metadata": {"m": 1}}),
    "s2": shard("s2", "d2", {"flags": {"b": {}}}),
    "odd": shard("odd", "d", {"flags": []}),
    "empty": shard("empty", "d", None),
}


def sharded_configuration(*references: tuple[str, str]) -> Resource:
    return configuration({"shards": [{"name": name, "digest": digest} for name, digest in references]})


def test_shards_together_are_the_set() -> None:
    found = content(flag_document(sharded_configuration(("s1", "d1"), ("s2", "d2")), SHARDS.get))
    assert found == {"flags": FLAGS["flags"] | {"b": {}}, "$evaluators": {"e": {}}, "metadata": {"m": 1}}


@pytest.mark.parametrize("missing", [("s3", "d3"), ("s2", "another")], ids=["absent", "another"])
def test_a_set_that_is_not_whole_is_no_set(missing: tuple[str, str]) -> None:
    with pytest.raises(MissingShardsError, match=missing[0]):
        flag_document(sharded_configuration(("s1", "d1"), missing), SHARDS.get)


@pytest.mark.parametrize("name", ["odd", "empty"])
def test_a_shard_without_flags_is_named(name: str) -> None:
    with pytest.raises(InvalidSpecError, match=f"FlagShard {name} has no flags"):
        flag_document(sharded_configuration((name, "d")), SHARDS.get)


@pytest.mark.parametrize("shards", [7, {"name": "s1"}, ["s1"]])
def test_what_is_no_list_of_shards_is_refused(shards: Any) -> None:
    with pytest.raises(InvalidSpecError, match=r"^spec\.shards: "):
        flag_document(configuration({"shards": shards}), SHARDS.get)
