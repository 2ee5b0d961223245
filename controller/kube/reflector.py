"""Lists one kind and then watches it for the life of the process: reports objects, changes, and deletions
during interruptions.

Our own on the official client's wire. kopf reports what is there after a cut, but not what was deleted
meanwhile; the official informer has threads instead of a loop; and neither says how current its view is.

Secrets and ConfigMaps are watched without their content: one watch for each namespace where an object refers
to one.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from controller.api.kinds import SECRET
from controller.api.meta import ObjectKey
from controller.kube.answers import paths_of_all
from controller.kube.requests import (
    CONNECT_SECONDS,
    JITTER,
    JSON,
    METADATA,
    METADATA_LIST,
    PAGE,
    ClientTransport,
    KindNotInstalled,
    Requests,
    WatchExpired,
    WatchRefused,
    WatchRequest,
    lines_of,
    read_object,
)
from controller.runtime.setbacks import Failed
from evaluator.host.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kubernetes.aio.client.api_client import ApiClient

    from controller.api.kind import ResourceType
    from controller.runtime.cache import Change, Index
    from controller.runtime.informer import Informer
    from controller.runtime.watch_health import WatchHealth


log = logging.getLogger(__name__)

TURN_SECONDS: Final = 30
"""After so long the API server ends a watch, and it is opened again where it was: a sign of life, even where
nothing changes.
"""
SILENT_SECONDS: Final = 45.0
"""Seconds of silence after which a watch is closed: its server is gone."""
ABSENT_SECONDS: Final = 10.0
"""Seconds between two requests for a kind that is not installed."""
_BACKOFF: Final = Backoff(first=0.1, most=2.0, jitter=0.5)


@dataclass(frozen=True, slots=True)
class WatchScope:
    """The watched objects: a kind in one namespace or in all, or one object."""

    type: ResourceType
    namespace: str = ""
    """Empty: all of them."""
    name: str = ""
    """Name of a single object, if the rights cover only that; empty: all objects."""
    labels: str = ""
    """Label selector; empty: any labels."""
    fields: str = ""
    """Field selector; empty: any fields."""

    @property
    def query(self) -> dict[str, str]:
        """Query parameters of each request."""
        given = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: text for name, text in given.items() if text}

    @property
    def path(self) -> str:
        """The API path of all objects of the view."""
        (path,) = paths_of_all(
            self.type.api_version, self.type.plural, [self.namespace] if self.namespace else ()
        )
        return path

    @property
    def address(self) -> str:
        """The path with the query, which tells the watches of a process apart."""
        return f"{self.path}?{urlencode(self.query)}"


class Reflector:
    """Implements `Engine` for one scope: resumes an interrupted watch at its version, or lists anew where it
    cannot.
    """

    def __init__(
        self,
        api: ApiClient,
        view: WatchScope,
        informer: Informer,
        *,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random.random,
    ) -> None:
        """`clock` is monotonic seconds, `random` returns numbers from 0 to 1."""
        self.view = view
        self.fault = ""
        """Why it is not connected."""
        self._api = api
        self._informer = informer
        self._clock = clock
        self._random = random
        self._known: set[ObjectKey] = set()
        self._version = ""
        self._confirmed: float | None = None

    @property
    def connected(self) -> bool:
        """Whether changes arrive now."""
        return self._confirmed is not None and not self.fault

    def age(self) -> float | None:
        """Seconds since the API server last confirmed what we know, by an event or by answering at all; None:
        never.
        """
        return None if self._confirmed is None else max(0.0, self._clock() - self._confirmed)

    def page(self) -> dict[str, Any]:
        """Return the entry of a proxy's `/readyz`."""
        age = self.age()
        return {
            "kind": self.view.type.kind,
            "namespace": self.view.namespace,
            "connected": self.connected,
            "fault": self.fault,
            "ageSeconds": None if age is None else round(age, 1),
        }

    async def run(self) -> None:
        """Follow until cancelled."""
        failures = 0
        while True:
            least = 0.0
            try:
                if not self._version:
                    await self.list_once()
                await self._watch()
                failures = 0
            except WatchExpired:
                log.info("%s are listed again: the watch cannot be resumed", self.view.type.plural)
                self._version = ""
            except KindNotInstalled:
                if await self._is_absent():
                    self._nothing()
                    await asyncio.sleep(ABSENT_SECONDS)
                    continue
            except WatchRefused as refusal:
                self._record_fault(refusal.message)
                least = refusal.retry_after * (1 + JITTER * self._random())
            except Failed as failure:
                self._record_fault(failure.message)
            except Exception as error:
                # A proxy in between may send any answer.
                log.exception("%s: the response cannot be read", self.view.type.plural)
                self._record_fault(f"{type(error).__name__}: {error}"[:200])
            # Also between lists: an API server that answers 410 each time is not to be asked without end.
            await asyncio.sleep(max(least, _BACKOFF.delay(failures + 1, self._random())))
            failures = 0 if self.connected else failures + 1

    async def _is_absent(self) -> bool:
        type_ = self.view.type
        try:
            installed = await Requests(ClientTransport(self._api)).installs(type_.api_version, type_.plural)
        except Failed as failure:
            self._record_fault(failure.message)
            return False
        if installed:
            self._record_fault("status 404")
        return not installed

    def _record_fault(self, why: str) -> None:
        if why != self.fault:
            log.warning("%s cannot be watched at the moment: %s", self.view.type.plural, why)
        self.fault = why

    def _confirm(self) -> None:
        if self.fault:
            log.info("%s are watched again", self.view.type.plural)
        self.fault = ""
        self._confirmed = self._clock()

    def _nothing(self) -> None:
        """A kind that is not installed has no objects."""
        self._take_all(set())
        self._confirm()
        self._version = ""
        self._informer.end_listing(self.view.type.kind, self.view.namespace)

    async def list_once(self) -> None:
        """Report all objects that are there, and forget the others. Raises Failed."""
        keys: set[ObjectKey] = set()
        page: dict[str, Any] = {}
        query = {**self.view.query, "limit": str(PAGE)}
        while True:
            async with self._request(query, CONNECT_SECONDS * 6) as response:
                page = await read_object(await response.read())
            meta = page.get("metadata")
            if not isinstance(meta, dict):
                # An answer of a proxy in between: a cluster without objects returns an empty list.
                raise Failed("ApiServerFailed", "the response is not a list")
            for body in page.get("items") or ():
                keys.add(self._learn(body))
            if not meta.get("continue"):
                break
            query["continue"] = meta["continue"]
        self._take_all(keys)
        self._version = str(meta.get("resourceVersion") or "")
        self._confirm()
        self._informer.end_listing(self.view.type.kind, self.view.namespace)

    def _take_all(self, keys: set[ObjectKey]) -> None:
        """Known objects that are not listed were deleted while the watch was interrupted."""
        for key in self._known - keys:
            self._informer.forget(key)
        self._known = keys

    def _learn(self, body: dict[str, Any]) -> ObjectKey:
        key = self._informer.learn(self.view.type.kind, body)
        self._known.add(key)
        return key

    async def _watch(self) -> None:
        """Watch once, from `_version` on. Raises WatchExpired, Failed."""
        query = {
            **self.view.query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(TURN_SECONDS),
        }
        async with self._request(query, SILENT_SECONDS) as response:
            self._confirm()
            async for line in lines_of(response):
                self._take(await read_object(line))

    def _take(self, event: dict[str, Any]) -> None:
        event_type, body = event.get("type"), event.get("object")
        if not isinstance(body, dict):
            raise Failed("ApiServerFailed", "the watch sent something that is not an event")
        if event_type == "ERROR":
            if body.get("code") == HTTPStatus.GONE:
                raise WatchExpired
            raise Failed("ApiServerFailed", f"the watch failed: {str(body.get('message'))[:200]}")
        self._confirm()
        version = (body.get("metadata") or {}).get("resourceVersion")
        if event_type in {"ADDED", "MODIFIED"}:
            self._learn(body)
        elif event_type == "DELETED":
            meta = body.get("metadata") or {}
            name = str(meta.get("namespace") or ""), str(meta.get("name") or "")
            key = ObjectKey(self.view.type.kind, *name)
            self._known.discard(key)
            self._informer.forget(key)
        # Only after it is stored: after an interruption in between it is sent again.
        self._version = str(version or self._version)

    def _request(self, query: dict[str, str], silent: float) -> WatchRequest:
        one = {"fieldSelector": f"metadata.name={self.view.name}"} if self.view.name else {}
        metadata = METADATA if "watch" in query else METADATA_LIST
        accept = JSON if self.view.type.content else metadata
        return WatchRequest(self._api, f"{self.view.path}?{urlencode({**query, **one})}", accept, silent)


