"""Merges the flags of a remote provider, which stand in FlagShards, with an object's own. Pure.

Flags are merged whole, by their keys, as an evaluator merges those of several sources: a remote flag keeps
the shared rules and the metadata of its set, so that neither side changes what a flag of the other means.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from controller.api.openfeature.featureflagconfiguration import union_of_shards
from controller.api.remote_provider import provider_entries, provider_spec
from evaluator.flags.layers.catalog import FLAG_SET_ID, fold
from evaluator.flags.layers.merge import parse
from evaluator.flags.model import (
    AUTHOR_KEY,
    BUCKETING_KEY,
    COMMITTED_AT_KEY,
    DIGEST_KEY,
    PROVIDER_KEY,
    PROVIDER_VERSION_KEY,
    REVISION_KEY,
    STALE_KEY,
    STALE_SINCE_KEY,
    VERIFIED_BY_KEY,
    Bucketing,
    Flag,
    FlagSet,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from controller.api.objects.meta import Resource
    from evaluator.flags.model import Scalar
    from evaluator.flags.syntax.text import Bounds

_FILE: Final = "remote.json"
_OF_THE_SET: Final = frozenset({FLAG_SET_ID, DIGEST_KEY})
"""Metadata of the provider's set that does not hold for a set with other flags."""
_AUTHORSHIP: Final = (AUTHOR_KEY, COMMITTED_AT_KEY, VERIFIED_BY_KEY)


@dataclass(frozen=True, slots=True)
class RemoteFlags:
    """The flags of a remote provider."""

    flags: Mapping[str, Flag]
    """By key; each stands alone, and its metadata says where it is from."""
    overrides: bool
    """Whether a remote flag wins over one of the object's own."""


def remote_flags(
    resource: Resource, shard: Callable[[str], Resource | None], bounds: Bounds
) -> RemoteFlags | None:
    """Return the flags of the object's provider, by its status; None where there are none. `shard` finds a
    FlagShard beside it by name. Takes long for a large set.

    Raises MissingShardsError where a part is not there, InvalidSpecError where one is malformed.
    """
    spec = provider_spec(resource)
    entries = () if spec is None else provider_entries(resource.status)
    flags: dict[str, Flag] = {}
    for entry in entries:
        if isinstance(entry.get("shards"), list) and entry["shards"]:
            flag_set = read_shards(entry, shard, bounds)
            flags |= _with_provenance(flag_set, entry)
    if spec is None or not flags:
        return None
    return RemoteFlags(flags, overrides=spec.get("strategy") == "override")


def read_shards(
    entry: Mapping[str, object], shard: Callable[[str], Resource | None], bounds: Bounds
) -> FlagSet:
    """Return the flag set of an entry of `status.providers`. Raises as `remote_flags` does."""
    content = json.dumps(union_of_shards(entry.get("shards"), shard), ensure_ascii=False).encode()
    return parse(content, file=_FILE, bounds=bounds).flag_set


def compose(local: FlagSet, remote: RemoteFlags, missing: Collection[str] = ()) -> FlagSet:
    """Return the set of the object's own flags and the remote ones. `missing`: keys of own flags that are bad
    and have no good definition; only a provider that overrides defines them.
    """
    pinned = {BUCKETING_KEY: Bucketing.V2.value} if BUCKETING_KEY in local.metadata else {}
    # The authorship of the object's own set, which a remote flag would inherit, is not the provider's.
    unknown = {key: "" for key in _AUTHORSHIP if key in local.metadata}
    defaults: dict[str, Scalar] = {**pinned, **unknown}
    filled = {
        key: flag if not defaults else replace(flag, metadata=MappingProxyType({**defaults, **flag.metadata}))
        for key, flag in remote.flags.items()
        if remote.overrides or (key not in local.flags and key not in missing)
    }
    others = tuple(flag for flag in local.others if flag.key not in filled)
    return replace(local, flags=MappingProxyType({**local.flags, **filled}), others=others)


def _with_provenance(flag_set: FlagSet, entry: Mapping[str, object]) -> dict[str, Flag]:
    version = str(entry.get("version") or "")
    marks: dict[str, Scalar] = {PROVIDER_KEY: str(entry.get("name") or ""), PROVIDER_VERSION_KEY: version}
    stale: dict[str, Scalar] = {}
    if entry.get("staleSince"):
        stale = {STALE_KEY: True, STALE_SINCE_KEY: str(entry["staleSince"])}
    flags = {}
    for key, flag in fold(flag_set).items():
        own = {name: value for name, value in flag.metadata.items() if name not in _OF_THE_SET}
        metadata = {REVISION_KEY: version, **stale, **own, **marks}
        # Without what `fold` has applied already, and what the canonical form kept of another content.
        flags[key] = Flag(
            flag.key,
            flag.state,
            flag.variants,
            flag.default_variant,
            flag.targeting,
            MappingProxyType(metadata),
        )
    return flags
