"""The engine of the controller's own kinds: kopf's watch streams in a thread, without kopf's state on any
object, and the lists that tell what a watch of kopf does not: what is there before it begins, and what was
deleted before it began anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import aiohttp
import kopf
import uvloop

from controller.api.kind import ResourceType
from controller.api.meta import ObjectKey, about
from controller.runtime.process import forever
from controller.runtime.setbacks import Setback
from evaluator.host.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from yarl import URL

    from controller.runtime.informer import Informer
    from controller.runtime.watch_health import WatchHealth


log = logging.getLogger(__name__)

_DISCOVERY: Final = "discovery"
_REFUSALS: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})


def login(health: WatchHealth, **known: Any) -> kopf.AiohttpSession | None:
    """Return a session with the credentials of the pod or the kubeconfig."""
    info = kopf.login_with_service_account(**known) or kopf.login_with_kubeconfig(**known)
    if info is None:
        return None
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
        middlewares=(WatchRecorder(health),),
    )
    return kopf.AiohttpSession(
        server=info.server, default_namespace=info.default_namespace, aiohttp_session=session
    )


class WatchRecorder:
    """An aiohttp middleware that records the health of each watch. kopf tries again what was refused."""

    def __init__(self, health: WatchHealth) -> None:
        self._health = health

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Return the answer, whatever it is."""
        url = request.url
        try:
            response = await handler(request)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._record_fault(url, f"{url.origin()}: {type(error).__name__}: {error}"[:300])
            raise
        status, kind = response.status, _kind(url)
        if status == HTTPStatus.NOT_FOUND and kind != _DISCOVERY:
            self._health.remove_kind(kind)
        elif status in _REFUSALS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self._record_fault(url, f"{url.origin()} answers {status}")
        elif status < HTTPStatus.BAD_REQUEST and self._health.record_answer(kind, url.path):
            log.info("the API server answers again")
        return response

    def _record_fault(self, url: URL, why: str) -> None:
        if self._health.record_failure(_kind(url), url.path, why):
            log.warning("no changes arrive from the API server: %s; retrying", why)


def _kind(url: URL) -> str:
    """Return the plural that a path lists or watches, or `discovery` for a request for kinds."""
    parts = url.path.strip("/").split("/")
    least = 4 if parts[0] == "apis" else 3
    return parts[-1] if len(parts) >= least else _DISCOVERY


_REOPEN_SECONDS: Final = 60
"""Seconds after which a watch is reopened at its version, so that the server answers even without changes."""
_PAGE: Final = 100
"""Objects per page of a list; each may have 1 MB."""
_SILENT_SECONDS: Final = 75.0
"""A watch that is silent for longer is cut: its server is gone."""


Relisted = Callable[[ResourceType], None]
"""Called with each kind whose watch listed its objects: a watch reports no deletion from before it began."""


def open_with_kopf(life: contextlib.AbstractAsyncContextManager[object]) -> None:
    """Have `kopf run` open `life` as it starts, and close it as it ends."""

    @kopf.on.startup()
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings)
        await life.__aenter__()

    @kopf.on.cleanup()
    async def end(**_: Any) -> None:
        await life.__aexit__(None, None, None)


def register(
    handlers: kopf.OperatorRegistry,
    kinds: Sequence[ResourceType],
    health: WatchHealth,
    take: Callable[[ResourceType, dict[str, Any], str | None], None],
) -> None:
    """Register handlers for `kinds`; `take` receives each object and its event type, None if listed."""

    @kopf.on.login(registry=handlers)
    async def log_in(**known: Any) -> kopf.AiohttpSession | None:
        return login(health, **known)

    for type_ in kinds:
        _register_kind(handlers, type_, take)


def _register_kind(
    handlers: kopf.OperatorRegistry,
    type_: ResourceType,
    take: Callable[[ResourceType, dict[str, Any], str | None], None],
) -> None:
    @kopf.on.event(type_.group or "", type_.version, type_.plural, registry=handlers, id=type_.plural)
    async def on_event(event: Any, **_: Any) -> None:
        take(type_, dict(event["object"]), event["type"])


