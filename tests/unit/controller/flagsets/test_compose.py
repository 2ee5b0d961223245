from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from controller.flagsets.compose import Composition, FailurePolicy, compose, provenance_of
from controller.flagsets.layers import MOST_BYTES
from controller.flagsets.preparation import Allowance, Preparation
from evaluator.flags.canonical import canonical, digest
from evaluator.flags.layer import read_layer
from evaluator.flags.model import FlagSet
from evaluator.flags.references import Expander

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HELD_FROM = "flagstaff.dev/held-from"
REVISION = "flagstaff.dev/revision"
RULE = {"if": [{"$ref": "staff"}, "on", "off"]}
STAFF = {"==": [{"var": "team"}, "staff"]}
ADMINS = {"==": [{"var": "team"}, "admins"]}


def flag(default: str | None = "off", **fields: Any) -> dict[str, Any]:
    variants = {"on": True, "off": False}
    return {"state": "ENABLED", "variants": variants, "defaultVariant": default} | fields


BROKEN = flag("no such variant")
ODD = flag(targeting={"frobnicate": [1]})


def document(flags: Mapping[str, Any], **sections: Any) -> dict[str, bytes]:
    content = {"flags": flags} | {f"${key}" if key == "evaluators" else key: value
                                  for key, value in sections.items()}  # fmt: skip
    return {"flags.json": json.dumps(content, indent=1).encode()}


def compose_tree(
    tree: Mapping[str, bytes],
    previous: FlagSet | None = None,
    *,
    revision: str = "r1",
    paths: Sequence[str] = (),
    **options: Any,
) -> Composition:
    provenance = provenance_of(f"main@sha1:{revision}", "Ada <a@example.com>", "2026-01-02T03:04:05Z")
    return compose(tree, paths, provenance=provenance, previous=previous, **options)


def default_of(composition: Composition, key: str) -> str | None:
    return composition.flag_set.flags[key].default_variant


def test_a_good_commit_is_accepted_with_its_provenance() -> None:
    made = compose_tree(document({"a": flag()}))
    assert made.accepted
    assert (made.problems, made.held, made.changed.added) == ((), (), ("a",))
    assert made.flag_set.metadata == {
        REVISION: "main@sha1:r1",
        "flagstaff.dev/author": "Ada <a@example.com>",
        "flagstaff.dev/committed-at": "2026-01-02T03:04:05Z",
        "flagstaff.dev/digest": made.digest,
    }


def test_the_digest_says_nothing_of_where_content_came_from() -> None:
    one = compose_tree(document({"a": flag()}), revision="r1")
    other = compose_tree(document({"a": flag()}), revision="r2")
    assert one.digest == other.digest == digest(one.flag_set)
    assert one.flag_set != other.flag_set


def test_a_commit_that_changes_no_flag_gives_back_the_very_same_set() -> None:
    tree = document({"a": flag()})
    first = compose_tree(tree)
    second = compose_tree(tree | {"README.md": b"changed"}, first.flag_set, revision="r2")
    assert second.flag_set is first.flag_set
    assert second.accepted
    assert not second.changed


def test_content_that_changed_names_the_revision_that_changed_it() -> None:
    first = compose_tree(document({"a": flag()}))
    second = compose_tree(document({"a": flag("on")}), first.flag_set, revision="r2")
    assert second.flag_set.metadata[REVISION] == "main@sha1:r2"
    assert set(second.changed.changed) == {"a"}


def test_a_flag_removed_on_purpose_is_removed() -> None:
    first = compose_tree(document({"a": flag(), "b": flag()}))
    second = compose_tree(document({"a": flag()}), first.flag_set)
    assert (second.changed.removed, second.held) == (("b",), ())


def test_an_overlay_is_laid_over_its_base() -> None:
    overlay = json.dumps({"flags": {"a": {"defaultVariant": "on"}}}).encode()
    tree = {"base/flags.json": document({"a": flag()})["flags.json"], "prod/flags.json": overlay}
    made = compose_tree(tree, paths=["base", "prod"])
    assert made.problems == ()
    assert default_of(made, "a") == "on"


