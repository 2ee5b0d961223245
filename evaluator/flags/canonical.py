"""One spelling for a flag set: the same content gives the same bytes and digest, whatever its order or format. Pure.

The document has flagd's shape, `{"flags": …, "$evaluators": …, "metadata": …}`, in UTF-8 without white space, keys
sorted by code point. What is not there, or empty and optional, is left out; `$ref`s stay.

Numbers are what flagd reads, float64: a whole one up to 2^53 is written as an integer (`1.0` is `1`, `-0.0` is `0`),
any other in the shortest form that reads back as the same float64 (so 2^53 + 1 is written as 2^53).
"""

from __future__ import annotations

import hashlib
import json
from math import isfinite
from typing import TYPE_CHECKING, Final

from evaluator.flags.model import ABSENT, PROVENANCE_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.flags.model import Flag, FlagSet, Json, Scalar

_EXACT: Final = 2**53
"""Up to here every whole number is a float64."""

# Not orjson: its spelling of floats differs between releases, and a digest must outlive them.
_text: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode


def canonical(flag_set: FlagSet, *, provenance: bool = False) -> bytes:
    """Return the set as one JSON document; with `provenance`, where it came from is told too.

    Raises ValueError for a number that is no finite float64, or text that is no Unicode; the parser admits neither.
    """
    parts = []
    if flag_set.evaluators:
        parts.append('"$evaluators":' + _text(normal(dict(flag_set.evaluators))))
    # A flag at a time: one call over a large set would keep every other thread from running for as long as it takes.
    flags = (
        f"{_text(key)}:{_text(_flag(flag, provenance))}"
        for key, flag in sorted(flag_set.flags.items())
    )
    parts.append('"flags":{' + ",".join(flags) + "}")
    if metadata := _metadata(flag_set.metadata, provenance):
        parts.append('"metadata":' + _text(metadata))
    return ("{" + ",".join(parts) + "}").encode()


def digest(flag_set: FlagSet) -> str:
    """Return `sha256:<hex>` over the content, which the provenance keys are no part of."""
    return f"sha256:{hashlib.sha256(canonical(flag_set)).hexdigest()}"


def content_metadata(metadata: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Metadata without its provenance keys."""
    return {key: value for key, value in metadata.items() if key not in PROVENANCE_KEYS}


def normal(value: Json) -> Json:
    """Return a JSON value with its numbers as `canonical` writes them; equal numbers have equal types thereafter.

    Raises ValueError for a number that is no finite float64.
    """
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is dict:
        return {key: normal(each) for key, each in value.items()}
    if kind is list:
        return [normal(each) for each in value]
    return _number(value)


def _number(value: float) -> float:
    if -_EXACT <= value <= _EXACT:
        return int(value) if value == int(value) else value
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not isfinite(number):
        raise ValueError("a number is not a finite float64")
    return int(number) if abs(number) == _EXACT else number


def _flag(flag: Flag, provenance: bool) -> dict[str, Json]:
    definition: dict[str, Json] = {
        "state": flag.state.value,
        "variants": normal(dict(flag.variants)),
    }
    if flag.default_variant is not None:
        definition["defaultVariant"] = flag.default_variant
    if flag.targeting is not ABSENT:
        definition["targeting"] = normal(flag.targeting)
    if metadata := _metadata(flag.metadata, provenance):
        definition["metadata"] = metadata
    return definition


def _metadata(metadata: Mapping[str, Scalar], provenance: bool) -> Json:
    return normal(dict(metadata) if provenance else content_metadata(metadata))