def reflectors_of(
    api: ApiClient, informer: Informer, scopes: Iterable[WatchScope], health: WatchHealth | None = None
) -> tuple[Reflector, ...]:
    """Return one for each scope, whose state `health` reports."""
    reflectors = tuple(Reflector(api, scope, informer) for scope in scopes)
    if health is not None:
        for reflector in reflectors:
            health.follow(reflector.view.type.plural, reflector.view.address, reflector)
    return reflectors


class ReferenceWatches:
    """Watches a kind in each namespace with an object that refers to one of that kind."""

    def __init__(  # noqa: PLR0913
        self,
        api: ApiClient,
        informer: Informer,
        indexes: Iterable[Index],
        health: WatchHealth,
        *,
        type_: ResourceType = SECRET,
        labels: str = "",
        everywhere: bool = False,
    ) -> None:
        """`indexes` list objects by those of `type_` that they refer to. `labels`: a selector of those
        that matter, empty for all; `everywhere`: one watch of all, whatever namespace refers to one.
        """
        self._api = api
        self._informer = informer
        self._indexes = tuple(indexes)
        self._health = health
        self._type = type_
        self._labels = labels
        self._everywhere = everywhere
        self._referring: dict[str, set[ObjectKey]] = {}
        """Objects that refer to one, by namespace."""
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._wanted = asyncio.Event()

    @property
    def namespaces(self) -> list[str]:
        """Return the watched namespaces, sorted."""
        return sorted(self._watching)

    def on_change(self, change: Change) -> None:
        """Handle a change of any object."""
        resource = change.latest
        indexes = [index for index in self._indexes if resource.key.kind in index.kinds]
        if not indexes:
            return
        after = change.after
        refers = after is not None and any(name for index in indexes for name in index.references(after))
        place = "" if self._everywhere else resource.namespace
        referring = self._referring.setdefault(place, set())
        (referring.add if refers else referring.discard)(resource.key)
        if not referring:
            del self._referring[place]
        if self._referring.keys() != self._watching.keys():
            self._wanted.set()

    async def run(self) -> None:
        """Start and stop watches as references come and go, until cancelled."""
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                for namespace in self._watching.keys() - self._referring.keys():
                    await self._stop(namespace)
                for namespace in self._referring.keys() - self._watching.keys():
                    self._start(namespace)
        finally:
            for namespace in tuple(self._watching):
                await self._stop(namespace)
            # The next run begins all watches anew.
            self._wanted.set()

    def _start(self, namespace: str) -> None:
        (reflector,) = reflectors_of(self._api, self._informer, [self._scope(namespace)], self._health)
        self._watching[namespace] = asyncio.create_task(reflector.run())

    async def _stop(self, namespace: str) -> None:
        task = self._watching.pop(namespace)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._health.unfollow(self._scope(namespace).address)
        for resource in self._informer.store.of_kind(self._type.kind, namespace or None):
            self._informer.forget(resource.key)

    def _scope(self, namespace: str) -> WatchScope:
        return WatchScope(self._type, namespace, labels=self._labels)
