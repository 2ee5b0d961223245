"""Text of strangers, as status, Events, logs and terminals may show it. Pure."""

from __future__ import annotations


def one_line(text: str, most: int) -> str:
    """At most `most` characters, in which nothing breaks the line or moves a terminal's cursor."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:most])
