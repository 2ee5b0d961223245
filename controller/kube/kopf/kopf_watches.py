"""kopf's watch streams, without kopf's state on any object."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final, cast

import kopf

from controller.api.kinds import ResourceType
from controller.kube.kopf.kopf_session import login
from controller.runtime.objects.cache import take

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterator, Sequence

    from controller.runtime.objects.cache import Cache
    from controller.runtime.objects.watch_health import WatchHealth

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


def take_in(
    cache: Cache, relisted: Relisted, type_: ResourceType, body: dict[str, Any], event_type: str | None
) -> None:
    """Put one event into `cache`; `event_type`: such as ADDED, None for a listed object."""
    take(cache, type_, body, deleted=event_type == "DELETED")
    if event_type is None:
        relisted(type_)


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


class _Backoffs:
    """The seconds between the tries of a request, without an end: kopf would end after the last one."""

    def __iter__(self) -> Iterator[float]:
        return chain((0.1, 0.2, 0.5, 1.0), repeat(2.0))


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
    logging.getLogger("kopf._core.reactor.observation").addFilter(_NotInstalled())
    # The session reports what is refused, once.
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
