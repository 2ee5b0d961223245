"""The header WWW-Authenticate (RFC 9110, section 11.6.1), as registries use it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LONGEST: Final = 8192
_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_ITEM: Final = re.compile(rf'({_WORD})(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|({_WORD})))?')


@dataclass(frozen=True, slots=True)
class Bearer:
    """Where a token is to be had."""

    realm: str
    service: str = ""


def challenges_of(headers: Iterable[str]) -> dict[str, dict[str, str]]:
    """The parameters of each scheme, in lower case; of several alike the first."""
    found: dict[str, dict[str, str]] = {}
    for header in headers:
        parameters: dict[str, str] = {}
        for item in _ITEM.finditer(header[:_LONGEST]):
            name, quoted, plain = item.groups()
            if quoted is None and plain is None:
                parameters = {}
                found.setdefault(name.lower(), parameters)
            else:
                value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
                parameters.setdefault(name.lower(), value)
    return found


def bearer_of(challenges: Mapping[str, Mapping[str, str]]) -> Bearer | None:
    """The token service that is named, if one is."""
    parameters = challenges.get("bearer", {})
    realm = parameters.get("realm", "")
    return Bearer(realm, parameters.get("service", "")) if realm else None
