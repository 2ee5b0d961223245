"""A list of flags may hold one key for several flag sets: flagd's documented use of selectors."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from evaluator.flags.accept import hold_back
from evaluator.flags.canonical import canonical, digest
from evaluator.flags.catalog import Catalog
from evaluator.flags.layer import read_layer
from evaluator.flags.merge import merge, parse
from evaluator.flags.saved import Saved, decode, encode

if TYPE_CHECKING:
    from evaluator.flags.model import FlagSet


def item(flag_set_id: str | None, default: str = "off", **fields: Any) -> dict[str, Any]:
    metadata = {} if flag_set_id is None else {"metadata": {"flagSetId": flag_set_id}}
    variants = {"on": True, "off": False}
    return (
        {"key": "flow", "state": "ENABLED", "variants": variants, "defaultVariant": default}
        | metadata
        | fields
    )


def content(*items: dict[str, Any], **sections: Any) -> bytes:
    return json.dumps({"flags": items, **sections}).encode()


def flag_set(*items: dict[str, Any], **sections: Any) -> FlagSet:
    parsed = parse(content(*items, **sections), file="a.json")
    assert parsed.problems == ()
    return parsed.flag_set


def defaults(catalog: Catalog, flag_set_id: str) -> str | None:
    found = catalog.of_flag_set(flag_set_id)
    return None if found is None else found.flags["flow"].default_variant


@pytest.mark.parametrize("order", [1, -1])
def test_both_are_served_by_selector_and_the_last_by_id_without_one(order: int) -> None:
    items = [item("checkout", "on"), item("admin", "off")][::order]
    catalog = Catalog(["a"]).with_source("a", flag_set(*items))
    assert (defaults(catalog, "checkout"), defaults(catalog, "admin")) == ("on", "off")
    assert catalog.everything.flags["flow"].default_variant == "on"


def test_a_flag_without_an_id_has_its_documents_or_none() -> None:
    catalog = Catalog(["a"]).with_source("a", flag_set(item(None, "on"), item("b")))
    assert (defaults(catalog, ""), defaults(catalog, "b")) == ("on", "off")
    inherited = flag_set(item(None, "on"), item("b"), metadata={"flagSetId": "shop"})
    catalog = Catalog(["a"]).with_source("a", inherited)
    assert (defaults(catalog, "shop"), defaults(catalog, "b")) == ("on", "off")


def test_each_is_served_by_selector_among_other_sources() -> None:
    one = flag_set(item("x", "on"), item("y", "off"))
    two = flag_set(item("y", "on"))
    catalog = Catalog(["one", "two"]).with_source("one", one).with_source("two", two)
    assert (defaults(catalog, "x"), defaults(catalog, "y")) == ("on", "on")
    assert catalog.with_source("two", None).everything.flags["flow"].metadata["flagSetId"] == "y"


def test_they_are_written_read_back_and_part_of_the_digest() -> None:
    both = flag_set(item("x", "on"), item("y"))
    assert parse(canonical(both), file="a.json").flag_set == both
    assert decode(encode(Saved(both, datetime(2026, 1, 1, tzinfo=UTC)))).flag_set == both
    assert len({digest(each) for each in (both, flag_set(item("y")), flag_set(item("x"), item("y")))}) == 3


def test_the_same_key_and_id_twice_is_an_error() -> None:
    for items in ([item("x"), item("x")], [item(None), item(None)]):
        parsed = parse(content(*items), file="a.json")
        assert [problem.code for problem in parsed.problems] == ["duplicate-flag"]
        assert (set(parsed.flag_set.flags), parsed.flag_set.others) == (set(), ())


def test_a_bad_one_holds_all_of_its_key_at_the_last_good() -> None:
    good = flag_set(item("x", "on"), item("y"))
    for items in ([item("x", "nobody"), item("y")], [item("x"), item("y", "nobody")]):
        parsed = parse(content(*items), file="a.json")
        assert parsed.bad == {"flow"}
        assert not parsed.flag_set.flags
        assert not parsed.flag_set.others
        held, keys = hold_back(parsed.flag_set, parsed.bad, good)
        assert keys == ("flow",)
        assert (held.flags, held.others) == (good.flags, good.others)


def test_layers_make_one_flag_set_and_refuse_two_of_a_key() -> None:
    parsed = merge([read_layer([("a.json", content(item("x"), item("y")))])])
    assert [(each.code, each.flag) for each in parsed.problems] == [("duplicate-flag", "flow")]
    assert parsed.flag_set.flags == {}
