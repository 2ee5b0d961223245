"""Texts of strangers in statuses and Events."""

from __future__ import annotations

from controller.runtime.user_text.plain_text import cleaned


def test_lists_of_changed_flags_keep_their_lines_and_other_texts_have_one() -> None:
    found = cleaned({"flagstaff.dev/changes": "- a\n- b", "flagstaff.dev/author": "A\nda"})
    assert found == {"flagstaff.dev/changes": "- a\n- b", "flagstaff.dev/author": "A\ufffdda"}


def test_messages_that_wait_keep_their_lines() -> None:
    waiting = {"pending": [{"message": "one\ntwo", "metadata": {"flagstaff.dev/changes": "- a\n- b"}}]}
    assert cleaned(waiting) == waiting
