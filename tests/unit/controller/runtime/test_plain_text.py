"""Texts of strangers in statuses and Events."""

from __future__ import annotations

import pytest

from controller.runtime.plain_text import clean, redact


def test_lists_of_changed_flags_keep_their_lines_and_other_texts_have_one() -> None:
    found = clean({"flagstaff.dev/changes": "- a\n- b", "flagstaff.dev/author": "A\nda"})
    assert found == {"flagstaff.dev/changes": "- a\n- b", "flagstaff.dev/author": "A\ufffdda"}


def test_messages_that_wait_keep_their_lines() -> None:
    waiting = {"pending": [{"message": "one\ntwo", "metadata": {"flagstaff.dev/changes": "- a\n- b"}}]}
    assert clean(waiting) == waiting


@pytest.mark.parametrize(
    ("secret", "text", "shown"),
    [
        ("pos", "fatal: repository 'https://h/pos' not found", "fatal: repository 'https://h/pos' not found"),
        ("repo", "fatal: repository https://me:repo@h", "fatal: repository https://me:***@h"),
        ("s.x+y", "key=s.x+y, s_x+y", "key=***, s_x+y"),
        ("hunter2-hunter2", "xhunter2-hunter2y", "x***y"),
        ("", "unchanged", "unchanged"),
    ],
)
def test_a_secret_is_removed_where_it_stands_whole_or_cannot_be_a_part_of_a_word(
    secret: str, text: str, shown: str
) -> None:
    assert redact(text, [secret]) == shown


def test_a_secret_within_another_is_removed_with_it() -> None:
    assert redact("hunter2-hunter2 hunter2", ["hunter2", "hunter2-hunter2"]) == "*** ***"
