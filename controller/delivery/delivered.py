"""What evaluators are sent of an object: its flags, also from FlagShards and remote providers, and their
digest. Pure.

Flags of a remote provider are merged whole, by their keys, as an evaluator merges those of several sources: a
remote flag keeps the shared rules and the metadata of its set, so that neither side changes what a flag of
the other means.

The proxy, the status of FeatureFlagConfiguration and, through that status, `flagstaff wait` go by one
function, so that the digest that is served and the digest that is asked for are of the same thing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api.featureflagconfiguration import LISTS, MissingShardsError, flag_document, union_of_shards
from controller.api.remote_provider import RemoteFlagProvider, provider_entries, provider_spec
from evaluator.flags.accept import NO_PROGRESS, Progress, Refused, accept, effective
from evaluator.flags.canonical import digest
from evaluator.flags.catalog import FLAG_SET_ID, fold
from evaluator.flags.known_operators import DEPTH, is_scalars
from evaluator.flags.layer import EVALUATORS
from evaluator.flags.merge import Parsed, parse
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
    Scalar,
)
from evaluator.flags.overrides import end_expired
from evaluator.flags.problems import Problem, Severity
from evaluator.flags.rollouts import without_rollouts
from evaluator.flags.text import Bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from datetime import datetime

    from controller.api.meta import ObjectKey, Resource


LARGEST: Final = 1_000_000
"""Bytes of a flagSpec in one object: etcd takes 1.5 MiB a request, and the object has more to it."""
SHARD_BYTES: Final = 500_000
"""No shard is larger, but for a flag that is."""
_LONG: Final = 1_000
"""Values of a list of a shared rule that may be in shards of its own."""
SHARD_BYTES_LEAST: Final = 200_000
"""No shard but the first and the last is smaller."""
_EVERY: Final = 32
"""A shard may end at one of this many flags or values, by a hash of the key or value."""


class TooLargeError(Exception):
    """The set does not fit into objects of the wanted kind; the text says what to do."""


def parts(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What belongs to all flags, which changes with every revision; long lists of shared rules, in parts;
    then the flags, in parts. Raises TooLargeError.

    A flag's key, or a list's value, decides where a part ends, not the size of what comes before it: so one
    more or less changes one part, not all that follow.
    """
    shared = {name: value for name, value in document.items() if name != "flags"}
    lists: list[dict[str, Any]] = []
    if len(_text(shared)) > SHARD_BYTES:
        shared = {**shared, EVALUATORS: _without_lists(shared.get(EVALUATORS, {}), (), lists)}
    if (size := len(_text(shared))) > LARGEST:
        raise TooLargeError(
            f"$evaluators and metadata take {size} bytes without long lists, of {LARGEST}; "
            "make several FlagSets of it"
        )
    if shared:
        yield {"flags": {}, **shared}
    for one in lists:
        for values in _divide(one["values"]):
            yield {"flags": {}, LISTS: [{"path": one["path"], "values": values}]}
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


def _without_lists(rule: Any, path: tuple[str | int, ...], lists: list[dict[str, Any]]) -> Any:
    """Return a copy of the rule in which long lists of scalars are empty, and add these to `lists`."""
    if isinstance(rule, dict):
        return {key: _without_lists(part, (*path, key), lists) for key, part in rule.items()}
    if not isinstance(rule, list):
        return rule
    if len(rule) > _LONG and is_scalars(rule):
        lists.append({"path": [*path], "values": rule})
        return []
    return [_without_lists(part, (*path, at), lists) for at, part in enumerate(rule)]


def _divide(values: list[Any]) -> Iterator[list[Any]]:
    part: list[Any] = []
    size = 0
    for value in values:
        text = json.dumps(value, ensure_ascii=False)
        weight = len(text.encode()) + 1
        if part and (size + weight > SHARD_BYTES or (size >= SHARD_BYTES_LEAST and _may_end_shard(text))):
            yield part
            part, size = [], 0
        part.append(value)
        size += weight
    yield part


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


INVALID: Final = "InvalidFlags"
"""The reason for an answer that holds no flags that can be served."""


@dataclass(frozen=True, slots=True)
class RemoteRequest:
    """What an object asks of its provider."""

    resource: Resource
    spec: RemoteFlagProvider
    version: str = ""
    """The version in force, which need not be sent again; empty: send what there is."""

    @property
    def key(self) -> ObjectKey:
        """Return which object asks."""
        return self.resource.key

    @property
    def account(self) -> str | None:
        """Return the service account that Secrets are read as; None: that of the installation."""
        return self.spec.service_account_name


