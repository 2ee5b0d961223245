"""Encodes the flags of an object as the document that streams are sent, and lays documents over each other.
Pure.

A large set takes long, so a thread may do either.

Bad content never replaces good content: where a document cannot be read the previous one stays, a flag with
an error stays at its last good definition while its siblings move on, and a set whose shards are not all
there stays at the previous whole one.

Of encoded sets the later wins for each flag.

Flags keep the metadata of their own set, its provenance included, as in an evaluator that merges several
sources (docs/adr/0007-merged-sources.md); `flagstaff.dev/flag-set` names that set. A set that is not sent is
named by its order alone, and receivers keep what they have of it (docs/adr/0046-each-set-stands-alone.md).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from controller.api.featureflagconfiguration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.delivery.delivered import delivery_of
from evaluator.flags.accept import NO_PROGRESS, Progress
from evaluator.flags.canonical import canonical
from evaluator.flags.model import (
    DIGEST_KEY,
    EMPTY,
    FLAG_SET_KEY,
    LEFT_OUT_KEY,
    REVISION_KEY,
    SETS_KEY,
    ComposedPart,
)
from evaluator.flags.overrides import OVERRIDE_KEY, Kept, kept_anew
from evaluator.flags.saved import parts_text
from evaluator.http.messages import Code
from evaluator.wire.servicer import Missing
from evaluator.wire.sync_messages import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from controller.api.meta import Resource


class HiddenFlag(NamedTuple):
    """A flag under an override that a composition has from another set."""

    origin: str
    """The set whose override is hidden, as in FLAG_SET_KEY."""
    key: str
    by: str
    """The set whose flag is delivered."""


@dataclass(frozen=True, slots=True)
class EncodedFlagSet:
    """A flag set as it is delivered."""

    document: bytes
    """The flag set as in flagd's sync messages."""
    good: bytes
    """The set with its provenance, to hold flags of when a later one is bad."""
    digest: str
    """The digest of the flags, `sha256:<hex>`; the document contains it, too."""
    revision: str
    """Empty where the set names none."""
    flags: int
    held: tuple[str, ...] = ()
    """Keys of the flags that stay at their last good definition."""
    left_out: tuple[str, ...] = ()
    """Keys of bad flags with no good definition here; the document names them: receivers may have one."""
    hidden: tuple[HiddenFlag, ...] = ()
    """Of a composition: overrides that have no effect in it."""
    kept: Mapping[str, Kept] = field(default_factory=lambda: EMPTY)
    """What overrides that come into force keep from now on, by their names."""


@dataclass(frozen=True, slots=True)
class Undeliverable:
    """The object cannot be delivered as it is."""

    reason: str
    """`ShardsMissing`, `InvalidSpec` or `InvalidFlags`."""
    message: str

    @property
    def missing(self) -> Missing:
        """The status for subscribers while there is nothing earlier to serve."""
        code = Code.UNAVAILABLE if self.reason == "ShardsMissing" else Code.FAILED_PRECONDITION
        return Missing(code, f"{self.reason}: {self.message}"[:500])


def build(
    resource: Resource,
    shard: Callable[[str], Resource | None],
    previous: bytes | None,
    progress: Progress = NO_PROGRESS,
) -> EncodedFlagSet | Undeliverable:
    """What is delivered of `resource`; `previous` is `EncodedFlagSet.good` of what was delivered before."""
    try:
        delivery = delivery_of(resource, shard, progress, previous)
    except MissingShardsError as missing:
        return Undeliverable("ShardsMissing", str(missing))
    except InvalidSpecError as error:
        return Undeliverable("InvalidSpec", str(error))
    if not delivery.digest:
        return Undeliverable("InvalidFlags", delivery.cause)
    metadata = MappingProxyType({**delivery.flag_set.metadata, DIGEST_KEY: delivery.digest})
    flag_set = replace(delivery.flag_set, metadata=metadata)
    return EncodedFlagSet(
        document=_name_left_out(encode(flag_set), delivery.missing),
        good=canonical(delivery.desired, provenance=True),
        digest=delivery.digest,
        revision=str(flag_set.metadata.get(REVISION_KEY, "")),
        flags=len(flag_set.flags),
        held=delivery.held,
        left_out=delivery.missing,
        kept=kept_anew(delivery.flag_set, progress.overrides),
    )


def _name_left_out(document: bytes, left_out: tuple[str, ...]) -> bytes:
    """The document with the flags that are left out named in its own metadata alone."""
    if not left_out:
        return document
    whole = orjson.loads(document)
    whole["metadata"][LEFT_OUT_KEY] = orjson.dumps(left_out).decode()
    return orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)


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
