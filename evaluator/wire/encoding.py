"""A flag set as flagd sends it to in-process providers and to other flagds: one JSON document. Pure.

    {"flags": {KEY: {"state", "variants", "defaultVariant", "targeting"?, "metadata"?}}, "metadata"?}

As in flagd (flagd/pkg/service/flag-sync) references are expanded, the metadata that the set's author wrote is
under the flag's own, and a flag without a default variant has `""`. The same content has the same bytes:
keys are sorted, numbers are spelled as in a digest.

Two things differ from flagd's, and no published provider is affected:

* `source`, which flagd puts into each flag, is left out. It has no readers (flagd overwrites it, providers
  drop it), and it would show a subscriber where flags are kept.
* The top-level `metadata` holds the set's own `flagstaff.dev/…` keys (revision, digest, the generation of
  `fractional`), if it has any. Receivers lay set metadata under each flag's, so that no flag repeats them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from evaluator.flags.layers.catalog import fold
from evaluator.flags.model import ABSENT, PROVENANCE_PREFIX
from evaluator.flags.syntax.text import normal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.flags.model import Flag, FlagSet, Json, Scalar


def encode(flag_set: FlagSet) -> bytes:
    """Return the document, in UTF-8 without white space; `{"flags":{}}` for a set without flags. A rule that
    cannot be expanded within bounds becomes one that is a PARSE_ERROR everywhere. Raises ValueError for a
    number that is no finite float64; the parser admits none.
    """
    # Encoded flag by flag: one call for a large set would block all other threads for as long as it takes.
    ours = {key: value for key, value in flag_set.metadata.items() if key.startswith(PROVENANCE_PREFIX)}
    flags = b",".join(
        _text(key) + b":" + _text(_definition(flag, ours)) for key, flag in sorted(fold(flag_set).items())
    )
    metadata = b',"metadata":' + _text(normal(ours)) if ours else b""
    return b'{"flags":{' + flags + b"}" + metadata + b"}"


def _definition(flag: Flag, inherited: Mapping[str, Scalar]) -> dict[str, Json]:
    definition: dict[str, Json] = {
        "state": flag.state.value,
        "variants": normal(dict(flag.variants)),
        "defaultVariant": flag.default_variant or "",
    }
    if flag.targeting is not ABSENT:
        definition["targeting"] = normal(flag.targeting)
    own = {key: value for key, value in flag.metadata.items() if inherited.get(key) != value}
    if own:
        definition["metadata"] = normal(own)
    return definition


def _text(value: Json) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
