"""The management port: liveness, readiness, metrics, and what it shows about evaluations.

An evaluation context is personal data: it is in the response to its sender, and nowhere else.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import orjson

from evaluator.flags.catalog import FLAG_SET_ID
from evaluator.flags.model import ABSENT, REVISION_KEY, Flag
from evaluator.http.messages import JSON, Headers, Request, Response, Streamed
from evaluator.http.routes import HttpHandler, Routes
from evaluator.resolving.explain import answer, explain
from evaluator.resolving.resolution import FlagType, Resolution, flag_type
from evaluator.server.context import TOO_MANY, json_value, read_too_deep, too_many_in_json
from evaluator.server.service import (
    RETRY_SECONDS,
    EvaluationService,
    InvalidSelectorError,
    NotReadyError,
    Selection,
    selection,
)
from evaluator.server.state_metrics import age, state
from evaluator.store.history import History, InvalidInstantError, Version, instant

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.offload import Offload
    from evaluator.server.metrics import Metrics
    from evaluator.store.snapshot import Snapshot
    from evaluator.store.store import ServedSource, Staleness, Store


PAGE: Final = 1_000
"""Most flags in one answer."""
MOST_BODY: Final = 100_000
"""Most bytes of a request to /explain: a trace contains the context many times."""


class _BadRequest(ValueError):
    """The request cannot be answered; the text says why and quotes no context."""


class _NotKept(LookupError):
    """The version is not on disk; the text names it."""


@dataclass(frozen=True, slots=True)
class ExplainQuery:
    """A request to /explain."""

    key: str
    wanted: FlagType | None
    context: dict[str, Any]
    at: str | None = None
    """A digest or a time of a version that was served before; None: what is served."""


class Introspection:
    """`/flags` and `/explain`."""

    def __init__(self, service: EvaluationService, offload: Offload, history: History | None = None) -> None:
        self._service = service
        self._history = history
        self._store = service.store
        self._clock = service.clock
        self._offload = offload

    def routes(self) -> Routes:
        """Return the routes of `flags` and `explain`, as plain HTTP."""
        reading = {(method, "/flags"): self.flags for method in ("GET", "HEAD")}
        return Routes(http={**reading, ("POST", "/explain"): self.explain})

    def flags(self, request: Request) -> Response | Streamed:
        """What is served, up to PAGE flags from the one after `?after=KEY`; `next` is where the following
        page begins.

        `{"revision", "digest", "servedSince", "ageSeconds", "stale", "sources", "count", "flags", "next"}`;
        times are Unix seconds.
        """
        return self._offload.answer(request, JSON, self.list_flags(request))

    def list_flags(self, request: Request) -> Callable[[], bytes]:
        """Return a function that makes the document in some milliseconds."""
        snapshot = self._store.snapshot
        after = parse_qs(request.query, keep_blank_values=True).get("after", [""])[-1]
        head = self._head(snapshot)
        return lambda: _dump({**head, **self._page(snapshot, after)})

    def explain(self, request: Request) -> Response | Streamed:
        """`{"flagKey", "context"?, "type"?, "at"?}` to OFREP's answer with `steps`, `revision` and `digest`;
        200 for errors of the flag, too. `at` is a digest or a time of what was served before.
        """
        work = self.explanation(request)
        return work if isinstance(work, Response) else self._offload.answer(request, JSON, work)

    def explanation(self, request: Request) -> Response | Callable[[], bytes]:
        """Return a refusal, or a function that makes the document in up to some hundred milliseconds."""
        try:
            question = read_question(request.body)
            selected = selection(request.headers)
            if question.at is None:
                explained = partial(self._explain_served, self._service.select(selected))
            else:
                explained = partial(self._explain_version, self._version(question.at, selected))
        except _NotKept as error:
            return _refusal(404, str(error))
        except (_BadRequest, InvalidSelectorError) as error:
            return _refusal(413 if len(request.body) > MOST_BODY else 400, str(error))
        except NotReadyError as error:
            return _refusal(503, str(error))
        question = replace(
            question, context=self._service.sources.lay_over(question.context, request.headers)
        )
        return partial(explained, question, int(self._clock()))

    def _version(self, at: str, selected: Selection) -> Version:
        if selected.key:
            raise _BadRequest("at cannot be combined with a selector")
        if self._history is None:
            raise _NotKept("no earlier versions are kept; they are with --state-dir")
        try:
            version = self._history.find(at)
        except InvalidInstantError as error:
            raise _BadRequest(str(error)) from None
        if version is None:
            raise _NotKept(f"no version is kept for {at}")
        return version

    def _explain_served(self, snapshot: Snapshot, question: ExplainQuery, now: int) -> bytes:
        explanation = explain(snapshot.compiled, question.key, question.wanted, question.context, now)
        return _dump({
            **_answer(question.key, explanation.resolution),
            "source": self._store.catalog.source_of(question.key),
            "revision": snapshot.revision,
            "digest": snapshot.digest,
            "steps": [step.document() for step in explanation.steps],
        })  # fmt: skip

    def _explain_version(self, version: Version, question: ExplainQuery, now: int) -> bytes:
        """Explain an earlier definition, evaluated at the given time, or now if a digest was given."""
        flag_set = version.read()
        moment = int(instant(question.at)) if question.at and not question.at.startswith("sha256:") else now
        compiled = self._store.compile(flag_set)
        explanation = explain(compiled, question.key, question.wanted, question.context, moment)
        return _dump({
            **_answer(question.key, explanation.resolution),
            "revision": flag_set.revision,
            "digest": version.digest,
            "servedSince": version.since,
            "steps": [step.document() for step in explanation.steps],
        })  # fmt: skip

    def _head(self, snapshot: Snapshot | None) -> dict[str, Any]:
        store, now = self._store, self._clock()
        return {
            "revision": None if snapshot is None else snapshot.revision,
            "digest": None if snapshot is None else snapshot.digest,
            "servedSince": None if snapshot is None else snapshot.served_since,
            "ageSeconds": store.age(now),
            "stale": staleness(store.longest_staleness),
            "sources": [source(status, now) for status in store.statuses],
        }

    def _page(self, snapshot: Snapshot | None, after: str) -> dict[str, Any]:
        """Return the rest of the document: `count`, `flags` and `next`."""
        if snapshot is None:
            return {"count": 0, "flags": [], "next": None}
        every = snapshot.compiled.keys_in_order
        first = bisect_right(every, after) if after else 0
        keys = every[first : first + PAGE]
        return {
            "count": len(every),
            "flags": [self._flag(snapshot, key) for key in keys],
            "next": keys[-1] if first + PAGE < len(every) else None,
        }

    def _flag(self, snapshot: Snapshot, key: str) -> dict[str, Any]:
        flag = snapshot.flag_set.flags[key]
        metadata = dict(flag.metadata_under(snapshot.flag_set.metadata))
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


def source(status: ServedSource, now: float) -> dict[str, Any]:
    """Return a source as JSON."""
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


def read_question(body: bytes) -> ExplainQuery:
    """Parse a request to /explain; raises ValueError for an invalid one."""
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
    at = document.get("at")
    if not isinstance(at, str | None):
        raise _BadRequest("at must be a text")
    return ExplainQuery(document["flagKey"], _read_type(document.get("type")), context or {}, at)


def _read_type(name: object) -> FlagType | None:
    if name is None:
        return None
    known = {type_.value.lower(): type_ for type_ in FlagType}
    if not isinstance(name, str) or name.lower() not in known:
        raise _BadRequest(f"type must be one of {', '.join(known)}")
    return known[name.lower()]


def _type(flag: Flag) -> str | None:
    kind = flag_type(flag)
    if kind is FlagType.FLOAT and all(isinstance(value, int) for value in flag.variants.values()):
        kind = FlagType.INTEGER
    return None if kind is None else kind.value.lower()


def _answer(key: str, resolution: Resolution) -> dict[str, Any]:
    document = answer(key, resolution)
    if "value" in document:
        document["value"] = json_value(document["value"])
    return document


def _dump(document: dict[str, Any]) -> bytes:
    # Keys of a flag's value may be numbers after YAML, and whole numbers larger than 64 bits are written as
    # text.
    return orjson.dumps(document, default=str, option=orjson.OPT_NON_STR_KEYS)


def _refusal(status: int, why: str) -> Response:
    retry = (("retry-after", str(RETRY_SECONDS)),) if status == 503 else ()
    return Response(status, orjson.dumps({"error": why}), (*JSON, *retry))


log = logging.getLogger(__name__)

PROMETHEUS: Final[Headers] = (("content-type", "text/plain; version=0.0.4; charset=utf-8"),)


class Start:
    """Whether the application in the same pod may start: there are flags, or the deadline is over."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waited = False

    def give_up(self) -> None:
        """Allow the start without flags."""
        self._waited = True
        if not is_ready(self._store):
            log.warning("no flags came in time: applications start with the defaults in their code")

    @property
    def allowed(self) -> bool:
        """The status of /startz."""
        return self._waited or is_ready(self._store)


