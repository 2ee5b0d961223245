"""Follows the remote providers of FeatureFlagConfigurations: fetches their flags, keeps the last good ones in
FlagShards, and says in the status which are in force.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from controller.api import featureflagconfiguration, flagshard, flagsource
from controller.api.featureflagconfiguration import ConfigurationStatus, MissingShardsError
from controller.api.fields import InvalidSpecError, read
from controller.api.flagrollout import LABEL
from controller.api.kinds import SECRET, status_of
from controller.api.meta import (
    ACCEPT_REVISION,
    API_VERSION,
    REQUESTS,
    ObjectKey,
    Resource,
    lets_through,
    version_of,
)
from controller.api.references import is_older
from controller.api.remote_provider import FIELD, ProviderShard, ProviderStatus, RemoteFlagProvider
from controller.api.status import FALSE, READY, REMOTE_FLAGS, TRUE, Condition
from controller.configurations.stage import SHARDS_BY_OWNER
from controller.delivery.delivered import (
    INVALID,
    KEPT_BOUNDS,
    LARGEST,
    RemoteAnswer,
    RemoteRequest,
    RemoteSource,
    TooLargeError,
    parts,
    place_of,
    read_shards,
    shard_of,
)
from controller.delivery.problem_text import first_problem
from controller.runtime.event import Occurrence
from controller.runtime.helpers import TRUSTED, ForeignTasks, Task
from controller.runtime.plain_text import one_line
from controller.runtime.setbacks import Failed, Setback, Stalled, stall_on_invalid_text
from controller.runtime.shards import WHOLE, Shard
from evaluator.flags.accept import Refused, accept
from evaluator.flags.canonical import canonical
from evaluator.flags.canonical import digest as digest_of
from evaluator.host.times import parse_time, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from controller.runtime.cache import Applier, Cache
    from evaluator.flags.merge import Parsed
    from evaluator.flags.model import FlagSet


OLDER: Final = "OlderVersion"
PARTLY: Final = "PartiallyFetched"
"""Some flags keep their definition from before."""
MOST_SHARDS: Final = 64
"""Most FlagShards of one provider."""
_NAMED: Final = 5
_KEY: Final = 64
_VERSION: Final = 128


@dataclass(frozen=True, slots=True)
class RemoteSet:
    """The flags of a provider, to be served."""

    version: str
    flags: int
    shards: tuple[tuple[str, dict[str, Any]], ...]
    """(name, spec) of each FlagShard."""
    partly: Setback | None = None
    """Some flags are bad; the others are as the provider has them."""


def judge_answer(
    resource: Resource,
    answer: RemoteAnswer,
    before: ProviderStatus | None,
    shards: Mapping[str, Resource | None],
) -> RemoteSet:
    """Return the set to serve after what `before` describes, whose FlagShards are `shards` by name. Takes
    long for a large set. Raises Failed (InvalidFlags, TooLarge), Stalled (OlderVersion).
    """
    parsed, last = answer.read(), _last_good(before, shards)
    judged = accept(parsed, last)
    if isinstance(judged, Refused):
        raise Failed(INVALID, f"{first_problem(judged.problems)}; correct it at the provider")
    flag_set = judged.flag_set
    if not flag_set.flags and last is not None and last.flags:
        todo = "to remove these flags, remove remoteFlagProvider"
        raise Failed(INVALID, f"the provider has no flags any more, after {len(last.flags)}; {todo}")
    if older := _how_older(parsed, answer.modified, before, last, judged.digest):
        _require_accepted(resource, older, judged.digest)
    named = str(flag_set.metadata.get(answer.version_key) or flag_set.metadata.get("version") or "")
    version = answer.version or one_line(named or judged.digest, _VERSION)
    divided = _shards(resource.name, canonical(flag_set, provenance=True))
    bad = (*judged.held, *judged.missing)
    partly = _partly_failure(bad, first_problem(judged.problems)) if bad else None
    return RemoteSet(version, len(flag_set.flags), divided, partly)


def _last_good(before: ProviderStatus | None, shards: Mapping[str, Resource | None]) -> FlagSet | None:
    if before is None or not before.shards:
        return None
    try:
        return read_shards(before.fields(), shards.get, KEPT_BOUNDS)
    except (InvalidSpecError, MissingShardsError):
        return None


def _how_older(
    parsed: Parsed,
    modified: datetime | None,
    before: ProviderStatus | None,
    last: FlagSet | None,
    digest: str,
) -> str:
    """Return in which way an answer is older than what is served; empty: in none that can be seen."""
    if last is None or before is None or digest_of(last) == digest:
        # Of the same flags, replicas may differ in when they were written.
        return ""
    new, old = (str(flag_set.metadata.get("version") or "") for flag_set in (parsed.flag_set, last))
    if is_older(new, old):
        return f"version {one_line(new, _KEY)} is older than {one_line(old, _KEY)}, which was fetched before"
    known = parse_time(before.last_modified)
    if known is None or modified is None or modified >= known:
        return ""
    return f"the document of {modified.isoformat()} is older than that of {known.isoformat()}"


def _require_accepted(resource: Resource, older: str, digest: str) -> None:
    if lets_through(resource.annotations.get(ACCEPT_REVISION, ""), digest):
        return
    raise Stalled(
        OLDER,
        f"{older}; if the older one is to be served, accept it: kubectl -n {resource.namespace} annotate ffc "
        f"{resource.name} --overwrite {ACCEPT_REVISION}={digest}",
    )


def _shards(owner: str, document: bytes) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Raises Failed (TooLarge)."""
    whole: Mapping[str, Any] = json.loads(document)
    try:
        divided = [dict(whole)] if len(document) <= LARGEST else list(parts(dict(whole)))
    except TooLargeError as error:
        raise Failed("TooLarge", str(error)) from error
    if len(divided) > MOST_SHARDS:
        todo = "select a smaller set"
        raise Failed("TooLarge", f"the flags take {len(divided)} shards, of {MOST_SHARDS}; {todo}")
    # Not the name of a shard of the object's own flags, should both have the same.
    return tuple(shard_of(f"{owner[:190]}-remote", part) for part in divided)


