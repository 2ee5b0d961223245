"""The fields of a flag, and their names in another case. Pure.

flagd is written in Go, whose JSON decoder takes `State` for `state`. Its providers do not.
"""

from __future__ import annotations

from typing import Any, Final

FIELDS: Final = ("state", "variants", "defaultVariant", "targeting", "metadata")
KNOWN: Final = frozenset(FIELDS)

MERGED_BY_KEY: Final = frozenset({"variants", "metadata"})
"""Fields of a flag that merge entry by entry; all others are replaced whole."""


def named_as_flagd_reads(
    value: dict[str, Any], known: frozenset[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The object with each name as in `known`, and the names that differed: written name to known name. Of
    two names of one field the later wins, or adds its entries, as in flagd.
    """
    if value.keys() <= known:
        return value, {}
    folded = {name.casefold(): name for name in known}
    unknown = value.keys() - known
    misnamed = {
        name: folded[name.casefold()] for name in value if name in unknown and name.casefold() in folded
    }
    if not misnamed:
        return value, misnamed
    read: dict[str, Any] = {}
    for name, part in value.items():
        field = misnamed.get(name, name)
        lower = read.get(field)
        merges = field in MERGED_BY_KEY and isinstance(lower, dict) and isinstance(part, dict)
        read[field] = {**lower, **part} if merges else part  # type: ignore[dict-item]
    return read, misnamed
