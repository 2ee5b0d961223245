"""From an object to the document that is delivered, once for each content. No I/O; takes long for a large
set, and a thread may do it.

What is bad never replaces what is good: a document that cannot be read leaves everything as it was, a flag
with an error stays at its last good definition while its siblings move on, and a set whose shards are not all
there stays at the previous whole one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import orjson

from controller.api.configuration import MissingShardsError, flag_document
from controller.api.fields import InvalidSpecError
from evaluator.flags.accept import Refused, accept
from evaluator.flags.canonical import canonical
from evaluator.flags.effective import NO_PROGRESS, Progress
from evaluator.flags.model import DIGEST_KEY, LEFT_OUT_KEY, REVISION_KEY
from evaluator.flags.operators import DEPTH
from evaluator.flags.parse import parse
from evaluator.flags.text import Bounds
from evaluator.http.messages import Code
from evaluator.wire.encoding import encode
from evaluator.wire.servicer import Missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.meta import Resource

_FILE: Final = "flags.json"
_BOUNDS: Final = Bounds(document_bytes=256 * 1024 * 1024, flags=1_000_000, nodes=50_000_000)
"""Of 256 shards; what one object may hold, the API server bounds."""
_KEPT_BOUNDS: Final = replace(_BOUNDS, depth=2 * DEPTH + 16)
"""Held rules are expanded, hence deeper than any that a person writes."""


@dataclass(frozen=True, slots=True)
class Built:
    """A flag set as it is delivered."""

    document: bytes
    """As in flagd's sync messages."""
    good: bytes
    """The set with its provenance, to hold flags of when a later one is bad."""
    digest: str
    """Of the flags, `sha256:<hex>`; the document names it, too."""
    revision: str
    """Empty where the set names none."""
    flags: int
    held: tuple[str, ...] = ()
    """Keys of the flags that stay at their last good definition."""
    left_out: tuple[str, ...] = ()
    """Keys of the flags with an error of which no good definition is known here; the document names them, for
    receivers that have one.
    """


@dataclass(frozen=True, slots=True)
class Unfit:
    """The object cannot be delivered as it is."""

    reason: str
    """`ShardsMissing`, `InvalidSpec` or `InvalidFlags`."""
    message: str

    @property
    def missing(self) -> Missing:
        """What whoever asks is told while there is nothing earlier to serve."""
        code = Code.UNAVAILABLE if self.reason == "ShardsMissing" else Code.FAILED_PRECONDITION
        return Missing(code, f"{self.reason}: {self.message}"[:500])


def build(
    resource: Resource,
    shard: Callable[[str], Resource | None],
    previous: bytes | None,
    progress: Progress = NO_PROGRESS,
) -> Built | Unfit:
    """What is delivered of `resource`; `previous` is `Built.good` of what was delivered before it, if
    anything was.
    """
    try:
        document = flag_document(resource, shard)
    except MissingShardsError as missing:
        return Unfit("ShardsMissing", str(missing))
    except InvalidSpecError as error:
        return Unfit("InvalidSpec", str(error))
    parsed = parse(document.content, file=_FILE, bounds=_BOUNDS)
    before = None
    if parsed.errors and previous is not None:
        before = parse(previous, file=_FILE, bounds=_KEPT_BOUNDS).flag_set
    judged = accept(parsed, before, progress=progress)
    if isinstance(judged, Refused):
        return Unfit("InvalidFlags", judged.cause)
    metadata = MappingProxyType({**judged.flag_set.metadata, DIGEST_KEY: judged.digest})
    flag_set = replace(judged.flag_set, metadata=metadata)
    return Built(
        document=_marked(encode(flag_set), judged.missing),
        good=canonical(judged.desired, provenance=True),
        digest=judged.digest,
        revision=str(flag_set.metadata.get(REVISION_KEY, "")),
        flags=len(flag_set.flags),
        held=judged.held,
        left_out=judged.missing,
    )


def _marked(document: bytes, left_out: tuple[str, ...]) -> bytes:
    """The document with the flags that are left out named in its own metadata, and not in that of
    each flag.
    """
    if not left_out:
        return document
    whole = orjson.loads(document)
    whole["metadata"][LEFT_OUT_KEY] = orjson.dumps(left_out).decode()
    return orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)
