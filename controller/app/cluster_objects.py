"""What the page of a cluster reads: objects and Events by watches, and evaluators from the proxies."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from typing import TYPE_CHECKING, Any, Final

import orjson

from controller.api.kind import PAGE
from controller.api.kinds import EVENT, FEATURE_FLAG, FEATURE_FLAG_CONFIGURATION, FLAG_SET, watched_by
from controller.api.meta import ObjectKey, Resource
from controller.delivery.rollouts import PROGRESS_INDEXES
from controller.page.page_source import FleetMember, ShownEvent, read_event, read_fleets
from controller.runtime.cache import Cache, Change
from controller.runtime.http_client import HttpClient, RequestError, Route, read_all
from controller.runtime.informer import Informer, transforms_of
from controller.runtime.setbacks import Setback

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence


log = logging.getLogger(__name__)

WATCHED: Final = watched_by(PAGE)
"""The kinds that are shown, beside Events."""
EVENTS_ABOUT: Final = (FLAG_SET.api_version, FEATURE_FLAG_CONFIGURATION.api_version)
"""The versions of the kinds whose Events are shown: the API server selects by them."""
MOST_EVENTS: Final = 5_000
"""Most Events that are kept; the oldest go first."""
_SHOWN: Final = "shown"


class ClusterObjects:
    """Written on the loop, read in any thread."""

    def __init__(self, began: int) -> None:
        """`began`: distinguishes the versions of this process from those of others."""
        self.objects = Cache(PROGRESS_INDEXES)
        self.informer = Informer(self.objects, {**transforms_of(WATCHED), EVENT.kind: _shown_event})
        self.objects.react(self._on_change)
        self.notify: Callable[[str], None] = lambda _namespace: None
        """Called with the namespace of each change."""
        self._began = began
        self._counter = itertools.count(1)
        self._changed: dict[str, int] = {}
        """The number of the last change, by namespace."""
        self._events: dict[ObjectKey, None] = {}
        """The Events, the one that came first in front."""

    def version(self, namespaces: Collection[str] | None) -> str:
        """A text that changes whenever anything in these namespaces does; None: in any."""
        changed = self._changed
        known = changed.values() if namespaces is None else map(changed.get, namespaces)
        return f"{self._began}-{max(filter(None, [*known]), default=0)}"

    def namespaces(self) -> set[str]:
        """The namespaces that have flag sets."""
        kinds = (FLAG_SET.kind, FEATURE_FLAG_CONFIGURATION.kind, FEATURE_FLAG.kind)
        return {resource.namespace for kind in kinds for resource in self.objects.of_kind(kind)}

    def events(self, namespaces: Collection[str] | None) -> list[ShownEvent]:
        """The Events in these namespaces, the newest first; None: in any."""
        events = [event.spec[_SHOWN] for event in self.objects.of_kind(EVENT.kind)]
        shown = [event for event in events if namespaces is None or event.namespace in namespaces]
        return sorted(shown, key=lambda event: event.sort_key, reverse=True)

    def _on_change(self, change: Change) -> None:
        key, after = change.latest.key, change.after
        if key.kind != EVENT.kind:
            self.record_change(key.namespace)
        elif after is None:
            # One that the API server drops is dropped here without a word.
            self._events.pop(key, None)
        else:
            self._events[key] = None
            if len(self._events) > MOST_EVENTS:
                self.objects.forget(next(iter(self._events)))
            self.record_change(after.spec[_SHOWN].namespace)

    def record_change(self, namespace: str) -> None:
        """Have pages that show a namespace ask for their views again."""
        self._changed[namespace] = next(self._counter)
        self.notify(namespace)


def _shown_event(body: Mapping[str, Any], _known: Resource | None) -> Resource:
    meta = body["metadata"]
    key = ObjectKey(EVENT.kind, meta["namespace"], meta["name"])
    return Resource(key, "", 0, "", spec={_SHOWN: read_event(body)})


FRESH_SECONDS: Final = 2.0
"""Seconds for which an answer is used without asking again."""
_PATIENCE: Final = 3.0
"""Seconds for one proxy's answer; without it, the numbers of its FlagReceipts are shown alone."""
_MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_PROXIES: Final = 64


class FleetReader:
    """Belongs to one event loop."""

    def __init__(self, address: str, clock: Callable[[], float]) -> None:
        """`address`: host:port of the management ports of all proxies, of which each address of the host is
        asked; empty: none. `clock`: monotonic seconds.
        """
        self._address = address
        self._clock = clock
        # The address is a setting of this process: it may lead into the cluster.
        self._client = HttpClient(None)
        self._known: Mapping[str, Sequence[FleetMember]] = {}
        self._fresh_until = 0.0
        self._asked_at = clock()
        self._fault = ""
        self._asking: asyncio.Lock = asyncio.Lock()

    async def members(self) -> Mapping[str, Sequence[FleetMember]]:
        """Evaluators by the object that they follow. A proxy that does not answer is left out."""
        if not self._address:
            return {}
        async with self._asking:
            if self._clock() >= self._fresh_until:
                self._asked_at = self._clock()
                self._known = await self._ask_all()
                self._fresh_until = self._clock() + FRESH_SECONDS
        return self._known

    def wait_for_answer_after(self, moment: float) -> float | None:
        """Seconds after which `members` asks again, where it was asked last before this moment of the clock;
        None: the answer is newer, or no proxy is asked.
        """
        if not self._address or self._asked_at >= moment:
            return None
        return max(0.0, self._fresh_until - self._clock())

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask_all(self) -> Mapping[str, Sequence[FleetMember]]:
        host, _, port = self._address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            resolved = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except OSError as error:
            self._report(f"{host} cannot be resolved: {error.strerror}")
            return {}
        hosts = sorted({entry[4][0] for entry in resolved})[:_MOST_PROXIES]
        answers = await asyncio.gather(*(self._ask(str(host), int(port)) for host in hosts))
        if all(answer is not None for answer in answers):
            self._report("")
        return await asyncio.to_thread(read_fleets, answers)

    async def _ask(self, host: str, port: int) -> object:
        """One proxy's answer; None where there is none."""
        shown = f"[{host}]" if ":" in host else host
        try:
            url = f"http://{shown}:{port}/fleet"
            async with self._client.request("GET", url, route=Route(seconds=_PATIENCE)) as answer:
                if answer.status == 200:
                    content = await read_all(answer, _MOST_BYTES)
                    return await asyncio.to_thread(orjson.loads, content)
                self._report(f"{url} answers {answer.status}")
        except (RequestError, Setback) as error:
            self._report(error.message)
        except ValueError:
            self._report(f"{shown}:{port} sends no JSON")
        return None

    def _report(self, fault: str) -> None:
        """Log a fault once, until it is another one."""
        if fault and fault != self._fault:
            log.warning("a proxy cannot be asked for its evaluators: %s", fault)
        self._fault = fault
