"""The evaluation context of a request, with what the operator adds to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from evaluator.flags.model import EMPTY
from evaluator.http.routes import header
from evaluator.server.counting import MOST_VALUES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.http.routes import Headers

Context: TypeAlias = dict[str, Any]

MAX_DEPTH: Final = 64
"""Nested objects and arrays of a context: rules walk it by recursion."""
TOO_MANY: Final = f"the context has more than {MOST_VALUES:,} values"


@dataclass(frozen=True, slots=True)
class ContextSources:
    """What is laid over the context that a client sends: a header wins over a fixed value, which wins over the client's."""

    values: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """By context key."""
    headers: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Context key by header name in lower case."""

    def lay_over(self, context: dict[str, Any], headers: Headers) -> dict[str, Any]:
        """`context` itself, enriched in place."""
        if self.values:
            context.update(self.values)
        for name, key in self.headers.items():
            value = header(headers, name)
            if value is not None:
                context[key] = value
        return context


def read_too_deep(document: Any, text: bytes) -> bool:
    """`too_deep` of the JSON `text` that `document` was read from. Without that many brackets it cannot be: most are never walked."""
    return text.count(b"{") + text.count(b"[") > MAX_DEPTH and too_deep(document)


def too_deep(value: Any) -> bool:
    """Whether `value` nests deeper than MAX_DEPTH; never recurses."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return False
        level = below
    return True
