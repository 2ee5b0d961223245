"""The changes that wake the reconcilers of FlagOverride and FlagRollout, and the indexes by which these
find objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import (
    featureflagconfiguration,
    flagoverride,
    flagreceipt,
    flagrollout,
    flagset,
    flagshard,
)
from controller.api.flagreceipt import FlagReceiptStatus
from controller.api.flagset import delivers_elsewhere, proven_writer
from controller.api.kinds import FLAG_OVERRIDE, FLAG_ROLLOUT
from controller.api.meta import ObjectKey, Resource
from controller.api.remote_provider import entries_in_force
from controller.api.rollout_status import rollout_entries
from controller.delivery.object_bounds import ROLLOUTS as BOUND
from controller.delivery.overrides import (
    BY_FLAG,
    BY_FLAG_SET,
    BY_WRITER,
    FLAG_KINDS,
    HIDDEN_IN,
    counted_names_of,
    names_of,
    next_of_set,
    rivals_of,
    set_name,
    targets_of,
)
from controller.delivery.rollouts import PROGRESS_INDEXES, ROLLOUTS_BY_FLAG_SET, order_of, rollouts_naming
from controller.runtime.cache import Cache, Change, Index
from controller.runtime.watches import Reconciles, Watch, keys_listed_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def _rollout_keys(shard: Resource) -> Iterator[str]:
    kind = flagrollout.KIND
    yield from (str(owner.get("uid")) for owner in shard.owners if owner.get("kind") == kind)


BY_PART: Final = Index(
    "FeatureFlagConfiguration by its shard",
    frozenset({featureflagconfiguration.KIND}),
    lambda resource: flagshard.names(resource.spec),
)
SHARDS_BY_ROLLOUT: Final = Index("FlagShard by FlagRollout", frozenset({flagshard.KIND}), _rollout_keys)
"""By the uid of the FlagRollout: a later one of the same name has other shards."""


def _content(target: Resource | None) -> object:
    return target and (target.uid, target.generation, proven_writer(target), entries_in_force(target.status))


def _uid(shard: Resource | None) -> object:
    return shard and shard.uid


def _order(override: Resource | None) -> object:
    return override and (override.uid, override.generation, override.deleting)


def _keys_of(cache: Cache, index: Index, targets: Iterable[Resource | None]) -> Iterator[ObjectKey]:
    """Yield the keys of an index of those that name one of the objects with flags."""
    places = {
        (target.namespace, name)
        for target in filter(None, targets)
        for name in counted_names_of(cache, target)
    }
    for place in places:
        yield from (resource.key for resource in cache.find(index, *place))


def _overrides(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    return _keys_of(cache, BY_FLAG_SET, (change.before, change.after))


def _overrides_of_shard(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    shard = change.latest
    return _keys_of(cache, BY_FLAG_SET, cache.find(BY_PART, shard.namespace, shard.name))


def _rivals(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    for override in filter(None, (change.before, change.after)):
        yield from rivals_of(cache, override)
    if change.before is not None and (change.after is None or change.after.deleting):
        yield from next_of_set(cache, change.before)


def _overrides_of_rollout(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    for rollout in filter(None, (change.before, change.after)):
        yield from _keys_of(cache, BY_FLAG_SET, targets_of(cache, rollout))


def _hidden_flags(receipt: Resource | None) -> object:
    return receipt and FlagReceiptStatus.of(receipt).hidden


def _overrides_of_receipt(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    """Yield the overrides of the flags that other sets hide, or did, in evaluators of a proxy."""
    configuration = flagreceipt.pair_of(change.latest)[0]
    target = cache.get(ObjectKey(featureflagconfiguration.KIND, change.latest.namespace, configuration))
    receipts = filter(None, (change.before, change.after))
    flags = {hidden.flag for receipt in receipts for hidden in FlagReceiptStatus.of(receipt).hidden}
    for name in names_of(target) if target is not None else ():
        for flag in flags:
            listed = cache.find(BY_FLAG, change.latest.namespace, f"{name}/{flag}")
            yield from (override.key for override in listed)


def _delivery_parts(target: Resource | None) -> object:
    """Return what the delivery of an object depends on besides objects that name it."""
    if target is None:
        return None
    return _content(target), rollout_entries(target.status), target.annotations.get(flagrollout.PROMOTE)


def _name(flag_set: Resource) -> str:
    return flag_set.name


def _place_of(index: Index) -> Watch:
    """Wakes those that name a FlagSet once it writes to another cluster, or to its own again."""
    return Watch(frozenset({flagset.KIND}), changed=delivers_elsewhere, keys=keys_listed_by(index, _name))


FLAG_OVERRIDES: Final = Reconciles(
    FLAG_OVERRIDE,
    wakes=(
        Watch(FLAG_KINDS, changed=_delivery_parts, keys=_overrides),
        Watch(frozenset({flagshard.KIND}), changed=_uid, keys=_overrides_of_shard),
        Watch(frozenset({flagoverride.KIND}), changed=_order, keys=_rivals),
        Watch(frozenset({flagrollout.KIND}), changed=order_of, keys=_overrides_of_rollout),
        Watch(frozenset({flagreceipt.KIND}), changed=_hidden_flags, keys=_overrides_of_receipt),
        _place_of(BY_FLAG_SET),
    ),
    indexes=(*PROGRESS_INDEXES, BY_FLAG, BY_PART, HIDDEN_IN),
)


def _delivery(target: Resource | None) -> object:
    """Return what a rollout observes of the object with its flags: the flags, and who serves which step."""
    if target is None:
        return None
    status = target.status
    served = tuple(str(status.get(name)) for name in ("rollouts", "served", "total"))
    return _content(target), served


def _rollouts_of_set(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    return _keys_of(cache, ROLLOUTS_BY_FLAG_SET, (change.before, change.after))


def _rollouts_of_shard(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    """Yield the rollouts whose flags a shard has: as a part of the set, or as promoted definitions."""
    shard = change.latest
    for owner in shard.owners:
        if owner.get("kind") == flagrollout.KIND:
            yield ObjectKey(flagrollout.KIND, shard.namespace, str(owner.get("name")))
    yield from _keys_of(cache, ROLLOUTS_BY_FLAG_SET, cache.find(BY_PART, shard.namespace, shard.name))


def _rollouts_of_override(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    """Yield the rollouts of the flags that an override is about: it interrupts them."""
    for override in filter(None, (change.before, change.after)):
        yield from _keys_of(cache, ROLLOUTS_BY_FLAG_SET, targets_of(cache, override))


def _requests(rollout: Resource | None) -> object:
    """Return the requests that people make by annotations."""
    return rollout and tuple(rollout.annotations.get(name) for name in _ASKED_BY)


def _itself(_: Cache, change: Change) -> Iterator[ObjectKey]:
    if change.after is not None:
        yield change.after.key


def _rollout_order(rollout: Resource | None) -> object:
    """Return the part of a rollout that other rollouts depend on."""
    return _order(rollout), order_of(rollout)


def _rival_rollouts(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    """Yield the other rollouts of a set that one names, or did: they may wait for its flags or its place."""
    for rollout in filter(None, (change.before, change.after)):
        names = {set_name(rollout)}.union(*map(names_of, targets_of(cache, rollout)))
        for name in names:
            group = rollouts_naming(cache, rollout.namespace, name)
            keys = {*(rival.key for rival in BOUND.oldest(group)), *BOUND.edge(group)}
            yield from keys - {rollout.key}


_ASKED_BY: Final = (
    flagrollout.APPROVE, flagrollout.PROMOTE, flagrollout.ABORT, flagrollout.RESUME, flagrollout.RETRY,
    flagrollout.PAUSE,
)  # fmt: skip
_ROLLOUT: Final = frozenset({flagrollout.KIND})
ROLLOUTS: Final = Reconciles(
    FLAG_ROLLOUT,
    wakes=(
        Watch(FLAG_KINDS, changed=_delivery, keys=_rollouts_of_set),
        Watch(frozenset({flagshard.KIND}), changed=_uid, keys=_rollouts_of_shard),
        Watch(frozenset({flagoverride.KIND}), changed=_order, keys=_rollouts_of_override),
        Watch(_ROLLOUT, changed=_requests, keys=_itself),
        Watch(_ROLLOUT, changed=_rollout_order, keys=_rival_rollouts),
        _place_of(ROLLOUTS_BY_FLAG_SET),
    ),
    indexes=(ROLLOUTS_BY_FLAG_SET, BY_FLAG_SET, BY_WRITER, BY_PART, SHARDS_BY_ROLLOUT),
)
