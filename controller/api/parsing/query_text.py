"""Variables in the queries of MetricTemplates, written as Flagger has them: `{{ interval }}`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from controller.api.parsing import InvalidTextError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VARIABLES: Final = (
    "arm", "flag", "flags", "interval", "name", "namespace", "revision", "target", "variant",
)  # fmt: skip
"""All but `variables.NAME`."""
_GIVEN: Final = "variables."
_PLACE: Final = re.compile(r"\{\{-?((?:(?!\}\}).){0,256})\}\}", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_SHOWN: Final = 64


class QueryError(InvalidTextError):
    """A query cannot be written out; the text says why."""


def names_in(query: str) -> tuple[str, ...]:
    """Return the variables of a query in their order. Raises QueryError for what is none."""
    rest = _PLACE.sub("", query)
    if "{{" in rest or "}}" in rest:
        raise QueryError("has {{ or }} without the other")
    return tuple(_name(place[1]) for place in _PLACE.finditer(query))


def require_query(query: str) -> None:
    """Raise QueryError for a query with variables that do not exist."""
    names_in(query)


def render(
    query: str,
    values: Mapping[str, str],
    given: Mapping[str, str],
    written: Callable[[str], str] = lambda value: value,
) -> str:
    """Return the query with its variables written out. `values`: of VARIABLES; `given`: of `variables.NAME`;
    `written`: how a value is written in this kind of query. Raises QueryError for a variable without a value.
    """
    names_in(query)

    def value(place: re.Match[str]) -> str:
        name = _name(place[1])
        known = given if name.startswith(_GIVEN) else values
        if (text := known.get(name.removeprefix(_GIVEN))) is None:
            todo = "set it in templateVariables" if name.startswith(_GIVEN) else "this check has none"
            raise QueryError(f"{{{{ {name} }}}} has no value; {todo}")
        return written(text)

    return _PLACE.sub(value, query)


def _name(text: str) -> str:
    """Return the name between the braces. Raises QueryError."""
    name = text.removesuffix("-").strip()
    own = name.removeprefix(_GIVEN)
    if name in VARIABLES or (name != own and _NAME.fullmatch(own)):
        return name
    shown = name[:_SHOWN] if name.isprintable() else "…"
    raise QueryError(f"{{{{ {shown} }}}} is no variable; there are {', '.join(VARIABLES)} and {_GIVEN}NAME")
