"""One spelling for a flag set: the same content gives the same bytes and digest, whatever its order or
format. Pure.

The document has flagd's shape, `{"flags": …, "$evaluators": …, "metadata": …}`, in UTF-8 without white space,
keys sorted by code point. What is not there, or empty and optional, is left out; `$ref`s stay.
Where several flag sets have one key, `flags` is a list by key and flag set id.

Numbers are float64, as `numbers` holds them: a whole one within 64 bits is written as an integer (`1.0` is
`1`, 2^53 + 1 is 2^53), any other in the shortest form that reads back as the same float64.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from evaluator.flags.model import ABSENT, PROVENANCE_KEYS, Flag, FlagSet, Json, Scalar
from evaluator.flags.text import normal

if TYPE_CHECKING:
    from collections.abc import Mapping


# Not orjson: its spelling of floats differs between releases, and a digest must outlive them.
_text: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode


def canonical(flag_set: FlagSet, *, provenance: bool = False) -> bytes:
    """Return the set as one JSON document, its provenance keys included on request. Raises ValueError for a
    number that is no finite float64 or text that is no Unicode; the parser admits neither.
    """
    parts = []
    if flag_set.evaluators:
        parts.append('"$evaluators":' + _text(normal(dict(flag_set.evaluators))))
    parts.append(
        '"flags":' + (_list(flag_set, provenance) if flag_set.others else _map(flag_set, provenance))
    )
    if metadata := _metadata(flag_set.metadata, provenance):
        parts.append('"metadata":' + _text(metadata))
    return ("{" + ",".join(parts) + "}").encode()


def digest(flag_set: FlagSet) -> str:
    """Return `sha256:<hex>` over the content without provenance keys."""
    return f"sha256:{hashlib.sha256(canonical(flag_set)).hexdigest()}"


def content_metadata(metadata: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the metadata without its provenance keys."""
    return {key: value for key, value in metadata.items() if key not in PROVENANCE_KEYS}


def _map(flag_set: FlagSet, provenance: bool) -> str:
    # Encoded flag by flag: one call for a large set would block all other threads for as long as it takes.
    flags = (f"{_text(key)}:{_flag_text(flag, provenance)}" for key, flag in sorted(flag_set.flags.items()))
    return "{" + ",".join(flags) + "}"


def _flag_text(flag: Flag, provenance: bool) -> str:
    """The flag as JSON. It is kept in the flag: a commit changes few flags of a set, and digests need all."""
    if flag.metadata and not PROVENANCE_KEYS.isdisjoint(flag.metadata):
        return _text(_flag(flag, provenance))
    if not flag.canonical:
        object.__setattr__(flag, "canonical", _text(_flag(flag, provenance)))
    return flag.canonical


def _list(flag_set: FlagSet, provenance: bool) -> str:
    """Return flagd's list form of flags, for keys that several flag sets have."""
    inherited = flag_set.flag_set_id
    flags = sorted(
        (*flag_set.flags.values(), *flag_set.others),
        key=lambda flag: (flag.key, flag.flag_set_id_in(inherited)),
    )
    return "[" + ",".join(_text({"key": flag.key, **_flag(flag, provenance)}) for flag in flags) + "]"


def _flag(flag: Flag, provenance: bool) -> dict[str, Json]:
    definition: dict[str, Json] = {"state": flag.state.value, "variants": normal(dict(flag.variants))}
    if flag.default_variant is not None:
        definition["defaultVariant"] = flag.default_variant
    if flag.targeting is not ABSENT:
        definition["targeting"] = normal(flag.targeting)
    if metadata := {**_metadata(flag.metadata, provenance), **dict.fromkeys(flag.without)}:
        definition["metadata"] = metadata
    return definition


def _metadata(metadata: Mapping[str, Scalar], provenance: bool) -> dict[str, Json]:
    content = metadata if provenance else content_metadata(metadata)
    return {key: normal(value) for key, value in content.items()}
