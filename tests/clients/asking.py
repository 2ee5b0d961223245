"""Questions over OFREP, by hand."""

from __future__ import annotations

import contextlib
import http.client
import json
from typing import Any


def served_value(port: int, key: str = "banner") -> Any:
    """The value that is served now. Raises OSError where nobody answers, KeyError for an error."""
    return ask_flag(port, key)["value"]


def ask_flag(port: int, key: str = "banner", **context: str) -> dict[str, Any]:
    """The whole answer. Raises OSError where nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        body = json.dumps({"context": context})
        connection.request("POST", f"/ofrep/v1/evaluate/flags/{key}", body=body)
        answer: dict[str, Any] = json.load(connection.getresponse())
        return answer
