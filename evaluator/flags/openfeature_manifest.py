"""The manifest of OpenFeature's CLI: the flags that code asks for, with their types and code defaults. Pure.

Source of both forms: `schema/v0/flag-manifest.json` and `api/v0/sync.yaml` of
https://github.com/open-feature/cli. The file names the type of a flag `flagType`, in a map by key; the API
names it `type`, in a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evaluator.flags.model import CONFIDENTIAL_KEY, Json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evaluator.flags.model import Flag

DEFAULT_VALUE: Final = "defaultValue"
"""Metadata key of a flag for its code default, as GO Feature Flag names it."""
_SCHEMA: Final = "https://raw.githubusercontent.com/open-feature/cli/main/schema/v0/flag-manifest.json"


class ManifestFlag(NamedTuple):
    """A flag of the manifest."""

    key: str
    type: str
    """`boolean`, `string`, `integer`, `float` or `object`."""
    default: Json
    description: str = ""


class LeftOut(NamedTuple):
    """A flag that the manifest cannot have."""

    key: str
    reason: str


def manifest_flag(flag: Flag) -> ManifestFlag | LeftOut:
    """The flag as the manifest has it. Its default is metadata.defaultValue, else the value of its default
    variant: definitions do not know what the code passes.
    """
    if flag.metadata.get(CONFIDENTIAL_KEY) is True:
        return LeftOut(flag.key, "its values come from a Secret")
    types = {_type_of(value) for value in flag.variants.values()}
    kind = "float" if types == {"integer", "float"} else next(iter(types), "")
    if len(types) > 1 and kind != "float":
        return LeftOut(flag.key, f"its variants are of several types: {', '.join(sorted(types))}")
    description = flag.metadata.get("description")
    words = description if isinstance(description, str) else ""
    default: Json = flag.metadata.get(DEFAULT_VALUE)
    if default is None and flag.default_variant is not None:
        default = flag.variants.get(flag.default_variant)
    if default is None:
        return LeftOut(
            flag.key, f"it has no default variant; write its code default as metadata.{DEFAULT_VALUE}"
        )
    own = _type_of(default)
    if own != kind and (own, kind) != ("integer", "float") and kind:
        return LeftOut(flag.key, f"metadata.{DEFAULT_VALUE} must be of the type of its variants: {kind}")
    return ManifestFlag(flag.key, kind or own, default, words)


def as_file(flags: Iterable[ManifestFlag]) -> dict[str, Any]:
    """The manifest as the CLI keeps it in a file."""
    entries = {
        flag.key: {
            "flagType": flag.type,
            "defaultValue": flag.default,
            **({"description": flag.description} if flag.description else {}),
        }
        for flag in flags
        if flag.key
    }
    return {"$schema": _SCHEMA, "flags": entries}


def as_entry(flag: ManifestFlag) -> Mapping[str, Any]:
    """A flag as the API has it."""
    entry = {"key": flag.key, "type": flag.type, "defaultValue": flag.default}
    return {**entry, "description": flag.description} if flag.description else entry


def _type_of(value: Json) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "float"
    return "string" if isinstance(value, str) else "object"