@dataclass(frozen=True, slots=True)
class RemoteAnswer:
    """What a provider sent; a helper process is given it as it is."""

    read: Callable[[], Parsed]
    """Reads the flags: a function of a module, with its arguments. Takes long. Raises Setback."""
    version: str = ""
    """The version as the provider names it, in one line; empty: it names none."""
    version_key: str = "version"
    """The metadata of the set that names the version where the provider does not."""
    modified: datetime | None = None
    """When it was changed, as far as the provider says; aware."""
    large: bool = False
    """Whether the flags may be many times larger than what was sent."""


class RemoteSource(Protocol):
    """A type of provider."""

    async def fetch(self, request: RemoteRequest) -> RemoteAnswer | None:
        """Return what the provider has, bounded and not judged yet; None: `request.version` still. Raises
        Setback.
        """


def place_of(spec: RemoteFlagProvider) -> str:
    """Return the name of a provider, without the query of a URL, which may be secret."""
    if spec.type == "flagSource":
        return f"FlagSource/{spec.flag_source}"
    place = (spec.url or "").partition("?")[0]
    return f"{place} {spec.selector}" if spec.type == "grpc" and spec.selector else place


_REMOTE_FILE: Final = "remote.json"
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
    return parse(content, file=_REMOTE_FILE, bounds=bounds).flag_set


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


_OWN_FILE: Final = "flags.json"
_BOUNDS: Final = Bounds(document_bytes=256 * 1024 * 1024, flags=1_000_000, nodes=50_000_000)
"""Limits for 256 shards; the API server limits a single object."""
KEPT_BOUNDS: Final = replace(_BOUNDS, depth=2 * DEPTH + 16)
"""Held rules are expanded, hence deeper than any that a person writes."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What one object delivers."""

    flag_set: FlagSet
    """What evaluators read: the desired flags and those of a remote provider, with progress; where it is
    refused, what could be read of the object's own.
    """
    desired: FlagSet
    """The object's own flags without rollouts in progress: the `previous` of its next content."""
    composed: FlagSet
    """The desired flags and those of a remote provider, without progress."""
    digest: str
    """The digest of `flag_set`, `sha256:<hex>`; empty for a refused one, as the wanted content is unknown."""
    problems: tuple[Problem, ...]
    """Errors and warnings, by place; a JSON path is all that is known of a place."""
    held: tuple[str, ...] = ()
    """Keys of the flags that stay at their last good definition, sorted."""
    missing: tuple[str, ...] = ()
    """Keys of bad flags that have no last good definition and so are not delivered, sorted."""
    notes: tuple[Problem, ...] = ()
    """Remarks that are no failures, by place."""
    local_digest: str = ""
    """The digest of the object's own flags, without those of a remote provider and without progress."""

    @property
    def cause(self) -> str:
        """Why it is refused: the first error, with its place."""
        return Refused(self.problems).cause


def delivery_of(
    resource: Resource,
    shard: Callable[[str], Resource | None],
    progress: Progress = NO_PROGRESS,
    previous: bytes | None = None,
) -> Delivered:
    """What `resource` delivers, with the flags of its remote provider by its status. `shard` finds a
    FlagShard beside it by name. `previous` is the last `desired`, or what was served of it, in its canonical
    form with provenance: flags with an error are held at their definitions in it. Takes long for a large set.

    Raises InvalidSpecError where the object has no flags, MissingShardsError where a part of it, or promoted
    definitions, are not there.
    """
    for name in progress.missing:
        raise MissingShardsError(f"FlagShard {name} with promoted definitions is not there")
    document = flag_document(resource, shard)
    remote = remote_flags(resource, shard, KEPT_BOUNDS)
    parsed = parse(document.content, file=_OWN_FILE, bounds=_BOUNDS)
    before = None
    if parsed.errors and previous is not None:
        # What is kept of a set may be what was served, with progress, which is never last good.
        kept = end_expired(parse(previous, file=_OWN_FILE, bounds=KEPT_BOUNDS).flag_set, None)
        before = without_rollouts(kept, progress.rollouts)
    judged = accept(parsed, before)
    historic = (Problem("", 0, 0, Severity.WARNING, "historic", warning) for warning in document.warnings)
    problems = (*judged.problems, *historic)
    if isinstance(judged, Refused):
        readable = parsed.flag_set
        return Delivered(readable, readable, readable, "", problems, notes=parsed.notes)
    whole = judged.desired if remote is None else compose(judged.desired, remote, judged.missing)
    flag_set = effective(whole, progress)
    content = judged.digest if flag_set is judged.desired else digest(flag_set)
    replaced = remote.flags if remote is not None and remote.overrides else {}
    held, missing = (
        tuple(key for key in keys if key not in replaced) for keys in (judged.held, judged.missing)
    )
    return Delivered(
        flag_set, judged.desired, whole, content, problems, held, missing, parsed.notes, judged.digest
    )