@pytest.mark.parametrize("bad", [BROKEN, ODD], ids=["error", "warning"])
@pytest.mark.parametrize("lenient", [False, True], ids=["strict", "lenient"])
@pytest.mark.parametrize("policy", FailurePolicy)
def test_what_a_bad_flag_holds_back(bad: dict[str, Any], lenient: bool, policy: FailurePolicy) -> None:
    first = compose_tree(document({"a": flag(), "b": flag()}))
    tree = document({"a": bad, "b": flag("on")})
    made = compose_tree(tree, first.flag_set, revision="r2", lenient=lenient, policy=policy)
    assert made.problems
    if lenient and bad is ODD:
        assert (made.held, default_of(made, "b")) == ((), "on")
        assert made.flag_set.flags["a"].targeting == {"frobnicate": [1]}
    elif policy is FailurePolicy.PER_FLAG:
        assert (made.held, default_of(made, "a"), default_of(made, "b")) == (("a",), "off", "on")
        assert set(made.changed.changed) == {"b"}
    else:
        assert made.flag_set is first.flag_set
        assert (made.held, made.accepted, bool(made.changed)) == (("a", "b"), False, False)


def test_a_bad_flag_without_a_last_good_definition_is_absent() -> None:
    made = compose_tree(document({"a": BROKEN, "b": flag()}))
    assert (set(made.flag_set.flags), made.held, made.accepted) == ({"b"}, (), True)


def test_a_held_flag_keeps_naming_its_revision_over_many_bad_commits_and_recovers() -> None:
    made = compose_tree(document({"a": flag(), "b": flag("off")}), revision="r1")
    for number, default in enumerate(["on", "off", "on"], start=2):
        tree = document({"a": BROKEN, "b": flag(default)})
        made = compose_tree(tree, made.flag_set, revision=f"r{number}")
        assert made.held == ("a",)
        assert made.flag_set.flags["a"].metadata[HELD_FROM] == "main@sha1:r1"
        assert made.flag_set.metadata[REVISION] == f"main@sha1:r{number}"
    made = compose_tree(document({"a": flag("on"), "b": flag("on")}), made.flag_set, revision="r9")
    assert (made.held, default_of(made, "a")) == ((), "on")
    assert HELD_FROM not in made.flag_set.flags["a"].metadata


def test_a_commit_that_only_breaks_a_flag_changes_nothing_downstream() -> None:
    first = compose_tree(document({"a": flag(targeting=RULE)}, evaluators={"staff": STAFF}))
    tree = document({"a": BROKEN}, evaluators={"staff": STAFF})
    made = compose_tree(tree, first.flag_set, revision="r2")
    assert made.flag_set is first.flag_set
    assert (made.held, made.accepted) == (("a",), True)


def test_a_flag_that_recovers_to_what_it_was_no_longer_says_that_it_is_held() -> None:
    made = compose_tree(document({"a": flag(), "b": flag()}), revision="r1")
    made = compose_tree(document({"a": BROKEN, "b": flag("on")}), made.flag_set, revision="r2")
    again = compose_tree(document({"a": flag(), "b": flag("on")}), made.flag_set, revision="r3")
    assert again.flag_set.flags["a"].metadata == {}
    assert again.digest == made.digest
    assert again.flag_set.metadata == made.flag_set.metadata
    assert not again.changed


def test_a_held_flag_means_what_it_meant_though_its_evaluator_moved_on() -> None:
    flags = {"a": flag(targeting=RULE), "b": flag(targeting=RULE)}
    first = compose_tree(document(flags, evaluators={"staff": STAFF}))
    tree = document(flags | {"a": BROKEN}, evaluators={"staff": ADMINS})
    made = compose_tree(tree, first.flag_set, revision="r2")
    assert made.flag_set.flags["a"].targeting == {"if": [STAFF, "on", "off"]}
    assert made.flag_set.flags["b"].targeting == RULE
    assert set(made.changed.changed) == {"b"}


@pytest.mark.parametrize(
    "evaluators",
    [
        pytest.param({"staff": {"frobnicate": [1]}}, id="a warning in it"),
        pytest.param({"staff": {}}, id="an error in it"),
        pytest.param({"staff": {"or": [{"$ref": "odd"}, True]}, "odd": {"frobnicate": [1]}},
                     id="a warning in what it refers to"),
        pytest.param({}, id="it is gone"),
    ],
)  # fmt: skip
def test_a_bad_evaluator_holds_the_flags_that_use_it_and_no_other(evaluators: dict[str, Any]) -> None:
    good = {"staff": STAFF}
    first = compose_tree(document({"a": flag(targeting=RULE), "b": flag()}, evaluators=good))
    tree = document({"a": flag(targeting=RULE), "b": flag("on")}, evaluators=evaluators)
    made = compose_tree(tree, first.flag_set, revision="r2")
    assert (made.held, default_of(made, "b"), made.accepted) == (("a",), "on", True)
    meant = Expander(made.flag_set.evaluators).expand(made.flag_set.flags["a"].targeting)
    assert meant == {"if": [STAFF, "on", "off"]}


