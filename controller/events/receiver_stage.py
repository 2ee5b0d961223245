"""Declares the changes that wake the reconciler of FlagReceiver, and the indexes for pushes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from controller.api import flagreceiver, flagsource
from controller.api.flagreceiver import FlagReceiverStatus
from controller.api.kinds import FLAG_RECEIVER, SECRET
from controller.api.meta import ObjectKey, secret_names, version_of
from controller.delivery.object_bounds import RECEIVERS
from controller.events.pushes import places_of
from controller.runtime.cache import Cache, Change, Index
from controller.runtime.watches import Reconciles, Watch, keys_listed_by

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.meta import Resource


BY_SECRET: Final = Index(
    "FlagReceiver by Secret", frozenset({flagreceiver.KIND}), lambda resource: secret_names(resource.spec)
)


BY_REPOSITORY: Final = Index(
    "FlagSource by repository", frozenset({flagsource.KIND}), lambda source: places_of(source.spec)
)


def path_digest(path: str) -> str:
    """Return the key of a path in `BY_PATH`: a digest, so that the time of a look-up discloses no path."""
    return hashlib.sha256(path.encode(errors="replace")).hexdigest()


BY_PATH: Final = Index(
    "FlagReceiver by path",
    frozenset({flagreceiver.KIND}),
    lambda resource: (path_digest(FlagReceiverStatus.of(resource).webhook_path or ""),),
    everywhere=True,
)


def receivers_beside(cache: Cache, resource: Resource) -> list[Resource]:
    """Return the FlagReceivers of a namespace, without deleted ones, in no order."""
    listed = cache.of_kind(flagreceiver.KIND, resource.namespace)
    return [receiver for receiver in listed if not receiver.deleting]


def _edge(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    return RECEIVERS.edge(receivers_beside(cache, change.latest))


FLAG_RECEIVERS: Final = Reconciles(
    FLAG_RECEIVER,
    wakes=(
        Watch(frozenset({SECRET.kind}), changed=version_of, keys=keys_listed_by(BY_SECRET)),
        Watch(
            frozenset({flagreceiver.KIND}),
            changed=lambda receiver: receiver and (receiver.uid, receiver.deleting),
            keys=_edge,
        ),
    ),
    indexes=(BY_SECRET, BY_REPOSITORY, BY_PATH),
)