def configure(settings: kopf.OperatorSettings) -> None:
    """Configure kopf as a source of events only."""
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.watching.chunk_size = _PAGE
    settings.watching.reconnect_backoff = 0.2
    settings.watching.server_timeout = _REOPEN_SECONDS
    settings.watching.inactivity_timeout = _SILENT_SECONDS
    settings.networking.connect_timeout = 5
    settings.networking.error_backoffs = _Backoffs()
    settings.queueing.error_delays = (0.2, 0.5, 1, 2)
    # A worker waits as long for another event of the same object before it goes: it costs memory and no time.
    settings.queueing.idle_timeout = 0.1
    settings.process.ultimate_exiting_timeout = 10
    settings.persistence.diffbase_storage = _NothingCompared()


_REQUESTS: Final = Backoff(first=0.1, most=2.0, jitter=0.0)


class _Backoffs:
    """The seconds between the tries of a request, without an end: kopf would end after the last one."""

    def __iter__(self) -> Iterator[float]:
        return (_REQUESTS.delay(failures, 0.0) for failures in count(1))


class _NothingCompared(kopf.DiffBaseStorage):
    """An empty storage: else kopf copies each object, to compare it with what handlers saw last."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Return an empty content to compare."""
        return cast("kopf.BodyEssence", {})

    def fetch(self, **_: Any) -> None:
        """Return nothing: nothing is stored."""

    def store(self, **_: Any) -> None:
        """Do nothing: there is no state."""


def quieten_kopf() -> None:
    """Filter lines from the log that repeat, or that need no action."""
    observation = logging.getLogger("kopf._core.reactor.observation")
    observation.addFilter(_NotInstalled())
    # The session reports what is refused, once. The search for kinds logs its requests under its own name.
    observation.addFilter(lambda record: not record.getMessage().startswith("Request attempt"))
    logging.getLogger("kopf._cogs.clients").setLevel(logging.CRITICAL)
    # That it takes no signals in a thread.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)


class _NotInstalled(logging.Filter):
    """Passes kopf's line on missing kinds once, and again when the kinds change."""

    _UNRESOLVED = "Unresolved resources cannot be served"

    def __init__(self) -> None:
        super().__init__()
        self._logged: frozenset[str] = frozenset()

    def filter(self, record: logging.LogRecord) -> bool:
        """False where nothing new is logged."""
        message = record.getMessage()
        if not message.startswith(self._UNRESOLVED):
            return True
        kinds = frozenset(_names_of(message.partition("): ")[2]))
        new, self._logged = kinds - self._logged, kinds | self._logged
        record.levelno, record.levelname = logging.INFO, "INFO"
        record.msg = f"not installed; watched as soon as they are: {', '.join(sorted(kinds))}"
        record.args = ()
        return bool(new)


_SELECTOR: Final = re.compile(r"Selector\(([^)]*)\)")
_ARGUMENT: Final = re.compile(r"(\w+)='([^']*)'")


def _names_of(selectors: str) -> Iterator[str]:
    """Yield the kinds of kopf's selectors, as kubectl names them: `buckets.source.toolkit.fluxcd.io`."""
    for selector in _SELECTOR.findall(selectors):
        given = dict(_ARGUMENT.findall(selector))
        name = given.get("any_name") or given.get("plural") or selector
        yield f"{name}.{given['group']}" if given.get("group") else name


_RESTARTS: Final = Backoff(first=1.0, most=10.0, jitter=0.0)
"""How long watching pauses after it ended."""
_CALM_SECONDS: Final = 60.0
"""Watching that lasted longer did not fail in a row."""
_END_SECONDS: Final = 15.0
_ASK_SECONDS: Final = 0.25
_CANCEL_SECONDS: Final = 1.0
NEW_KINDS_SECONDS: Final = 60.0
"""Seconds from one search for new kinds to the next."""