def test_what_is_behind_a_bad_evaluator_is_found_however_indirect() -> None:
    evaluators = {"staff": {"!": [{"$ref": "x"}]}, "x": {"!": [{"$ref": "y"}]}, "y": {}}
    flags = {"a": flag(targeting=RULE), "b": flag()}
    made = compose_tree(document(flags, evaluators=evaluators), lenient=True)
    assert set(made.flag_set.flags) == {"b"}


def test_a_held_flag_is_expanded_where_its_evaluator_became_too_large_for_it() -> None:
    twice = {"if": [{"and": [{"$ref": "staff"}, {"$ref": "staff"}]}, "on", "off"]}
    first = compose_tree(document({"a": flag(targeting=twice)}, evaluators={"staff": STAFF}))
    large = {"or": [{"==": [{"var": "n"}, number]} for number in range(1500)]}
    tree = document({"a": flag(targeting=twice), "b": flag()}, evaluators={"staff": large})
    made = compose_tree(tree, first.flag_set, revision="r2")
    assert made.held == ("a",)
    assert made.flag_set.flags["a"].targeting == {"if": [{"and": [STAFF, STAFF]}, "on", "off"]}


def test_a_flag_is_placed_by_the_layer_that_forged_it() -> None:
    overlay = json.dumps({"flags": {"a": {"metadata": {HELD_FROM: "x"}}}}).encode()
    tree = document({"a": flag()}) | {"up.json": overlay, "top.json": b'{"flags": {"b": null}}'}
    made = compose_tree(tree, paths=["flags.json", "up.json", "top.json"], lenient=True)
    assert [p.file for p in made.problems if p.code == "reserved-key"] == ["up.json"]


def test_what_a_commit_says_of_itself_becomes_plain_short_text() -> None:
    provenance = provenance_of("main@sha1:1", "Ad\udcff" + "a" * 5000, "2026-01-02T03:04:05Z")
    made = compose(document({"a": flag()}), ["."], provenance=provenance, previous=None)
    author = made.flag_set.metadata["flagstaff.dev/author"]
    assert isinstance(author, str)
    assert author.startswith("Ad?aaa")
    assert len(author) == 1024


def test_a_bad_evaluator_with_an_odd_name_is_found_too() -> None:
    rule = {"if": [{"$ref": 'on "call".'}, "on", "off"]}
    tree = document({"a": flag(targeting=rule), "b": flag()}, evaluators={'on "call".': {}})
    assert set(compose_tree(tree).flag_set.flags) == {"b"}


def test_more_problems_than_are_shown_still_hold_every_flag_they_may_concern() -> None:
    odd = {f"e{number}": {"frobnicate": [number]} for number in range(1100)}
    rule = {"if": [{"$ref": "e1099"}, "on", "off"]}
    tree = document({"a": flag(targeting=rule), "b": flag()}, evaluators=odd)
    assert set(compose_tree(tree).flag_set.flags) == {"b"}


@pytest.mark.parametrize(
    "content",
    [b"{", b"", b"\xff", b"[]", b'{"flags": 1}', b'{"flag": {}}', b"[" * 10_000],
    ids=["cut", "empty", "not utf-8", "a list", "no flags", "misspelt", "deep"],
)
@pytest.mark.parametrize("policy", FailurePolicy)
def test_a_file_that_cannot_be_read_holds_the_whole_set(content: bytes, policy: FailurePolicy) -> None:
    first = compose_tree(document({"a": flag(), "b": flag()}))
    made = compose_tree({"flags.json": content}, first.flag_set, policy=policy, lenient=True)
    assert made.flag_set is first.flag_set
    assert (made.held, made.accepted) == (("a", "b"), False)
    assert made.problems[0].file == "flags.json"


@pytest.mark.parametrize(("paths", "code"), [(["flgs"], "path-not-found"), (["../x"], "path-invalid")])
def test_a_path_that_means_nothing_holds_the_whole_set_and_is_named(paths: list[str], code: str) -> None:
    first = compose_tree(document({"a": flag()}))
    made = compose_tree(document({"a": flag("on")}), first.flag_set, paths=paths)
    assert made.flag_set is first.flag_set
    assert [(p.file, p.code) for p in made.problems] == [(paths[0], code)]


def test_a_first_commit_that_is_refused_leaves_nothing_to_serve() -> None:
    made = compose_tree({"flags.json": b"{"})
    assert (made.flag_set, made.held, made.accepted) == (FlagSet(), (), False)
    assert made.digest == digest(FlagSet())


