"""From an object to the document that is delivered, once for each content. No I/O; takes long for a large
set, and a thread may do it.

What is bad never replaces what is good: a document that cannot be read leaves everything as it was, a flag
with an error stays at its last good definition while its siblings move on, and a set whose shards are not all
there stays at the previous whole one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import orjson

from controller.api.configuration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.delivery.delivered import delivered
from evaluator.flags.canonical import canonical
from evaluator.flags.effective import NO_PROGRESS, Progress
from evaluator.flags.model import DIGEST_KEY, LEFT_OUT_KEY, REVISION_KEY
from evaluator.http.messages import Code
from evaluator.wire.encoding import encode
from evaluator.wire.servicer import Missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.meta import Resource


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
        found = delivered(resource, shard, progress, previous)
    except MissingShardsError as missing:
        return Unfit("ShardsMissing", str(missing))
    except InvalidSpecError as error:
        return Unfit("InvalidSpec", str(error))
    if not found.digest:
        return Unfit("InvalidFlags", found.cause)
    metadata = MappingProxyType({**found.flag_set.metadata, DIGEST_KEY: found.digest})
    flag_set = replace(found.flag_set, metadata=metadata)
    return Built(
        document=_marked(encode(flag_set), found.missing),
        good=canonical(found.desired, provenance=True),
        digest=found.digest,
        revision=str(flag_set.metadata.get(REVISION_KEY, "")),
        flags=len(flag_set.flags),
        held=found.held,
        left_out=found.missing,
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