@dataclass
class KopfEngine:
    """Implements `Engine` for whole objects: kopf in a thread of its own, started again whenever it ends.

    In a thread, since kopf cancels all tasks of its loop when it ends, also those that are not its own.
    """

    informer: Informer
    lists: KindLists
    health: WatchHealth
    relisted: Relisted
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    """The event loop of kopf's thread while that runs."""
    _stop: asyncio.Event | None = field(default=None, init=False)

    async def run(self) -> None:
        """See Engine."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.lists.run())
            group.create_task(self._watch())
            group.create_task(restart_for_new_kinds(self.lists, self.health, self._end))

    async def _watch(self) -> None:
        quieten_kopf()
        clock = asyncio.get_running_loop().time
        failures = 0
        while True:
            began = clock()
            why = await self._once()
            failures = 1 if clock() - began > _CALM_SECONDS else failures + 1
            pause = _RESTARTS.delay(failures, 0.0)
            log.warning("the watches ended and restart in %g s: %s", pause, why)
            await asyncio.sleep(pause)

    def _end(self) -> None:
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(stop.set)

    async def _once(self) -> str:
        """Watch until kopf ends; return the cause."""
        home = asyncio.get_running_loop()
        ended: asyncio.Future[str] = home.create_future()

        def end(why: str) -> None:
            if not ended.done():
                ended.set_result(why)

        def work() -> None:
            why = self._operate(home)
            with contextlib.suppress(RuntimeError):
                home.call_soon_threadsafe(end, why)

        threading.Thread(target=work, name="watches", daemon=True).start()
        try:
            return await asyncio.shield(ended)
        finally:
            # Until it ends: what was only just started has nothing to be stopped by yet.
            for _ in range(int(_END_SECONDS / _ASK_SECONDS)):
                if ended.done():
                    break
                self._end()
                await asyncio.wait({ended}, timeout=_ASK_SECONDS)

    def _operate(self, home: asyncio.AbstractEventLoop) -> str:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._operator(home))
        except Exception as error:  # noqa: BLE001 - any error restarts kopf
            return f"{type(error).__name__}: {error}"[:300]
        else:
            return "they were stopped"
        finally:
            self._loop = self._stop = None

    async def _operator(self, home: asyncio.AbstractEventLoop) -> None:
        handlers, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
        configure(settings)
        # It ends this process otherwise, where kopf alone is to end.
        settings.process.ultimate_exiting_timeout = None

        def take(type_: ResourceType, body: dict[str, Any], event_type: str | None) -> None:
            home.call_soon_threadsafe(self._take, type_, body, event_type)

        register(handlers, self.lists.types, self.health, take)
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        _cancel_again(self._loop)
        await kopf.operator(
            registry=handlers,
            settings=settings,
            standalone=True,
            clusterwide=not self.lists.namespaces,
            namespaces=tuple(self.lists.namespaces),
            stop_flag=self._stop,
        )

    def _take(self, type_: ResourceType, body: dict[str, Any], event_type: str | None) -> None:
        """Report an event; `event_type`: such as ADDED, None for a listed object."""
        if event_type == "DELETED":
            meta = body["metadata"]
            key = ObjectKey(type_.kind, meta.get("namespace") or "", meta["name"])
            self.informer.forget(key, meta.get("uid", ""))
        else:
            self.informer.learn(type_.kind, body)
        if event_type is None:
            self.lists.on_relist()
            self.relisted(type_)


def _cancel_again(
    loop: asyncio.AbstractEventLoop, before: frozenset[asyncio.Task[object]] = frozenset()
) -> None:
    """Every second, cancel again the tasks that were cancelled a second ago and still run.

    Where a watch fails in the moment in which kopf cancels it, kopf tries it again, and then waits for its
    end for ever.
    """
    cancelled = frozenset(task for task in asyncio.all_tasks(loop) if task.cancelling())
    for task in cancelled & before:
        task.cancel()
    loop.call_later(_CANCEL_SECONDS, _cancel_again, loop, cancelled)


LIST_AGAIN: Final = 1.0
"""Seconds after a list that failed, and at least from one comparison to the next: a new watch lists
thousands, one by one.
"""


class Lister(Protocol):
    """Lists objects of the cluster."""

    async def everywhere(
        self, api_version: str, plural: str, namespaces: Sequence[str], *, content: bool = True
    ) -> list[dict[str, Any]]:
        """Return all objects of one kind, in `namespaces` or in all. Raises Setback."""

    async def present(
        self, api_version: str, plural: str, namespaces: Sequence[str]
    ) -> tuple[frozenset[str], int]:
        """(uids of all objects of one kind, the version up to which that is true); version 0: the kind is not
        installed. Raises Setback.
        """


class KindLists:
    """Reports what is there at the start, and objects whose deletion no watch reported."""

    def __init__(
        self,
        informer: Informer,
        lister: Lister,
        types: Sequence[ResourceType],
        namespaces: Sequence[str],
        *,
        again: float = LIST_AGAIN,
    ) -> None:
        """`namespaces`: none for all of them. `again`: seconds, see LIST_AGAIN."""
        self.types = types
        self.namespaces = namespaces
        self._informer = informer
        self._lister = lister
        self._stale = asyncio.Event()
        self._again = again

    async def run(self) -> None:
        """List everything once, then compare after each watch that began anew, until cancelled."""
        await self.fill()
        await forever(self.compare)

    async def fill(self) -> None:
        """List everything once, so that an unlisted object is not taken for a missing one."""
        for type_ in self.types:
            for body in await self._list(type_):
                self._informer.learn(type_.kind, body)
            for namespace in self.namespaces or ("",):
                self._informer.end_listing(type_.kind, namespace)

    def on_relist(self) -> None:
        """Handle a restarted watch: compare soon."""
        self._stale.set()

    async def is_installed(self, type_: ResourceType) -> bool:
        """Whether the API server has the kind; False where it does not answer."""
        with contextlib.suppress(Setback):
            _, version = await self._lister.present(type_.api_version, type_.plural, self.namespaces)
            return version > 0
        return False

    async def compare(self) -> None:
        """Wait until a watch began anew, then remove objects that were deleted before."""
        await self._stale.wait()
        self._stale.clear()
        failed: dict[str, str] = {}
        for type_ in self.types:
            try:
                await self._compare(type_)
            except Setback as setback:
                failed[type_.plural] = setback.message
            except Exception:
                # Continue with the other kinds.
                log.exception("comparing %s with the cluster failed", type_.plural)
        if failed:
            log.warning(
                "not compared with the cluster: %s: %s", ", ".join(failed), next(iter(failed.values()))
            )
        await asyncio.sleep(self._again)

    async def _list(self, type_: ResourceType) -> list[dict[str, Any]]:
        """List all objects of a kind; retries until it succeeds."""
        logged = ""
        while True:
            try:
                return await self._lister.everywhere(
                    type_.api_version, type_.plural, self.namespaces, content=type_.content
                )
            except Setback as setback:
                why = setback.message
            except Exception as error:  # noqa: BLE001 - a proxy in between may send any answer
                why = f"{type(error).__name__}: {error}"
            if why != logged:
                log.warning("%s cannot be listed yet: %s", type_.plural, why)
                logged = why
            await asyncio.sleep(self._again)

    async def _compare(self, type_: ResourceType) -> None:
        uids, version = await self._lister.present(type_.api_version, type_.plural, self.namespaces)
        for resource in self._informer.store.of_kind(type_.kind):
            if resource.uid not in uids and int(resource.resource_version) <= version:
                log.info("it was deleted while no watch was open", extra=about(resource.key))
                self._informer.forget(resource.key)


async def restart_for_new_kinds(
    lists: KindLists, health: WatchHealth, restart: Callable[[], None], seconds: float = NEW_KINDS_SECONDS
) -> None:
    """Call `restart`, which begins the watches anew, for each kind that is installed and not watched, once;
    until cancelled. kopf asks for the kinds of a group in the moment in which a definition changes, and the
    API server may name them a moment later.
    """
    tried: set[str] = set()
    while True:
        await asyncio.sleep(seconds)
        unwatched = [type_ for type_ in lists.types if health.of(type_.plural) is None]
        tried.intersection_update(type_.plural for type_ in unwatched)
        for type_ in unwatched:
            if type_.plural not in tried and await lists.is_installed(type_):
                log.info("%s are installed now; the watches begin anew", type_.plural)
                tried.add(type_.plural)
                restart()
                break
