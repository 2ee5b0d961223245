"""The list of user-visible texts finds what it is for."""

from __future__ import annotations

from tests.messages import messages

SOURCE = '''
"""A module that does nothing."""
def check(path: str) -> "None":
    """Raise an error."""
    if path == "x":
        raise ValueError(f"cannot read {path}; choose another file")
    log.info("one word: %s", path)
'''


def test_messages_are_listed_with_their_calls_and_docstrings_are_not() -> None:
    assert [(call, text) for _, call, text in messages(SOURCE)] == [
        ("ValueError", "cannot read {…}; choose another file"),
        ("log.info", "one word: %s"),
    ]
