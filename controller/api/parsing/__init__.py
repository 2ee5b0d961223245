"""Parsers of the texts in specs, shared by those who validate a spec and those who use it. Pure."""

from __future__ import annotations

from typing import Final

INVALID: Final = "InvalidSpec"
"""The reason of an error that names none of its own."""


class InvalidTextError(ValueError):
    """A text that a user wrote cannot be used. Its own text says why, and what to write."""

    def __init__(self, message: str, reason: str = INVALID) -> None:
        """`reason`: that of the condition of an object that has this text; CamelCase and stable."""
        super().__init__(message)
        self.reason = reason
