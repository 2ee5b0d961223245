"""The number in the answer of a metric server. Pure.

Reading error
├── NoValueError   the server has no value: nobody has used the flag yet
└── UnusableError  the answer cannot be used, or there is none: a person must correct it
No text of an answer is repeated, since a template may name any server: only known words of errors are.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

_KNOWN_WORDS: Final = frozenset(
    {"bad_data", "canceled", "execution", "internal", "not_acceptable", "not_found", "timeout", "unavailable"}
)
"""Types of errors that Prometheus names."""
_RESULTS: Final = frozenset({"matrix", "scalar", "string", "vector"})
_PART: Final = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\['([^'\\]*)'\]|\[(-?[0-9]{1,6})\]")
_LONGEST: Final = 64
"""Characters of a number that is a text."""


class NoValueError(Exception):
    """There is no value; the text says why."""


class UnusableError(Exception):
    """There is no answer that can be used; the text says why, and what to do."""


def prometheus_value(content: bytes) -> float:
    """Return the value of an instant query's answer (Prometheus' HTTP API, `/api/v1/query`).
    Raises NoValueError, UnusableError.
    """
    answer = _json(content)
    result = _at(answer, "data", "result")
    if _at(answer, "status") != "success" or not isinstance(result, list):
        raise UnusableError("the answer is not that of Prometheus' API; correct spec.provider.address")
    kind = _at(answer, "data", "resultType")
    if kind == "scalar":
        return _number(result[1] if len(result) == 2 else None)
    if kind != "vector":
        shown = kind if kind in _RESULTS else "another type"
        raise UnusableError(f"the result is a {shown}, not a vector; remove the range or the offset")
    if not result:
        raise NoValueError("the query has no result")
    if len(result) > 1:
        raise UnusableError(f"the query has {len(result)} series; sum them, or select one")
    pair = _at(result[0], "value")
    return _number(pair[1] if isinstance(pair, list) and len(pair) == 2 else None)


def prometheus_problem(content: bytes) -> str:
    """Return the known type of error of a refused query with ` ()` around it; empty if it names none."""
    try:
        kind = _at(_json(content), "errorType")
    except UnusableError:
        return ""
    return f" ({kind})" if isinstance(kind, str) and kind in _KNOWN_WORDS else ""


def datadog_value(content: bytes) -> float:
    """Return the newest point in the answer of Datadog's `/api/v1/query`.
    Raises NoValueError, UnusableError.
    """
    answer = _json(content)
    series = _at(answer, "series")
    if _at(answer, "status") == "error" or not isinstance(series, list):
        raise UnusableError("Datadog refuses the query; correct spec.query")
    if not series:
        raise NoValueError("the query has no series")
    if len(series) > 1:
        raise UnusableError(f"the query has {len(series)} series; sum them, or select one")
    points = _at(series[0], "pointlist")
    values = [
        point[1]
        for point in (points if isinstance(points, list) else ())
        if isinstance(point, list) and len(point) == 2 and point[1] is not None
    ]
    if not values:
        raise NoValueError("the query has no points")
    return _number(values[-1])


def json_value(content: bytes, path: str) -> float:
    """Return the number at a path such as `$.data[0].value`; null is no value.
    Raises NoValueError, UnusableError.
    """
    here = _json(content)
    for step in path_steps(path):
        here = _step(here, step)
        if here is None:
            raise NoValueError(f"the answer has nothing at {path}")
    return _number(here)


def path_steps(path: str) -> tuple[str | int, ...]:
    """Return the names and positions of a path. Raises UnusableError for another text."""
    rest = path.removeprefix("$")
    parts = tuple(_PART.finditer(rest))
    if rest == path or "".join(part[0] for part in parts) != rest:
        raise UnusableError("jsonPath must be names and positions such as $.data[0].value")
    return tuple(int(part[3]) if part[3] is not None else part[1] or part[2] or "" for part in parts)


def _step(here: Any, step: str | int) -> Any:
    if isinstance(step, str):
        return here.get(step) if isinstance(here, dict) else None
    return here[step] if isinstance(here, list) and -len(here) <= step < len(here) else None


def _number(value: object) -> float:
    """Return a finite number. Raises NoValueError for NaN, UnusableError for what is no number."""
    if isinstance(value, str) and len(value) > _LONGEST:
        raise UnusableError("the value is no number")
    try:
        number = float(value) if isinstance(value, int | float | str) and value is not True else None
    except (ValueError, OverflowError):
        number = None
    if number is None or value is False:
        raise UnusableError("the value is no number")
    if math.isnan(number):
        raise NoValueError("the value is NaN: the query divides by nothing")
    if math.isinf(number):
        raise UnusableError("the value is infinite: the query divides by zero")
    return number


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise UnusableError("the answer is not JSON") from None


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
