"""Divides a flag set that is larger than an object may be into FlagShards. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST: Final = 1_000_000
"""Bytes of a flagSpec in one object: etcd takes 1.5 MiB a request, and the object has more to it."""
SHARD_BYTES: Final = 500_000
"""No shard is larger, but for a flag that is."""
SHARD_BYTES_LEAST: Final = 200_000
"""No shard but the first and the last is smaller."""
_EVERY: Final = 32
"""A shard may end at one of this many flags, by a hash of the key."""


class TooLargeError(Exception):
    """The set does not fit into objects of the wanted kind; the text says what to do."""


def parts(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What belongs to all flags, which changes with every revision; then the flags, in parts. Raises
    TooLargeError.

    A flag's key decides where a part ends, not the size of what comes before it: so one flag more or less
    changes one part, not all that follow.
    """
    shared = {name: value for name, value in document.items() if name != "flags"}
    if len(_text(shared)) > LARGEST:
        raise TooLargeError(
            f"$evaluators and metadata take {len(_text(shared))} bytes, of {LARGEST} that they may have; "
            "make several FlagSets of it"
        )
    if shared:
        yield {"flags": {}, **shared}
    part: dict[str, Any] = {}
    size = 0
    for key, flag in document["flags"].items():
        weight = len(_text({key: flag}))
        if weight > LARGEST:
            raise TooLargeError(
                f"the flag {key[:100]} takes {weight} bytes, of {LARGEST} that one may have; make it smaller"
            )
        if part and (size + weight > SHARD_BYTES or (size >= SHARD_BYTES_LEAST and _may_end_shard(key))):
            yield {"flags": part}
            part, size = {}, 0
        part[key] = flag
        size += weight
    yield {"flags": part}


def _may_end_shard(key: str) -> bool:
    return hashlib.sha256(key.encode()).digest()[0] % _EVERY == 0


def _text(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def shard_of(owner: str, part: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(name, spec) of the FlagShard with this part of the flags of `owner`, the name of an object."""
    digest = hashlib.sha256(_text(part)).hexdigest()
    # A name's parts between dots do not begin with a dash.
    name = f"{owner[:200].rstrip('-.')}-{digest[:16]}"
    return name, {"digest": f"sha256:{digest}", "flagSpec": part}
