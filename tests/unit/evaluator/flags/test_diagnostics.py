"""What is said of a document costs no more than the document: counted in calls, not in seconds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.flags import suggestions
from evaluator.flags.layer import read_layer
from evaluator.flags.merge import merge, parse
from tests.unit.evaluator.flags.wrong_documents import WRONG_FLAGS, WRONG_WHOLES, document, right_flag
from tests.work import work

if TYPE_CHECKING:
    from collections.abc import Callable

MORE = 8
"""How many times as many flags the larger document has."""


def reading(content: bytes) -> int:
    return work(lambda: parse(content, file="flags.json"))


kinds = st.lists(st.sampled_from(sorted(WRONG_FLAGS)), min_size=1, max_size=6)


@settings(deadline=None, max_examples=10)
@given(kinds)
def test_work_on_a_document_grows_as_its_wrong_flags_do(wrong: list[str]) -> None:
    def flag(at: int) -> Any:
        return WRONG_FLAGS[wrong[at % len(wrong)]](at)

    few, many = (reading(document(flag, count)) for count in (60, 60 * MORE))
    assert many <= MORE * few


@pytest.mark.parametrize("kind", sorted(WRONG_WHOLES))
def test_work_on_a_document_that_is_wrong_as_a_whole_grows_as_its_size_does(kind: str) -> None:
    few, many = (reading(WRONG_WHOLES[kind](count)) for count in (60, 60 * MORE))
    assert many <= MORE * few


@pytest.mark.parametrize("kind", sorted(WRONG_FLAGS))
def test_names_are_compared_for_a_bounded_number_of_problems_alone(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[str] = []
    for search in ("did_you_mean", "_spelling_hint"):
        original = getattr(suggestions, search)

        def count_search(*arguments: Any, made: Callable[..., Any] = original) -> Any:
            searches.append(arguments[0])
            return made(*arguments)

        monkeypatch.setattr(suggestions, search, count_search)
    parse(document(WRONG_FLAGS[kind], 300), file="flags.json")
    assert len(searches) <= suggestions.MOST_SEARCHES


def test_flags_that_no_lower_layer_has_are_compared_for_what_is_shown_alone() -> None:
    def layered_work(count: int) -> int:
        lower = document(right_flag, count)
        upper = json.dumps({"flags": {f"fleg-{at}": {"state": "DISABLED"} for at in range(count)}}).encode()
        layers = [read_layer([("a.json", lower)]), read_layer([("b.json", upper)])]
        return work(lambda: merge(layers))

    assert layered_work(60 * MORE) <= MORE * layered_work(60)


@pytest.mark.parametrize("kind", sorted(WRONG_FLAGS))
def test_a_wrong_document_takes_the_work_of_a_few_right_ones_of_its_size(kind: str) -> None:
    wrong = document(WRONG_FLAGS[kind], 600)
    right = document(right_flag, 200)
    assert reading(wrong) / len(wrong) <= 4 * reading(right) / len(right)
