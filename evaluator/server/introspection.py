"""What an evaluator says of itself on the management port: which flags it serves, and how it comes to an answer.

An evaluation context is personal data: it is in the answer to whoever sent it, and nowhere else.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import orjson

from evaluator.explain import answer, explain
from evaluator.flags.catalog import FLAG_SET_ID
from evaluator.flags.model import ABSENT, REVISION_KEY
from evaluator.http.routes import Response, Routes
from evaluator.resolve import FlagType, flag_type
from evaluator.server.condition import age, state
from evaluator.server.context import TOO_MANY, read_too_deep
from evaluator.server.counting import too_many_in_json
from evaluator.server.selection import InvalidSelectorError, selection

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.model import Flag
    from evaluator.http.routes import Headers, Request
    from evaluator.server.context import ContextSources
    from evaluator.store import Snapshot, SourceStatus, Staleness, Store

JSON: Final[Headers] = (("content-type", "application/json"),)
PAGE: Final = 1_000
"""Flags in one answer."""
MOST_PAGES: Final = 64
"""Pages that are kept encoded, until something else is served."""
MOST_BODY: Final = 100_000
"""Bytes that /explain reads: a trace shows the context again and again."""


class _BadRequest(ValueError):
    """The request cannot be answered; the text says why and quotes no context."""


class Introspection:
    """`/flags` and `/explain`."""

    def __init__(self, store: Store, sources: ContextSources, clock: Callable[[], float]) -> None:
        self._store = store
        self._sources = sources
        self._clock = clock
        self._of: Snapshot | None = None
        self._keys: list[str] = []
        self._pages: dict[str, bytes] = {}

    def routes(self) -> Routes:
        """Both, as plain HTTP."""
        reading = {(method, "/flags"): self.flags for method in ("GET", "HEAD")}
        return Routes(http={**reading, ("POST", "/explain"): self.explain})

    def flags(self, request: Request) -> Response:
        """What is served, up to PAGE flags from the one after `?after=KEY`; `next` is where the following page begins.

        `{"revision", "digest", "servedSince", "ageSeconds", "stale", "sources", "count", "flags", "next"}`; times are Unix seconds.
        """
        snapshot = self._store.snapshot
        after = parse_qs(request.query, keep_blank_values=True).get("after", [""])[-1]
        head = orjson.dumps(self._head(snapshot))
        return Response(200, head[:-1] + b"," + self._page(snapshot, after), JSON)

    def explain(self, request: Request) -> Response:
        """`{"flagKey", "context"?, "type"?}` to OFREP's answer with `steps`, `revision` and `digest`; 200 for errors of the flag, too."""
        try:
            key, wanted, context = read_question(request.body)
            selected = selection(request.headers).of(self._store)
        except (_BadRequest, InvalidSelectorError) as error:
            return _refused(413 if len(request.body) > MOST_BODY else 400, str(error))
        if selected is None:
            return _refused(412, "nothing is served")
        context = self._sources.lay_over(context, request.headers)
        found = explain(selected.compiled, key, wanted, context, int(self._clock()))
        document = {
            **answer(key, found.resolution),
            "source": self._store.catalog.source_of(key),
            "revision": selected.revision,
            "digest": selected.digest,
            "steps": [step.document() for step in found.steps],
        }
        return Response(200, _dumped(document), JSON)

    def _head(self, snapshot: Snapshot | None) -> dict[str, Any]:
        store, now = self._store, self._clock()
        return {
            "revision": None if snapshot is None else snapshot.revision,
            "digest": None if snapshot is None else snapshot.digest,
            "servedSince": None if snapshot is None else snapshot.served_since,
            "ageSeconds": store.age(now),
            "stale": staleness(store.stale),
            "sources": [source(status, now) for status in store.statuses],
        }

    def _page(self, snapshot: Snapshot | None, after: str) -> bytes:
        """The rest of the document, `"count":…}`."""
        if snapshot is not self._of:
            self._of, self._pages = snapshot, {}
            self._keys = [] if snapshot is None else sorted(snapshot.flag_set.flags)
        page = self._pages.get(after)
        if page is None:
            first = bisect_right(self._keys, after) if after else 0
            keys = self._keys[first : first + PAGE]
            following = keys[-1] if first + PAGE < len(self._keys) else None
            flags = [] if snapshot is None else [self._flag(snapshot, key) for key in keys]
            page = _dumped({"count": len(self._keys), "flags": flags, "next": following})[1:]
            if len(self._pages) >= MOST_PAGES:
                self._pages.clear()
            self._pages[after] = page
        return page

    def _flag(self, snapshot: Snapshot, key: str) -> dict[str, Any]:
        flag = snapshot.flag_set.flags[key]
        metadata = {**snapshot.flag_set.metadata, **flag.metadata}
        return {
            "key": key,
            "state": flag.state.value,
            "type": _type(flag),
            "variants": list(flag.variants),
            "defaultVariant": flag.default_variant,
            "targeting": flag.targeting is not ABSENT and flag.targeting != {},
            "source": self._store.catalog.source_of(key),
            "flagSetId": metadata.get(FLAG_SET_ID),
            "revision": metadata.get(REVISION_KEY),
            "metadata": metadata,
        }


def source(status: SourceStatus, now: float) -> dict[str, Any]:
    """One source as JSON."""
    return {
        "name": status.name,
        "state": state(status).value,
        "revision": status.revision,
        "digest": status.digest,
        "flags": status.flags,
        "ageSeconds": age(status, now),
        "stale": staleness(status.stale),
        "fromDisk": status.from_disk,
    }


def staleness(stale: Staleness | None) -> dict[str, Any] | None:
    """`{"reason", "since"}` or null."""
    return None if stale is None else {"reason": stale.reason, "since": stale.since}


def read_question(body: bytes) -> tuple[str, FlagType | None, dict[str, Any]]:
    """(flag key, type, context) of what /explain is asked."""
    if len(body) > MOST_BODY:
        raise _BadRequest(f"the body has more than {MOST_BODY} bytes")
    if too_many_in_json(body):
        raise _BadRequest(TOO_MANY)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("flagKey"), str):
        raise _BadRequest('the body must be {"flagKey": "…", "context": {…}}')
    if read_too_deep(document, body):
        raise _BadRequest("the context nests too deep")
    context = document.get("context")
    if not isinstance(context, dict | None):
        raise _BadRequest("context must be an object")
    return document["flagKey"], _wanted(document.get("type")), context or {}


def _wanted(name: object) -> FlagType | None:
    if name is None:
        return None
    known = {each.value.lower(): each for each in FlagType}
    if not isinstance(name, str) or name.lower() not in known:
        raise _BadRequest(f"type must be one of {', '.join(known)}")
    return known[name.lower()]


def _type(flag: Flag) -> str | None:
    kind = flag_type(flag)
    return None if kind is None else kind.value.lower()


def _dumped(document: dict[str, Any]) -> bytes:
    # Keys of a flag's value may be numbers after YAML, and whole numbers larger than 64 bits are told as text.
    return orjson.dumps(document, default=str, option=orjson.OPT_NON_STR_KEYS)


def _refused(status: int, why: str) -> Response:
    return Response(status, orjson.dumps({"error": why}), JSON)
