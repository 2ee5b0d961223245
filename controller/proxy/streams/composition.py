"""Lays encoded flag sets over each other: the later wins for each flag. Pure; large sets take long, so a
thread may do it.

Flags keep the metadata of their own set, its provenance included, as in an evaluator that merges several
sources (docs/adr/0007-merged-sources.md); `flagstaff.dev/flag-set` names that set.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import orjson

from controller.proxy.streams.building import EncodedFlagSet
from evaluator.flags.model import DIGEST_KEY, FLAG_SET_KEY, LEFT_OUT_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

_SEPARATOR: Final = "\0"


def compose(parts: Sequence[tuple[str, EncodedFlagSet]]) -> EncodedFlagSet:
    """One set of several, each with its origin, `Kind/name`, in the order of precedence. The digest is over
    their digests in order, as that of merged sources.
    """
    flags: dict[str, Any] = {}
    left_out: dict[str, None] = {}
    for origin, part in parts:
        document = orjson.loads(part.document)
        metadata = {**document.get("metadata", {}), FLAG_SET_KEY: origin}
        metadata.pop(LEFT_OUT_KEY, None)
        for key, flag in document["flags"].items():
            flag["metadata"] = {**metadata, **flag.get("metadata", {})}
            flags[key] = flag
            left_out.pop(key, None)
        for key in part.left_out:
            # The flag of an earlier set must not replace the one that receivers hold.
            flags.pop(key, None)
            left_out[key] = None
    lines = "".join(f"{origin}{_SEPARATOR}{part.digest}\n" for origin, part in parts)
    digest = f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"
    own: dict[str, Any] = {DIGEST_KEY: digest}
    if left_out:
        own[LEFT_OUT_KEY] = orjson.dumps(sorted(left_out)).decode()
    return EncodedFlagSet(
        document=orjson.dumps({"flags": flags, "metadata": own}, option=orjson.OPT_SORT_KEYS),
        good=b"",
        digest=digest,
        revision="",
        flags=len(flags),
        held=(),
        left_out=tuple(sorted(left_out)),
    )
