"""Judges a delivery of a source."""

from __future__ import annotations

import json
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from evaluator.flags.accept import Accepted, Refused
from evaluator.flags.accept import accept as accept_parsed
from evaluator.flags.composed import keep_parts, read_parts
from evaluator.flags.layers.layer import read_layer
from evaluator.flags.layers.merge import merge
from evaluator.flags.model import DIGEST_KEY, LEFT_OUT_KEY
from evaluator.sync.source import BOUNDS

if TYPE_CHECKING:
    from evaluator.flags.model import FlagSet
    from evaluator.sync.source import Delivery

__all__ = ["Accepted", "Refused", "accept"]


def accept(delivery: Delivery, previous: FlagSet | None) -> Accepted | Refused:
    """Judge a delivery after `previous`, the last accepted of this source. Takes long for a large set."""
    layer = read_layer(delivery.documents, bounds=BOUNDS)
    parsed = merge([layer], document=True, bounds=BOUNDS)
    delivered, left_out = _read_left_out(keep_parts(read_parts(parsed.flag_set), previous))
    judged = accept_parsed(replace(parsed, flag_set=delivered, bad=parsed.bad | left_out), previous)
    if isinstance(judged, Accepted) and (judged.held or not left_out.issuperset(judged.missing)):
        # The peer's digest covers its delivery, which may differ from what is served: do not pass it on.
        metadata = {key: value for key, value in judged.flag_set.metadata.items() if key != DIGEST_KEY}
        flag_set = replace(judged.flag_set, metadata=MappingProxyType(metadata))
        judged = replace(judged, flag_set=flag_set, desired=flag_set)
    return judged


def _read_left_out(flag_set: FlagSet) -> tuple[FlagSet, frozenset[str]]:
    """Return the set without the mark, and keys of flags of which the sender has no good definition."""
    text = flag_set.metadata.get(LEFT_OUT_KEY)
    if not isinstance(text, str):
        return flag_set, frozenset()
    metadata = {key: value for key, value in flag_set.metadata.items() if key != LEFT_OUT_KEY}
    try:
        keys = json.loads(text)
    except (ValueError, RecursionError):
        keys = None
    keys = keys if isinstance(keys, list) else []
    named = frozenset(key for key in keys if isinstance(key, str))
    return replace(flag_set, metadata=MappingProxyType(metadata)), named - flag_set.flags.keys()