def test_bad_set_metadata_stops_no_flag() -> None:
    made = compose_tree(document({"a": flag()}, metadata={"team": ["x"], "owner": "ada"}))
    assert [problem.severity for problem in made.problems] == ["warning"]
    assert set(made.flag_set.flags) == {"a"}
    assert made.flag_set.metadata["owner"] == "ada"


def test_provenance_cannot_be_forged_by_a_definition() -> None:
    forged = flag(metadata={HELD_FROM: "main@sha1:f", "team": "a"})
    made = compose_tree(document({"a": forged}, metadata={REVISION: "main@sha1:f"}), lenient=True)
    assert [(p.line > 1, p.flag, p.path) for p in made.problems] == [
        (True, "a", f'$.flags.a.metadata["{HELD_FROM}"]'),
        (True, None, f'$.metadata["{REVISION}"]'),
    ]
    assert made.flag_set.metadata[REVISION] == "main@sha1:r1"
    assert made.flag_set.flags["a"].metadata == {"team": "a"}


@pytest.mark.parametrize(("pinned", "problems"), [("v2", 0), ("v3", 0), ("v9", 1)])
def test_a_set_may_pin_its_bucketing_and_nothing_else(pinned: str, problems: int) -> None:
    made = compose_tree(document({"a": flag()}, metadata={"flagstaff.dev/bucketing": pinned}))
    assert len(made.problems) == problems
    assert made.flag_set.metadata.get("flagstaff.dev/bucketing") == (None if problems else pinned)


def test_a_forged_flag_is_bad_unless_lenient() -> None:
    made = compose_tree(document({"a": flag(metadata={HELD_FROM: "x"}), "b": flag()}))
    assert set(made.flag_set.flags) == {"b"}


@pytest.mark.parametrize(
    ("metadata", "default", "expected"),
    [({}, None, None), ({}, "shop/x", "shop/x"), ({"flagSetId": "own"}, "shop/x", "own")],
)
def test_a_set_without_an_id_gets_the_default_one(
    metadata: dict[str, str], default: str | None, expected: str | None
) -> None:
    tree = document({"a": flag()}, metadata=metadata)
    assert compose_tree(tree, default_flag_set_id=default).flag_set.flag_set_id == expected


def test_the_same_tree_in_another_order_composes_to_the_same_bytes() -> None:
    one = compose_tree(document({"a": flag(), "b": flag("on")}))
    other = compose_tree(document({"b": flag("on"), "a": flag()}))
    assert canonical(one.flag_set, provenance=True) == canonical(other.flag_set, provenance=True)


TYPO = flag(targeting={"if": [{"var": "staff"}, "onn"]})


def test_a_rule_that_names_no_variant_holds_its_flag_unless_lenient() -> None:
    good = compose_tree(document({"a": flag(), "b": flag()}))
    made = compose_tree(document({"a": TYPO, "b": flag("on")}), good.flag_set, revision="r2")
    assert (made.held, default_of(made, "b")) == (("a",), "on")
    assert [problem.code for problem in made.problems] == ["unknown-outcome"]
    served = compose_tree(document({"a": TYPO}), good.flag_set, revision="r2", lenient=True)
    assert (served.held, served.flag_set.flags["a"].targeting) == ((), TYPO["targeting"])


def test_a_note_holds_nothing_and_is_no_problem() -> None:
    spare = flag(variants={"on": True, "off": False, "spare": True}, targeting={"if": [{"var": "x"}, "on"]})
    overlay = {"overlay/a.json": json.dumps({"flags": {"b": spare}}).encode()}
    made = compose_tree(document({"a": flag()}) | overlay, paths=["flags.json", "overlay"])
    assert (made.problems, made.held, set(made.flag_set.flags)) == ((), (), {"a", "b"})


def test_all_documents_together_hold_no_more_values_than_one_may() -> None:
    flag = '{{"flags": {{"{0}": {{"state": "ENABLED", "variants": {{"a": {1}}}, "defaultVariant": "a"}}}}}}'
    files = [(f"{key}.json", flag.format(key, list(range(20))).encode()) for key in "ab"]
    layer = read_layer(files, prepare=Preparation(allowance=Allowance(nodes=40)).documents)
    assert [problem.code for problem in layer.documents[0].problems] == []
    assert [problem.code for problem in layer.documents[1].problems] == ["too-large"]


def test_all_documents_together_have_a_bound_of_bytes() -> None:
    part = bytes(MOST_BYTES // 2)
    made = compose_tree({"a.json": part, "b.json": part, "c.json": b"{}"})
    assert not made.accepted
    assert f"more than the {MOST_BYTES} of a flag set" in made.problems[0].message
