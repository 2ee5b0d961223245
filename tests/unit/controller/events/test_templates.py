"""Words that an alert gives its messages: names that are known, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.fields import InvalidSpecError, read
from controller.api.flagalert import FlagAlertSpec
from controller.api.parsing import NAMES, InvalidTextError, check
from controller.events.alert_messages import MOST_FILLED, fill
from tests.worlds.events import Desk, alert, event, failure_event, message

SAID = message(state="failing", message="it is $wrong ${name}", metadata={"flagstaff.dev/author": "Ada"})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("${kind}/$name.$namespace: $reason", "FlagSet/flags.shop: Applied"),
        ("$state by $author at [$revision]", "failing by Ada at []"),
        ("$message", "it is $wrong ${name}"),
        ("costs $$5", "costs $5"),
        ("{{message}} {message} %(message)s", "{{message}} {message} %(message)s"),
    ],
)
def test_template_is_filled(text: str, want: str) -> None:
    check(text)
    assert fill(text, SAID, "shop") == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a\n ${mesage}", '2:2: "mesage" is not known; there is alert, author, changes'),
        ("costs $5", "1:7: write $$ for a $ that begins no name"),
        ("${message.__class__}", "1:1: write $$"),
        ("${message", "1:1: write $$"),
    ],
)
def test_an_invalid_template_is_refused_with_its_place(text: str, want: str) -> None:
    with pytest.raises(InvalidSpecError) as raised:
        read(FlagAlertSpec, alert(template=text).spec)
    assert f"spec.template: {want}" in str(raised.value)


def test_messages_wait_with_the_words_of_the_template_and_are_chosen_by_their_own() -> None:
    desk = Desk(alert(template="$severity: $message", exclusionList=["^info"]))
    desk.accept(event("Applied", "one"), failure_event(message="two"), event("Recovered", "three"))
    assert [each.message for each in desk.box.pending.values()] == ["info: one", "error: two", "info: three"]


_PARTS = st.sampled_from(["$", "${", "}", "$$", "{", "%s", "\n", ".", *sorted(NAMES)])


@given(st.lists(_PARTS, max_size=200).map("".join) | st.text(), st.text())
def test_any_template_is_refused_or_filled_within_bounds(text: str, words: str) -> None:
    try:
        check(text)
    except InvalidTextError:
        return
    said = message(message=words * 100)
    assert len(fill(text, said, "shop")) <= MOST_FILLED
    if "$" not in text:
        assert fill(text, said, "shop") == text[:MOST_FILLED]