def _partly_failure(bad: tuple[str, ...], problem: str) -> Failed:
    named = ", ".join(one_line(key, _KEY) for key in bad[:_NAMED]) + (", …" if len(bad) > _NAMED else "")
    which = "1 flag is" if len(bad) == 1 else f"{len(bad)} flags are"
    return Failed(
        PARTLY,
        f"{which} bad, and served as before, if at all: {named}: {problem}; correct it at the provider",
    )


MANAGER: Final = "flagstaff-remote-flags"
"""The field manager."""
GRACE: Final = 60.0
"""Seconds for which a shard outlives the status that named it."""


@dataclass(frozen=True, slots=True)
class RemoteShards:
    """The FlagShards of all objects with a remote provider; each is owned by its object."""

    objects: Cache
    writer: Callable[[str, str | None], Applier]
    """(namespace, service account) -> who writes with its rights, or with those of the installation."""
    shard: Shard = WHOLE
    """What is written gets its labels of the object."""
    _outdated: dict[ObjectKey, datetime] = field(default_factory=dict)
    """The time since which a shard is not named."""

    def has_all(self, namespace: str, shards: Iterable[ProviderShard]) -> bool:
        """Whether each of these is there, with its content."""
        return all(self._has(namespace, shard.name, shard.digest) for shard in shards)

    async def write(
        self, resource: Resource, shards: Iterable[tuple[str, dict[str, Any]]], account: str | None
    ) -> tuple[ProviderShard, ...]:
        """Write those that are not there. Raises Setback."""
        written = []
        writer = self.writer(resource.namespace, account)
        for name, spec in shards:
            if not self._has(resource.namespace, name, spec["digest"]):
                manifest = _manifest(resource, name, spec, self.shard.labels_of(resource.labels))
                body, _ = await writer.apply(manifest, manager=MANAGER)
                # Its event arrives later, and what is delivered is composed now.
                self.objects.learn(Resource.of(body))
            written.append(ProviderShard(name=name, digest=spec["digest"]))
        return tuple(written)

    async def sweep(
        self, resource: Resource, named: Collection[str], account: str | None, now: datetime
    ) -> float | None:
        """Remove the object's shards that were not `named` for a while; return the seconds until the next may
        be removed. Raises Setback.
        """
        waits = []
        for shard in self.objects.find(SHARDS_BY_OWNER, resource.namespace, resource.name):
            # Promoted definitions of a rollout have the object as second owner.
            others = LABEL in shard.labels or not shard.is_owned_by(resource)
            if shard.name in named or others or shard.deleting:
                self._outdated.pop(shard.key, None)
                continue
            # Not later than now, should the clock have been set back.
            since = self._outdated[shard.key] = min(self._outdated.get(shard.key, now), now)
            left = GRACE - (now - since).total_seconds()
            if left > 0:
                waits.append(left)
                continue
            writer = self.writer(resource.namespace, account)
            await writer.delete(API_VERSION, flagshard.KIND, shard.namespace, shard.name, uid=shard.uid)
            self._outdated.pop(shard.key, None)
        return min(waits, default=None)

    def _has(self, namespace: str, name: str, digest: str) -> bool:
        shard = self.objects.get(ObjectKey(flagshard.KIND, namespace, name))
        return shard is not None and not shard.deleting and shard.spec.get("digest") == digest


