"""A set that its sender composed of several: which set each of its parts is, and what stays of a part that
the sender does not send. Pure.

A part has an order, the place in the configuration that asks for it. A sender that cannot send a part names
its order alone; the receiver keeps the flags that it has of it. `docs/adr/0046-each-set-stands-alone.md`
says why.
"""

from __future__ import annotations

import json
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from evaluator.flags.model import FLAG_SET_KEY, SETS_KEY, ComposedPart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evaluator.flags.model import FlagSet

MOST_PARTS: Final = 8
"""Most parts of a set; further ones are ignored."""


def parts_text(parts: Iterable[ComposedPart]) -> str:
    """The parts, in the order of precedence, as the text of SETS_KEY in the metadata of a set."""
    return json.dumps([[part.order, part.origin, part.digest, part.revision] for part in parts])


def read_parts(flag_set: FlagSet) -> FlagSet:
    """The set with the parts that its metadata names, and without that text. Malformed parts are ignored."""
    text = flag_set.metadata.get(SETS_KEY)
    if text is None:
        return flag_set
    metadata = {key: value for key, value in flag_set.metadata.items() if key != SETS_KEY}
    return replace(flag_set, metadata=MappingProxyType(metadata), parts=_parts(text))


def write_parts(flag_set: FlagSet) -> FlagSet:
    """The set with its parts in its metadata, as `read_parts` reads them."""
    if not flag_set.parts:
        return flag_set
    metadata = {**flag_set.metadata, SETS_KEY: parts_text(flag_set.parts)}
    return replace(flag_set, metadata=MappingProxyType(metadata), parts=())


def keep_parts(delivered: FlagSet, previous: FlagSet | None) -> FlagSet:
    """The delivered set with the flags of `previous` that are of parts which were not sent, except those that
    a later part has, too.
    """
    before = {part.order: part for part in previous.parts if part.origin} if previous is not None else {}
    sent = {part.origin for part in delivered.parts}
    kept = {
        part.order: before[part.order]
        for part in delivered.parts
        if not part.origin and part.order in before and before[part.order].origin not in sent
    }
    if previous is None or not kept:
        return delivered
    parts = tuple(kept.get(part.order, part) for part in delivered.parts)
    rank = {part.origin: number for number, part in enumerate(parts)}
    origins = {part.origin for part in kept.values()}
    flags = dict(delivered.flags)
    for key, flag in previous.flags.items():
        origin = flag.metadata.get(FLAG_SET_KEY)
        if origin not in origins:
            continue
        winner = flags[key].metadata.get(FLAG_SET_KEY) if key in flags else None
        if rank.get(str(winner), -1) < rank[str(origin)]:
            flags[key] = flag
    return replace(delivered, flags=MappingProxyType(flags), parts=parts)


def _parts(text: object) -> tuple[ComposedPart, ...]:
    try:
        entries = json.loads(text) if isinstance(text, str) else []
        parts = [ComposedPart(*map(str, entry)) for entry in entries[:MOST_PARTS] if len(entry) > 0]
    except (ValueError, TypeError, RecursionError, KeyError):
        return ()
    return tuple({part.order: part for part in parts}.values())
