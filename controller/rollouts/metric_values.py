"""The request that asks a metric server for one value, and the number in its answer. Pure.

Reading error
├── NoValueError   the server has no value: nobody has used the flag yet
└── UnusableError  the answer cannot be used, or there is none: a person must correct it
No text of an answer is repeated, since a template may name any server: only known words of errors are.
"""

from __future__ import annotations

import base64
import json
import math
import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from controller.api.parsing import QueryError, names_in, render

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from controller.api.metrictemplate import MetricProvider
    from controller.runtime.secret_texts import SecretTexts


_KNOWN_WORDS: Final = frozenset(
    {"bad_data", "canceled", "execution", "internal", "not_acceptable", "not_found", "timeout", "unavailable"}
)
"""Types of errors that Prometheus names."""
_RESULTS: Final = frozenset({"matrix", "scalar", "string", "vector"})
_PART: Final = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\['([^'\\]*)'\]|\[(-?[0-9]{1,6})\]")
_LONGEST_NUMBER: Final = 64
"""Characters of a number that is a text."""


class NoValueError(Exception):
    """There is no value; the text says why."""


class UnusableError(Exception):
    """There is no answer that can be used; the text says why, and what to do."""


def prometheus_value(content: bytes) -> float:
    """Return the value of an instant query's answer (Prometheus' HTTP API, `/api/v1/query`).
    Raises NoValueError, UnusableError.
    """
    kind, result = _prometheus_result(content)
    if kind == "scalar":
        return _number(result[1] if len(result) == 2 else None)
    if kind != "vector":
        shown = kind if kind in _RESULTS else "another type"
        raise UnusableError(f"the result is a {shown}, not a vector; remove the range or the offset")
    if not result:
        raise NoValueError("the query has no result")
    if len(result) > 1:
        raise UnusableError(f"the query has {len(result)} series; sum them, or select one")
    return _number_in(result[0])


def prometheus_vector(content: bytes) -> list[tuple[Mapping[str, str], float]]:
    """Return labels and value of each series in an instant query's answer. Raises UnusableError."""
    kind, result = _prometheus_result(content)
    try:
        return [(_labels(series), _number_in(series)) for series in result if kind == "vector"]
    except NoValueError as error:
        raise UnusableError(str(error)) from None


def _prometheus_result(content: bytes) -> tuple[Any, list[Any]]:
    answer = _json(content)
    result = _at(answer, "data", "result")
    if _at(answer, "status") != "success" or not isinstance(result, list):
        raise UnusableError("the answer is not that of Prometheus' API; correct the provider's address")
    return _at(answer, "data", "resultType"), result


def _number_in(series: object) -> float:
    pair = _at(series, "value")
    return _number(pair[1] if isinstance(pair, list) and len(pair) == 2 else None)


def _labels(series: object) -> dict[str, str]:
    labels = _at(series, "metric")
    return {name: str(text) for name, text in labels.items()} if isinstance(labels, dict) else {}


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
    if isinstance(value, str) and len(value) > _LONGEST_NUMBER:
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


DATADOG: Final = "https://api.datadoghq.com"
"""The address of type datadog where a template names none."""
_DATADOG_WINDOWS: Final = 10
"""How many intervals of the past Datadog is asked for, as Flagger does: its points come late."""
_ENDS_TEXT: Final = re.compile(r"""["'`\\{}\x00-\x1f\x7f]""")
"""Characters that could end a text in a query and begin another part of the query."""
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_OURS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "host",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that belong to the connection. `Host` would reach another server behind the same address."""
_LONGEST_QUERY: Final = 4096
_SHOWN: Final = 64


@dataclass(frozen=True, slots=True)
class MetricRequest:
    """A GET for one value."""

    url: str
    headers: Mapping[str, str] = field(repr=False)


def write_query(type_: str, text: str, values: Mapping[str, str], given: Mapping[str, str]) -> str:
    """Return a query with its variables. `given`: of templateVariables, which may be any part of a query.
    Raises UnusableError for a value that cannot be in it.
    """
    try:
        if type_ == "http":
            return render(text, values, given, lambda value: quote(value, safe="")).strip()
        used = set(names_in(text)).intersection(values)
        query = render(text, values, given)
    except QueryError as error:
        raise UnusableError(f"the query cannot be written: {error}") from None
    if odd := next((name for name in sorted(used) if _ENDS_TEXT.search(values[name])), None):
        raise UnusableError(f"{{{{ {odd} }}}} has quotes, braces or control characters here; rename the flag")
    return query


def request_of(
    provider: MetricProvider, query: str, secret: SecretTexts | None, times: tuple[datetime, datetime]
) -> MetricRequest:
    """Return the request for a written query. `times`: (the earliest moment of a point, now).
    Raises UnusableError; Stalled (InvalidSecret).
    """
    address = (provider.address or DATADOG).rstrip("/")
    headers = {"Accept": "application/json", **_headers(provider.headers), **_login(provider.type, secret)}
    if provider.type == "prometheus":
        url = f"{address}/api/v1/query?{urlencode({'query': query})}"
    elif provider.type == "datadog":
        since, now = (int(moment.timestamp()) for moment in times)
        url = f"{address}/api/v1/query?{urlencode({'query': query, 'from': since, 'to': now})}"
    else:
        if not query.startswith(("/", "?")) or not query.isprintable() or " " in query:
            raise UnusableError("a query of type http is the end of a URL: it begins with / or ?")
        url = address + query
    return MetricRequest(url, headers)


def datadog_since(window: float, now: datetime, served_since: datetime) -> datetime:
    """Return the earliest moment of a point of Datadog's: its points come late, so the window is wider."""
    return max(served_since, now - timedelta(seconds=_DATADOG_WINDOWS * window))


def _headers(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of a template. Raises UnusableError for one that must not be set."""
    headers = {}
    for name, value in given.items():
        texts = value if isinstance(value, list) else [value]
        text = ", ".join(map(str, texts))
        if not _HEADER.fullmatch(name) or name.lower() in _OURS:
            raise UnusableError(
                f"header {name[:_SHOWN]!r} cannot be set; remove it from spec.provider.headers"
            )
        if len(text) > _LONGEST_QUERY or not text.isprintable():
            raise UnusableError(f"header {name!r} has a line break or is too long")
        headers[name] = text
    return headers


def _login(type_: str, secret: SecretTexts | None) -> dict[str, str]:
    """Return the headers with what a Secret has. Raises Stalled (InvalidSecret)."""
    if secret is None:
        return {}
    if type_ == "datadog":
        return {
            header: _line(secret, key, "for Datadog")
            for header, key in (
                ("DD-API-KEY", "datadog_api_key"), ("DD-APPLICATION-KEY", "datadog_application_key"),
            )
        }  # fmt: skip
    return {"Authorization": authorization_of(secret)}


def authorization_of(secret: SecretTexts) -> str:
    """Return the value of `Authorization`: of `token`, or of `username` and `password`.
    Raises Stalled (InvalidSecret) for a Secret with neither.
    """
    if secret.line("username"):
        pair = f"{secret.line('username')}:{_line(secret, 'password', 'beside username')}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return f"Bearer {_line(secret, 'token', 'without username and password')}"


def _line(secret: SecretTexts, key: str, purpose: str) -> str:
    secret.require(key, purpose)
    text = secret.line(key).strip()
    if len(text) > _LONGEST_QUERY or not text.isascii():
        raise secret.invalid(f"{key!r} is no header's value")
    return text