def routes(
    store: Store, metrics: Metrics, offload: Offload, clock: Callable[[], float], start: Start
) -> Routes:
    """`/healthz`, `/startz`, `/readyz` and `/metrics`, for GET and HEAD."""

    def healthz(_: Request) -> Response:
        return Response(200, b'{"status":"ok"}', JSON)

    def startz(_: Request) -> Response:
        body = {"started": start.allowed, "ready": is_ready(store)}
        return Response(200 if start.allowed else 412, orjson.dumps(body), JSON)

    def readyz(_: Request) -> Response:
        status = 200 if is_ready(store) else 412
        return Response(status, orjson.dumps(readiness(store, clock())), JSON)

    def scrape(request: Request) -> Response | Streamed:
        return offload.answer(request, PROMETHEUS, metrics.text)

    paths: dict[str, HttpHandler] = {
        "/healthz": healthz,
        "/startz": startz,
        "/readyz": readyz,
        "/metrics": scrape,
    }
    return Routes(http={(method, path): run for path, run in paths.items() for method in ("GET", "HEAD")})


def is_ready(store: Store) -> bool:
    """Whether a flag set is served and every source has delivered or failed; from then on for good, as stale
    flags are served.

    Until then the answer is flagd's 412: a client that waits for it would otherwise miss the flags of a
    source that takes longer.
    """
    return store.known and store.settled


def readiness(store: Store, now: float) -> dict[str, Any]:
    """What is served and how current it is: `{"ready", "revision", "digest", "flags", "ageSeconds", "stale",
    "sources"}`.

    `stale` is null or `{"reason", "since"}`, that of the source that is stale for longest; times are Unix
    seconds.
    """
    snapshot = store.snapshot
    return {
        "ready": is_ready(store),
        "revision": None if snapshot is None else snapshot.revision,
        "digest": None if snapshot is None else snapshot.digest,
        "flags": 0 if snapshot is None else len(snapshot.flag_set.flags),
        "ageSeconds": store.age(now),
        "stale": staleness(store.longest_staleness),
        "sources": [source(status, now) for status in store.statuses],
    }
