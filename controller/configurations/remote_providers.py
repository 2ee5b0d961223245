"""Follows the remote providers of FeatureFlagConfigurations: fetches their flags, keeps the last good ones in
FlagShards, and says in the status which are in force.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagshard, flagsource
from controller.api.kinds import SECRET, status_of
from controller.api.objects.conditions import READY
from controller.api.objects.fields import read
from controller.api.objects.meta import REQUESTS, ObjectKey, timestamp, version_of
from controller.api.openfeature.featureflagconfiguration import ConfigurationStatus
from controller.api.remote_provider import FIELD, ProviderStatus, RemoteFlagProvider
from controller.configurations.remote_set import judge_answer
from controller.delivery.remote_answers import RemoteRequest, place_of
from controller.runtime.process.foreign_tasks import TRUSTED, Task
from controller.runtime.reconciling.setbacks import Setback, Stalled, stall_on_invalid_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from controller.api.objects.meta import Resource
    from controller.configurations.remote_shards import RemoteShards
    from controller.delivery.remote_answers import RemoteAnswer, RemoteSource
    from controller.runtime.objects.cache import Cache
    from controller.runtime.process.foreign_tasks import ForeignTasks

_AGAIN: Final = 60.0
"""Seconds until a spec that cannot be read is tried again."""


@dataclass(frozen=True, slots=True)
class RemoteState:
    """What is in force of an object's provider."""

    entry: ProviderStatus | None = None
    """None: the object has no provider, or one that cannot be read and has no flags yet."""
    setback: Setback | None = None
    """Why the newest flags of the provider are not in force, whole."""
    requeue_after: float | None = None
    """Seconds until the provider is to be asked, or a shard to be removed."""
    followed: bool = False
    """Whether the object has a provider."""


NO_PROVIDER: Final = RemoteState()


@dataclass(frozen=True, slots=True)
class _Asked:
    """The last request for an object."""

    trigger: tuple[Any, ...]
    at: datetime
    due: datetime
    entry: ProviderStatus | None
    setback: Setback | None


