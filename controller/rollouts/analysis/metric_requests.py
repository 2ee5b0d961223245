"""The request that asks a metric server for one value, by the type of its provider. Pure."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from controller.api.parsing.query_text import QueryError, names_in, render
from controller.rollouts.analysis.readings import UnusableError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from controller.api.rollouts.metrictemplate import MetricProvider
    from controller.runtime.user_text.secret_texts import SecretTexts

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
_LONGEST: Final = 4096
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
        if len(text) > _LONGEST or not text.isprintable():
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
    if len(text) > _LONGEST or not text.isascii():
        raise secret.invalid(f"{key!r} is no header's value")
    return text
