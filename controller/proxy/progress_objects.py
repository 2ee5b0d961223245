"""The FlagOverrides, the moments at which they end, and the FlagRollouts: the proxy applies them without the
controller.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagoverride, flagrollout
from controller.api.fields import InvalidSpecError
from controller.api.meta import NOTHING, ObjectKey, Resource
from controller.delivery.overrides import order_of_override, override_of, set_name, with_kept
from controller.delivery.rollouts import ROLLOUTS_BY_SHARD, PromotedSets, order_of, progress_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from controller.runtime.cache import Cache, Change
    from evaluator.flags.accept import Progress
    from evaluator.flags.overrides import Kept

_log = logging.getLogger(__name__)

_CANDIDATE: Final = (
    "digest", "flags", "bucketing", "phase", "step", "stepText", "share", "audiences", "withheld", "salt",
)  # fmt: skip
"""Fields of a candidate that decide what is delivered."""
LONGEST_WAIT: Final = 60.0
"""Seconds after which the clock is read again: it may have been set."""


class ProgressObjects:
    """Follows FlagOverrides and FlagRollouts, and calls `changed` with the namespace and the set's name of
    each override that begins, changes or ends, and of each rollout that publishes a step. Used on the loop
    alone.
    """

    def __init__(self, clock: Callable[[], float], loop: asyncio.AbstractEventLoop, objects: Cache) -> None:
        """`clock`: Unix seconds. `objects`: each change of these kinds is to be passed to `follow`."""
        self.changed: Callable[[str, str], None] = lambda _namespace, _name: None
        self._clock = clock
        self._loop = loop
        self._objects = objects
        self._promoted = PromotedSets(objects.get)
        self._kept: dict[ObjectKey, tuple[object, Kept]] = {}
        """What each override keeps whose status does not say so: the controller may be down. With what the
        spec named when it came into force.
        """
        self._ends: dict[ObjectKey, int] = {}
        """When each override that has not ended yet ends, in Unix seconds."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """The number of overrides that have not ended."""
        return len(self._ends)

    def progress(self, target: Resource, *, delivered: bool) -> Progress:
        """The overrides in force for an object with flags, and its rollouts. Once it is `delivered`, its
        changes wait for rollouts that only its status names; before, all rollouts were listed.
        """
        now, promoted = self._clock(), self._promoted
        progress = progress_of(self._objects, target, now, promoted, wait_for_unknown=delivered)
        kept = {}
        for override in progress.overrides:
            key = ObjectKey(flagoverride.KIND, target.namespace, override.name)
            if key in self._kept and self._kept[key][0] == self._subject_of(key):
                kept[override.name] = self._kept[key][1]
        return with_kept(progress, kept)

    def keep(self, namespace: str, kept: Mapping[str, Kept]) -> None:
        """Note what overrides keep that came into force, by their names."""
        for name, value in kept.items():
            key = ObjectKey(flagoverride.KIND, namespace, name)
            if key in self._ends:
                self._kept[key] = self._subject_of(key), value

    def _subject_of(self, key: ObjectKey) -> object:
        """Return what the spec of an override names; with another set, flag or variant it keeps nothing."""
        spec = NOTHING if (override := self._objects.get(key)) is None else override.spec
        return tuple(spec.get(field) for field in ("flagSetRef", "flag", "variant"))

    def forget_target(self, target: ObjectKey) -> None:
        """Drop the promoted definitions of an object that is not delivered any more."""
        self._promoted.forget(target)

    def follow(self, change: Change) -> None:
        """Take in a change of an override or a rollout."""
        before, after = change.before, change.after
        if before is not None and after is not None and _content(before) == _content(after):
            return
        key = change.latest.key
        if after is None:
            self._kept.pop(key, None)
            if self._ends.pop(key, None) is not None:
                self._arm()
        elif key.kind == flagoverride.KIND:
            self._note_end(after)
        for name in {set_name(resource) for resource in (before, after) if resource is not None}:
            self.changed(key.namespace, name)

    def on_shard(self, namespace: str, name: str) -> None:
        """Report the rollouts whose promoted definitions are in a FlagShard that was created or deleted."""
        for rollout in self._objects.find(ROLLOUTS_BY_SHARD, namespace, name):
            self.changed(namespace, set_name(rollout))

    def close(self) -> None:
        """End nothing more."""
        self._ends.clear()
        self._arm()

    def _note_end(self, resource: Resource) -> None:
        self._ends.pop(resource.key, None)
        try:
            expires = override_of(resource).expires
        except InvalidSpecError as error:
            _log.warning("a FlagOverride is not applied: %s", error, extra={"object": str(resource.key)})
            expires = None
        if expires is not None and expires > self._clock():
            self._ends[resource.key] = expires
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ends:
            wait = max(0.0, min(self._ends.values()) - self._clock())
            self._timer = self._loop.call_later(min(wait, LONGEST_WAIT), self._end)

    def _end(self) -> None:
        now = self._clock()
        ended = [key for key, expires in self._ends.items() if expires <= now]
        for key in ended:
            del self._ends[key]
            self._kept.pop(key, None)
        self._timer = None
        self._arm()
        for key in ended:
            if (resource := self._objects.get(key)) is not None:
                self.changed(resource.namespace, set_name(resource))


def _content(resource: Resource) -> object:
    if resource.key.kind == flagrollout.KIND:
        return order_of(resource)
    return order_of_override(resource)


def rollout(body: Mapping[str, Any], _known: Resource | None) -> Resource:
    """Return a FlagRollout with only the fields that decide what is delivered."""
    spec, status = ({} if body.get(part) is None else body[part] for part in ("spec", "status"))
    candidates = status.get("candidates")
    listed = candidates if isinstance(candidates, list) else ()
    return Resource.of(
        {
            **{name: body.get(name) for name in ("apiVersion", "metadata")},
            "kind": flagrollout.KIND,
            "spec": {name: spec[name] for name in ("flagSetRef", "flags") if name in spec},
            "status": {"promoted": status.get("promoted"), "candidates": [*map(_candidate, listed)]},
        }
    )


def _candidate(candidate: object) -> object:
    if not isinstance(candidate, Mapping):
        return candidate
    return {name: candidate[name] for name in _CANDIDATE if name in candidate}
