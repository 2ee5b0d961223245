"""Lays encoded flag sets over each other: the later wins for each flag. Pure; large sets take long, so a
thread may do it.

Flags keep the metadata of their own set, its provenance included, as in an evaluator that merges several
sources (docs/adr/0007-merged-sources.md); `flagstaff.dev/flag-set` names that set. A set that is not sent is
named by its order alone, and receivers keep what they have of it (docs/adr/0046-each-set-stands-alone.md).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import orjson

from controller.proxy.streams.building import EncodedFlagSet, HiddenFlag
from evaluator.flags.composed import parts_text
from evaluator.flags.model import DIGEST_KEY, FLAG_SET_KEY, LEFT_OUT_KEY, SETS_KEY, ComposedPart
from evaluator.flags.overrides import OVERRIDE_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

_SEPARATOR: Final = "\0"


def compose(sets: Sequence[tuple[str, str, EncodedFlagSet | None]]) -> EncodedFlagSet:
    """One set of several, in the order of precedence: what asks for each, its origin, `Kind/name`, and its
    content; None for one that is not sent. The digest is over their digests in order, as that of merged
    sources.
    """
    flags: dict[str, Any] = {}
    left_out: dict[str, None] = {}
    overridden: list[tuple[str, str]] = []
    for _, origin, content in sets:
        if content is None:
            continue
        document = orjson.loads(content.document)
        metadata = {**document.get("metadata", {}), FLAG_SET_KEY: origin}
        metadata.pop(LEFT_OUT_KEY, None)
        for key, flag in document["flags"].items():
            flag["metadata"] = {**metadata, **flag.get("metadata", {})}
            if OVERRIDE_KEY in flag["metadata"]:
                overridden.append((origin, key))
            flags[key] = flag
            left_out.pop(key, None)
        for key in content.left_out:
            # The flag of an earlier set must not replace the one that receivers hold.
            flags.pop(key, None)
            left_out[key] = None
    parts = [
        ComposedPart(order)
        if content is None
        else ComposedPart(order, origin, content.digest, content.revision)
        for order, origin, content in sets
    ]
    lines = "".join(f"{part.origin or part.order}{_SEPARATOR}{part.digest}\n" for part in parts)
    digest = f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"
    own: dict[str, Any] = {DIGEST_KEY: digest, SETS_KEY: parts_text(parts)}
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
        hidden=tuple(
            HiddenFlag(origin, key, by)
            for origin, key in overridden
            if key in flags and (by := flags[key]["metadata"][FLAG_SET_KEY]) != origin
        ),
    )
