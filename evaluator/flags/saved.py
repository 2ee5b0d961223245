"""File format of a saved flag set: one line of JSON, a newline, and the set's canonical form with its
provenance; and what stays of parts that a sender does not send. Pure.

A part of a set that its sender composed of several has an order, the place in the configuration that asks for
it. A sender that cannot send a part names its order alone; the receiver keeps the flags that it has of it.
`docs/adr/0046-each-set-stands-alone.md` says why.

The line is `{"context": {…}, "length": bytes, "saved_at": RFC 3339, "sha256": hex, "version": 1}`, its sum
over `saved_at`, the context where there is one, and the document, each on a line of its own.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from evaluator.flags.canonical import canonical
from evaluator.flags.known_operators import DEPTH
from evaluator.flags.merge import parse
from evaluator.flags.model import EMPTY, FLAG_SET_KEY, SETS_KEY, ComposedPart, FlagSet, Json
from evaluator.flags.text import Bounds
from evaluator.host.times import read_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime


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


MAX_BYTES: Final = 256 * 1024 * 1024
"""Most bytes of such a file; a larger one counts as damaged."""

_VERSION: Final = 1
_MAX_HEADER: Final = 1024 * 1024

# A set of many documents, with held rules expanded, is larger than any document that a person writes.
_BOUNDS: Final = Bounds(document_bytes=MAX_BYTES, flags=2_000_000, depth=2 * DEPTH + 16, nodes=100_000_000)


@dataclass(frozen=True, slots=True)
class Saved:
    """A flag set and the moment at which it was known to be current."""

    flag_set: FlagSet
    saved_at: datetime
    """Time with a time zone."""
    context: Mapping[str, Json] = field(default_factory=lambda: EMPTY)
    """Context values delivered with the set."""

    @property
    def revision(self) -> str | None:
        """The revision that last changed the content; None if not recorded."""
        return self.flag_set.revision


def encode(saved: Saved) -> bytes:
    """Return the file's content. Raises ValueError if it is larger than `decode` accepts."""
    document = canonical(write_parts(saved.flag_set), provenance=True)
    saved_at = saved.saved_at.isoformat()
    header: dict[str, Json] = {
        "length": len(document),
        "saved_at": saved_at,
        "sha256": _sum(saved_at, saved.context, document),
        "version": _VERSION,
    }
    if saved.context:
        header["context"] = dict(saved.context)
    line = _text(header).encode()
    if len(line) > _MAX_HEADER or len(line) + len(document) >= MAX_BYTES:
        raise ValueError(f"{len(line) + len(document)} bytes are too many to keep")
    return line + b"\n" + document


def decode(content: bytes) -> Saved:
    """Decode the result of `encode`. Raises ValueError for anything else."""
    line, _, document = content.partition(b"\n")
    match header := {"context": {}, **_header(line)}:
        case {"saved_at": str(saved_at), "context": dict(context)}:
            pass
        case _:
            raise ValueError("it does not begin as a saved flag set does")
    if header.get("sha256") != _sum(saved_at, context, document):
        raise ValueError(f"its checksum is wrong ({len(document)} of {header.get('length')} bytes)")
    parsed = parse(document, file="last-good.json", bounds=_BOUNDS)
    if parsed.whole_bad or parsed.bad:
        raise ValueError(f"it cannot be read: {parsed.problems[0]}")
    return Saved(read_parts(parsed.flag_set), read_time(saved_at), context)


def _header(line: bytes) -> dict[str, Json]:
    try:
        header = json.loads(line) if len(line) <= _MAX_HEADER else None
    except RecursionError:
        header = None
    if not isinstance(header, dict) or header.get("version") != _VERSION:
        raise ValueError("it does not begin as a saved flag set does")
    return header


def _sum(saved_at: str, context: Mapping[str, Json], document: bytes) -> str:
    parts = [saved_at.encode()]
    if context:
        parts.append(_text(dict(context)).encode())
    return hashlib.sha256(b"\n".join([*parts, document])).hexdigest()


def _text(value: Json) -> str:
    return json.dumps(value, sort_keys=True)
