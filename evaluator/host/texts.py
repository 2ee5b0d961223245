"""Texts of others, made short enough for a place."""

from __future__ import annotations


def cut(text: str, most: int) -> str:
    """Return at most `most` characters of a text; `…` stands for the rest."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