@dataclass(frozen=True, slots=True)
class RemoteProviders:
    """Asks each provider at its interval, and when anything that it depends on changes."""

    objects: Cache
    sources: Mapping[str, RemoteSource]
    """By the type of a provider."""
    shards: RemoteShards
    tasks: ForeignTasks = TRUSTED
    """Read what providers send."""
    _asked: dict[ObjectKey, _Asked] = field(default_factory=dict)

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known of a deleted object."""
        self._asked.pop(key, None)

    async def follow(self, resource: Resource, now: datetime) -> RemoteState:
        """Ask the provider if it is time, and write what is new. Never raises a Setback."""
        given = resource.spec.get(FIELD)
        if given is None:
            self.forget(resource.key)
            return RemoteState(requeue_after=await self._sweep(resource, None, None, now))
        try:
            with stall_on_invalid_text():
                spec = read(RemoteFlagProvider, _fields(given), where=f"spec.{FIELD}")
        except Stalled as stalled:
            return RemoteState(self._entry(resource), stalled, _AGAIN, followed=True)
        trigger = self._trigger(resource, spec)
        asked = self._asked.get(resource.key)
        lost = not self._is_whole(resource, self._entry(resource))
        if asked is None or asked.trigger != trigger or lost or not asked.at <= now < asked.due:
            asked = await self._ask(resource, spec, trigger, now)
            self._asked[resource.key] = asked
        left = (asked.due - now).total_seconds()
        swept = await self._sweep(resource, asked.entry, spec.service_account_name, now)
        again = min(seconds for seconds in (left, swept) if seconds is not None)
        return RemoteState(asked.entry, asked.setback, again, followed=True)

    async def _ask(
        self, resource: Resource, spec: RemoteFlagProvider, trigger: tuple[Any, ...], now: datetime
    ) -> _Asked:
        before = self._entry(resource)
        setback: Setback | None = None
        try:
            request = RemoteRequest(resource, spec, self._known_version(resource, spec, before, trigger))
            answer = await self.sources[spec.type].fetch(request)
            if answer is None and before is not None:
                entry: ProviderStatus | None = _confirm(before)
            elif answer is not None:
                entry, setback = await self._take(resource, spec, before, answer, now)
            else:
                entry = None
        except Setback as raised:
            setback = raised
            whole = before if self._is_whole(resource, before) else None
            entry = _mark_stale(whole, spec, setback, now)
        return _Asked(trigger, now, now + timedelta(seconds=spec.interval), entry, setback)

    async def _take(
        self,
        resource: Resource,
        spec: RemoteFlagProvider,
        before: ProviderStatus | None,
        answer: RemoteAnswer,
        now: datetime,
    ) -> tuple[ProviderStatus, Setback | None]:
        """Write what was sent. Raises Setback."""
        same = before is not None and before.observed == _spec_digest(spec)
        # Of another provider, no flag is held, and no version is compared.
        known = before if same else None
        part = flagshard.finder(self.objects.get, resource.namespace)
        parts = {shard.name: part(shard.name) for shard in (() if known is None else known.shards)}
        task = Task(resource.namespace, f"reading the flags of {place_of(spec)}", "select a smaller set")
        judged = await self.tasks.run(task, judge_answer, resource, answer, known, parts, large=answer.large)
        shards = await self.shards.write(resource, judged.shards, spec.service_account_name)
        unchanged = (
            before is not None and same and before.version == judged.version and before.shards == shards
        )
        modified = None if answer.modified is None else timestamp(answer.modified)
        if before is not None and unchanged:
            modified = max(filter(None, (modified, before.last_modified)), default=None)
        entry = ProviderStatus(
            name=place_of(spec),
            type=spec.type,
            version=judged.version,
            last_update_time=before.last_update_time if before is not None and unchanged else timestamp(now),
            last_modified=modified,
            flags=judged.flags,
            message=None if judged.partly is None else judged.partly.message,
            observed=_spec_digest(spec),
            shards=shards,
        )
        return entry, judged.partly

    def _entry(self, resource: Resource) -> ProviderStatus | None:
        """Return what is in force, by the last request or by the status, which an earlier process wrote."""
        asked = self._asked.get(resource.key)
        if asked is not None and asked.trigger[0] == resource.uid:
            return asked.entry
        return next(iter(ConfigurationStatus.of(resource).providers or ()), None)

    def _is_whole(self, resource: Resource, entry: ProviderStatus | None) -> bool:
        return entry is None or self.shards.has_all(resource.namespace, entry.shards)

    def _known_version(
        self,
        resource: Resource,
        spec: RemoteFlagProvider,
        before: ProviderStatus | None,
        trigger: tuple[Any, ...],
    ) -> str:
        """Return the version that need not be sent again, empty for none."""
        if before is None or before.observed != _spec_digest(spec) or not before.shards:
            return ""
        asked = self._asked.get(resource.key)
        # What is bad may be good now, and one revision of a source may have another artifact.
        same = asked is not None and asked.trigger == trigger
        if before.message or (spec.type == "flagSource" and not same):
            return ""
        return (before.version or "") if self._is_whole(resource, before) else ""

    def _trigger(self, resource: Resource, spec: RemoteFlagProvider) -> tuple[Any, ...]:
        """Return what asks for the flags anew when it changes."""
        requests = tuple(resource.annotations.get(name) for name in REQUESTS)
        secret = source = None
        if spec.credentials is not None:
            key = ObjectKey(SECRET.kind, resource.namespace, spec.credentials.secret)
            secret = version_of(self.objects.get(key))
        if spec.flag_source is not None:
            flags = self.objects.get(ObjectKey(flagsource.KIND, resource.namespace, spec.flag_source))
            status = status_of(flags)
            source = (flags is None, status.content, status.condition(READY).reason)
        return (resource.uid, spec, requests, secret, source)

    async def _sweep(
        self, resource: Resource, entry: ProviderStatus | None, account: str | None, now: datetime
    ) -> float | None:
        """Remove shards that are not in force. One that cannot be removed is tried again later."""
        named = {shard.name for shard in (() if entry is None else entry.shards)}
        try:
            return await self.shards.sweep(resource, named, account, now)
        except Setback:
            return _AGAIN


def _fields(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, dict) else {}


def _spec_digest(spec: RemoteFlagProvider) -> str:
    """Return a digest of what decides which flags a provider has."""
    fields = (spec.type, spec.url, spec.flag_source, spec.paths, spec.selector)
    return f"sha256:{hashlib.sha256(repr(fields).encode()).hexdigest()}"


def _confirm(entry: ProviderStatus) -> ProviderStatus:
    return entry.model_copy(update={"stale_since": None, "message": None})


def _mark_stale(
    entry: ProviderStatus | None, spec: RemoteFlagProvider, setback: Setback, now: datetime
) -> ProviderStatus:
    """Return what stays in force after a setback: nothing, where there never was anything."""
    if entry is None:
        return ProviderStatus(name=place_of(spec), type=spec.type, flags=0, message=setback.message)
    since = entry.stale_since or (timestamp(now) if entry.shards else None)
    return entry.model_copy(update={"stale_since": since, "message": setback.message})
