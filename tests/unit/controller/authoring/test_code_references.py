"""References of code to flags, in several languages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.authoring.code_references import (
    FORMS,
    LONGEST_LINE,
    MOST_OF_A_FILE,
    SHORTEST_KEY,
    Form,
    constants_in,
    find_references,
    flag_names,
    with_constants,
)

KEYS = ["new-cart", "banner", "maxItems"]


def names_on_lines(text: str, *forms: Form, keys: list[str] = KEYS) -> list[tuple[int, str, str]]:
    names = flag_names(keys, forms)
    names = with_constants(names, constants_in(text, names))
    return [(place.line, place.key, place.name) for place in find_references("a", text, names).references]


def undefined_in(text: str) -> list[str]:
    return [place.key for place in find_references("a", text, flag_names(KEYS)).undefined]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('client.get_boolean_value("new-cart", False)', "new-cart"),
        ("client.getBooleanValue('new-cart', false)", "new-cart"),
        ("const { value } = useBooleanFlagValue(`new-cart`, false)", "new-cart"),
        ("it's for 'new-cart', isn't it", "new-cart"),
        ("FlagKeys.NEW_CART", "FlagKeys.NEW_CART"),
        ("FlagKeys::NEW_CART", "FlagKeys::NEW_CART"),
    ],
)
def test_a_key_counts_between_quotes_and_as_a_generated_constant(line: str, name: str) -> None:
    assert names_on_lines(f"\n{line}\n") == [(2, "new-cart", name)]


@pytest.mark.parametrize("line", ["new-cart", '"new-cart-2"', "// the new-cart flag", "NEW_CART", "newCart"])
def test_other_text_is_no_reference(line: str) -> None:
    assert names_on_lines(line) == []


@pytest.mark.parametrize(
    "assignment",
    [
        'NEW_CART = "new-cart"', 'const NEW_CART: string = "new-cart";', 'NEW_CART := "new-cart"',
        'static final String NEW_CART = "new-cart";', 'pub const NEW_CART: &str = "new-cart";',
    ],
)  # fmt: skip
def test_a_constant_with_a_key_refers_to_the_flag_wherever_it_stands(assignment: str) -> None:
    assert (2, "new-cart", "NEW_CART") in names_on_lines(f"{assignment}\nif ask(NEW_CART) {{\n")


def test_a_constant_of_two_keys_is_none() -> None:
    names = flag_names(KEYS)
    assert with_constants(names, {("KEY", "new-cart"), ("KEY", "banner")}).words == {}


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("camel", "newCart"), ("pascal", "NewCart"), ("snake", "new_cart"), ("upper-snake", "NEW_CART"),
        ("kebab", "'new-cart'"), ("dot", "'new.cart'"),
    ],
)  # fmt: skip
def test_a_form_of_a_key_counts_where_it_is_asked_for(form: Form, text: str) -> None:
    assert [key for _, key, _ in names_on_lines(text, form)] == ["new-cart"]


def test_a_key_of_one_word_has_no_form() -> None:
    assert names_on_lines("banner Banner BANNER", *FORMS) == []


def test_names_that_the_user_lists_count() -> None:
    names = flag_names(KEYS, aliases={"new-cart": ["CART_V2", "cart/v2"]})
    found = find_references("a", "CART_V2\n'cart/v2'", names).references
    assert [(place.line, place.key) for place in found] == [(1, "new-cart"), (2, "new-cart")]


@pytest.mark.parametrize(
    "line",
    [
        'client.get_boolean_value("gone", False)', 'await client.get_string_details_async("gone", "")',
        'client.BooleanValue(ctx, "gone", false, evalCtx)', 'client.StringValueDetails(ctx, "gone", "", e)',
        'client.Int(context.Background(), "gone", 1, e)'.replace("Int(", "IntValue("),
        'client.getNumberValue<number>("gone", 1)', "useBooleanFlagDetails('gone', false)",
        'client.getObjectValue(\n    "gone", {})', 'await client.GetBooleanValueAsync("gone", false)',
    ],
)  # fmt: skip
def test_an_evaluation_of_a_key_without_a_definition_is_reported(line: str) -> None:
    assert undefined_in(line) == ["gone"]


@pytest.mark.parametrize(
    "line",
    ['print("gone")', 'client.get_boolean_value("banner", False)', 'value("gone")', '("gone")', '"gone"'],
)
def test_another_call_is_no_evaluation(line: str) -> None:
    assert undefined_in(line) == []


def test_a_flag_counts_once_a_line_and_a_file_has_bounds() -> None:
    many = "'banner' 'banner'\n" * (MOST_OF_A_FILE + 5)
    found = find_references("a", many, flag_names(KEYS))
    assert (len(found.references), found.cut) == (MOST_OF_A_FILE, 5)
    [place] = find_references("a", "'banner'" + "x" * 2 * LONGEST_LINE, flag_names(KEYS)).references
    assert len(place.text) == LONGEST_LINE


def test_a_short_key_is_named_and_not_searched() -> None:
    names = flag_names(["ab", "abc"])
    assert names.short == ("ab",)
    assert [place.key for place in find_references("a", "'ab' 'abc'", names).references] == ["abc"]


LINES = st.lists(
    st.text(st.characters(exclude_characters="\n\r\"'`", codec="utf-8"), max_size=20), max_size=8
)


@given(
    key=st.text(
        st.characters(codec="utf-8", exclude_categories=["C"], exclude_characters="\n\r\"'`"),
        min_size=SHORTEST_KEY,
        max_size=40,
    ),
    before=LINES,
    after=LINES,
    quote=st.sampled_from("\"'`"),
)
def test_any_key_is_found_on_its_line(key: str, before: list[str], after: list[str], quote: str) -> None:
    text = "\n".join([*before, f"ask({quote}{key}{quote})", *after])
    assert (len(before) + 1, key, key) in names_on_lines(text, keys=[key])
