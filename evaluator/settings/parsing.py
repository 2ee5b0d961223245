"""Parses values of options, variables and the configuration file.

pflag reads flagd's command line and viper's `cast` the rest, so lists, pairs, durations and switches have the
syntax of those two; where `cast` silently gives zero for an invalid value, this raises an error.
"""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING, Final

from evaluator.flags.checking.known_operators import shorten
from evaluator.host.durations import parse_duration
from evaluator.settings.settings import InvalidSettingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LONGEST: Final = 2**63 / 1e9
"""Most seconds of a Go duration."""
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def duration(value: object, where: str) -> float:
    """Return the seconds of a duration in Go's syntax: `0`, or such as `1m30s`."""
    text = str(value).removeprefix("+") if isinstance(value, str | int) else ""
    seconds = parse_duration(text)
    if seconds is None or seconds > _LONGEST:
        raise InvalidSettingError(
            f"{where} is {shorten(value)}, which is not a valid duration; use 10s, 5m or 1h15m"
        )
    return seconds


def whole(value: object, where: str, bounds: tuple[int, int]) -> int:
    """Return a whole number within `bounds`, both included."""
    lowest, highest = bounds
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not (text.isascii() and text.isdigit() and len(text) <= 20) or not lowest <= int(text) <= highest:
        raise InvalidSettingError(
            f"{where} is {shorten(value)}: must be a whole number from {lowest} to {highest}"
        )
    return int(text)


def switch(value: object, where: str) -> bool:
    """Return the value of a switch, by Go's ParseBool."""
    text = value if isinstance(value, str) else json.dumps(value)
    if text not in _TRUE | _FALSE:
        raise InvalidSettingError(f"{where} is {shorten(value)}: must be true or false")
    return text in _TRUE


def line(value: object, where: str) -> str:
    """Return a text without control characters, which is safe to print and to open."""
    if not isinstance(value, str) or not value.isprintable():
        raise InvalidSettingError(f"{where} must be a printable text")
    return value


def choice(value: object, where: str, choices: Sequence[str]) -> str:
    """Return one of `choices`."""
    if value not in choices:
        raise InvalidSettingError(f"{where} is {shorten(value)}: must be {' or '.join(choices)}")
    return str(value)


def strings(values: Iterable[object], where: str) -> tuple[str, ...]:
    """Return all values of an option given several times, each a list, or texts quoted as in CSV."""
    items: list[str] = []
    for value in values:
        items += value if isinstance(value, list) else _split(value, where)
    return tuple(line(item, where) for item in items)


def words(text: str) -> tuple[str, ...]:
    """Return a variable's items: viper splits at white space, pflag at commas; both are accepted."""
    return tuple(filter(None, re.split(r"[\s,]+", text)))


def pairs(values: Iterable[object], where: str) -> dict[str, str]:
    """Return the pairs of `key=value` texts, a JSON object as text, or a mapping; later keys win."""
    pairs: dict[str, str] = {}
    for value in values:
        mapping = _mapping(value, where)
        if mapping is not None:
            pairs |= {str(key): _plain(item, where) for key, item in mapping.items()}
            continue
        text = str(value)
        # As in pflag, a single pair is not split, so that its value may hold commas.
        items = [text.strip('"')] if text.count("=") == 1 else _split(text, where)
        for item in items:
            key, equals, rest = item.partition("=")
            if not (key and equals):
                raise InvalidSettingError(
                    f"{where} has {shorten(item)}: must be key=value, separated by commas"
                )
            pairs[key] = rest
    return pairs


def _mapping(value: object, where: str) -> dict[object, object] | None:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except ValueError:
            raise InvalidSettingError(f"{where} begins like a JSON object and is not valid JSON") from None
    if isinstance(value, dict):
        return value
    if isinstance(value, str):
        return None
    raise InvalidSettingError(f"{where} is {shorten(value)}: must be a mapping of keys to values")


def _plain(value: object, where: str) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, dict | list):
        raise InvalidSettingError(f"{where} has {shorten(value)} as a value: must be a text")
    return json.dumps(value)


def _split(value: object, where: str) -> list[str]:
    if not isinstance(value, str):
        raise InvalidSettingError(f"{where} is {shorten(value)}: must be a list of texts")
    try:
        return next(csv.reader([value], strict=True), [])
    except csv.Error as error:
        raise InvalidSettingError(f"{where} is not a comma-separated list: {error}") from None