def _manifest(resource: Resource, name: str, spec: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    owner = resource.owner_reference | {"kind": featureflagconfiguration.KIND, "controller": True}
    metadata = {"name": name, "namespace": resource.namespace, "labels": labels, "ownerReferences": [owner]}
    return {"apiVersion": API_VERSION, "kind": flagshard.KIND, "metadata": metadata, "spec": spec}


_RETRY_SECONDS: Final = 60.0
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
            return RemoteState(self._entry(resource), stalled, _RETRY_SECONDS, followed=True)
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
            return _RETRY_SECONDS


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


FETCHED: Final = "Succeeded"
UPDATED: Final = "RemoteFlagsUpdated"
"""The reason of the Event about another version."""


def with_state(resource: Resource, state: RemoteState) -> Resource:
    """Return the object with the remote flags that are in force, as its status is to say."""
    rest = {name: value for name, value in resource.status.items() if name != "providers"}
    if state.entry is None:
        return replace(resource, status=rest) if "providers" in resource.status else resource
    return replace(resource, status={**rest, "providers": [state.entry.fields()]})


def provider_status(state: RemoteState) -> ConfigurationStatus:
    """Return the field of the status."""
    return ConfigurationStatus(providers=None if state.entry is None else (state.entry,))


def fetch_conditions(state: RemoteState) -> tuple[Condition, ...]:
    """`RemoteFlagsFetched`, where there is a provider."""
    if not state.followed:
        return ()
    if state.setback is not None:
        return (
            Condition(
                REMOTE_FLAGS, FALSE, state.setback.reason, f"{state.setback.message}{_rest_message(state)}"
            ),
        )
    message = "" if state.entry is None else f"{_count(state)} of {state.entry.name} at {state.entry.version}"
    return (Condition(REMOTE_FLAGS, TRUE, FETCHED, message),)


def fetch_events(before: ConfigurationStatus, state: RemoteState) -> tuple[Occurrence, ...]:
    """Return an Event for another version, for a failure once, and for its end."""
    events: tuple[Occurrence, ...] = ()
    entry, known = state.entry, next(iter(before.providers or ()), None)
    if entry is not None and entry.shards and (known is None or known.shards != entry.shards):
        message = f"{_count(state)} of {entry.name} at {entry.version}"
        events = (Occurrence(UPDATED, message, metadata={"version": entry.version or ""}),)
    was = before.condition(REMOTE_FLAGS)
    if state.setback is not None:
        now = fetch_conditions(state)[0]
        if (was.status, was.reason) != (FALSE, now.reason):
            events += (Occurrence(now.reason, now.message, warning=True),)
    elif was.status == FALSE and state.followed:
        events += (Occurrence(was.reason, "the remote provider is followed again", ends=True),)
    return events


def _rest_message(state: RemoteState) -> str:
    if state.entry is None or not state.entry.shards:
        return "; the object's own flags are served without remote ones"
    if state.entry.stale_since is None:
        return ""
    return f"; {_count(state)} at {state.entry.version} stay in force"


def _count(state: RemoteState) -> str:
    count = 0 if state.entry is None else state.entry.flags or 0
    return "1 flag" if count == 1 else f"{count} flags"
