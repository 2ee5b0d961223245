"""Reads the flag manifest of OpenFeature's CLI, as it is in a file. Pure.

Source: schema/v0/flag-manifest.json of https://github.com/open-feature/cli. A manifest declares flags for
typed code: the type, and the value where no flag can be evaluated, which is the imported flag's for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.importers.model import ImportedFlag, Targeting
from controller.importers.reading import NoExactForm, SourceFile, UnreadableFile, member, scalars
from evaluator.flags.text import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.importers.reading import ImportReading
    from evaluator.flags.model import Json

_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "boolean": bool,
    "string": str,
    "integer": int,
    "float": (int, float),
    "object": dict,
}
_DEFAULT: Final = "default"
"""The name of the only variant of a flag that is no boolean."""


def read(files: list[SourceFile], reading: ImportReading) -> None:
    """Read flags. Raises UnreadableFile."""
    for file in files:
        flags = file.content.get("flags") if isinstance(file.content, dict) else None
        if not isinstance(flags, dict):
            raise UnreadableFile(f"{file.name} has no object flags; write the manifest by `openfeature pull`")
        for key, flag in flags.items():
            place = f"{file.name}:flags.{key}"
            with reading.one(key, place):
                reading.add(_flag(key, flag, place, reading.options.environment))


def _flag(key: str, flag: Any, place: str, environment: str) -> ImportedFlag:
    if not key or not isinstance(flag, dict):
        raise NoExactForm(place, "the key is empty, or the flag is no object")
    kind = member(flag, "flagType", str, place, "")
    if kind not in _TYPES:
        raise NoExactForm(f"{place}.flagType", f"the type {quote(kind)} is none of {', '.join(_TYPES)}")
    value = member(flag, "defaultValue", _TYPES[kind], place)
    if value is None:
        raise NoExactForm(place, "it has no defaultValue, which is the value of the imported flag; write one")
    variants: dict[str, Json] = {"on": True, "off": False}
    default = "on" if value is True else "off"
    if kind != "boolean":
        variants, default = {_DEFAULT: value}, _DEFAULT
    metadata = scalars({"description": flag.get("description")})
    return ImportedFlag(key, place, variants, {environment: Targeting(default)}, metadata)
