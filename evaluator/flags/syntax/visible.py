"""What others wrote, as a line of a log or a terminal may show it. Pure."""

from __future__ import annotations


def visible(text: str) -> str:
    """The text with unprintable characters as `\\uXXXX`: it breaks no log line and steers no terminal."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else _escaped(sign) for sign in text)


def _escaped(sign: str) -> str:
    number = ord(sign)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
