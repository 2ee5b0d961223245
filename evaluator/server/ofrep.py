"""OFREP 0.3.0 (https://github.com/open-feature/protocol): one flag, or all of them with an ETag over the whole answer."""

from __future__ import annotations

import hashlib
import re
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import orjson

from evaluator.flags.model import ABSENT
from evaluator.http.routes import Deferred, Response, Routes, at_once, header
from evaluator.resolve import ErrorCode, resolve, resolve_all
from evaluator.server import ofrep_events
from evaluator.server.context import TOO_MANY, read_too_deep
from evaluator.server.counting import LARGE, too_many_in_json
from evaluator.server.evaluation import BRIEF, FEW, STEP
from evaluator.server.metrics import remember
from evaluator.server.selection import InvalidSelectorError, selection

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from evaluator.flags.model import Json
    from evaluator.http.routes import Headers, HttpHandler, Request
    from evaluator.resolve import Resolution, Resolver
    from evaluator.server.context import ContextSources
    from evaluator.server.metrics import Encoded, Metrics
    from evaluator.server.ofrep_events import ChangeStreams
    from evaluator.server.selection import Selection
    from evaluator.store import Snapshot, Store

PREFIX: Final = "/ofrep/v1/evaluate/flags"
JSON: Final[Headers] = (("content-type", "application/json"),)
ERRORS: Final = {
    ErrorCode.FLAG_NOT_FOUND: (404, "flag `{key}` does not exist"),
    ErrorCode.PARSE_ERROR: (400, "error parsing the flag `{key}`"),
    ErrorCode.TYPE_MISMATCH: (400, "error processing the flag for evaluation"),
    ErrorCode.GENERAL: (400, "error processing the flag for evaluation"),
}
"""flagd's HTTP status and text for each error of one flag."""

_ETAG: Final = re.compile(r'(?:W/)?("[^"]*")')


class _BadRequest(Exception):
    """The request cannot be answered: the fields of the error body."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(details)
        self.code = code


def routes(ofrep: Ofrep, changes: ChangeStreams | None) -> Routes:
    """A flag's key, and the selector of an event stream, is the rest of the path, slashes included."""
    http: dict[tuple[str, str], HttpHandler] = {
        ("POST", PREFIX): ofrep.bulk,
        ("POST", f"{PREFIX}/"): ofrep.bulk,
        ("POST", f"{PREFIX}/*"): ofrep.single,
    }
    if changes is not None:
        http[("GET", ofrep_events.PATH)] = http[("GET", f"{ofrep_events.PATH}/*")] = changes.open
    return Routes(http=http)


class Ofrep:
    """Answers from the store's current snapshot; bodies of successful answers are encoded once."""

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        sources: ContextSources,
        clock: Callable[[], float],
        *,
        resolver: Resolver = resolve,
        changes: ChangeStreams | None = None,
    ) -> None:
        """changes: what bulk answers advertise; None: nothing."""
        self._store = store
        self._changes = changes
        self._metrics = metrics
        self._sources = sources
        self._clock = clock
        self._resolver = resolver
        self._bodies: dict[Resolution, Encoded] = {}
        self.close = store.subscribe(self._forget, self._forget)

    def single(self, request: Request) -> Response | Deferred[Response]:
        """POST …/flags/{key}."""
        key = request.path[len(PREFIX) + 1 :]
        if not key:
            return self.bulk(request)
        if len(request.body) > LARGE:
            return Deferred(_aside(partial(self._single, key), request))
        return self._single(key, request)

    def _single(self, key: str, request: Request) -> Response:
        try:
            snapshot = selection_of(request).of(self._store)
            context = self._sources.lay_over(read_context(request.body), request.headers)
        except _BadRequest as error:
            return _json(400, {"key": key, "errorCode": error.code, "errorDetails": str(error)})
        if snapshot is None:
            return _json(404, _error_body(key, ErrorCode.FLAG_NOT_FOUND, {}))
        resolution = self._resolver(snapshot.compiled, key, None, context, int(self._clock()))
        body = self._body(self._bodies, key, resolution)
        if resolution.error_code is None:
            return Response(200, body, JSON)
        return Response(ERRORS[_known(resolution.error_code)][0], body, JSON)

    def bulk(self, request: Request) -> Response | Deferred[Response]:
        """POST …/flags: every flag, disabled and failing ones included."""
        if len(request.body) > LARGE:
            return Deferred(_aside(self._bulk, request))
        return self._bulk(request)

    def _bulk(self, request: Request) -> Response | Deferred[Response]:
        try:
            selected = selection_of(request)
            context = self._sources.lay_over(read_context(request.body), request.headers)
        except _BadRequest as error:
            return _json(400, {"errorCode": error.code, "errorDetails": str(error)})
        snapshot = selected.of(self._store)
        rest: dict[str, Any] = {"metadata": dict(selected.metadata)}
        if self._changes is not None:
            rest["eventStreams"] = self._changes.advertised(selected)
        steps = self._all(request, snapshot, context, rest)
        few = snapshot is None or len(snapshot.compiled) <= FEW
        return at_once(steps) if few and len(request.body) <= BRIEF else Deferred(steps)

    def _all(
        self,
        request: Request,
        snapshot: Snapshot | None,
        context: Mapping[str, Json],
        rest: Mapping[str, Any],
    ) -> Generator[None, None, Response]:
        """All flags of what was served when it was asked for, whatever is served by the end."""
        pieces, digest = [b'{"flags":['], hashlib.blake2b(b'{"flags":[', digest_size=16)
        resolved: Iterator[tuple[str, Resolution]] = iter(())
        if snapshot is not None:
            resolved = resolve_all(snapshot.compiled, context, int(self._clock()))
        bodies, between = self._bodies, b""
        step = STEP if len(request.body) <= BRIEF else 1
        while some := [self._body(bodies, key, found) for key, found in islice(resolved, step)]:
            piece = between + b",".join(some)
            pieces.append(piece)
            digest.update(piece)
            between = b","
            yield
        pieces.append(b"]," + orjson.dumps(rest)[1:])
        digest.update(pieces[-1])
        etag = f'"{digest.hexdigest()}"'
        if matches(header(request.headers, "if-none-match"), etag) and _agrees(request, snapshot):
            return Response(304, b"", (("etag", etag),))
        return Response(200, b"".join(pieces), (*JSON, ("etag", etag)))

    def _body(self, bodies: dict[Resolution, Encoded], key: str, resolution: Resolution) -> bytes:
        known = bodies.get(resolution)
        if known is None:
            known = (_encode(key, resolution), self._metrics.tally(key, resolution))
            if resolution.error_code is None:
                remember(bodies, resolution, known)
        known[1].count += 1
        return known[0]

    def _forget(self, _: Snapshot) -> None:
        # Anew, not emptied: an answer that is being made still fills the old one.
        self._bodies = {}


def _aside(
    answer: Callable[[Request], Response | Deferred[Response]], request: Request
) -> Generator[None, None, Response]:
    """What `answer` says to a large request, once others have had their turn."""
    yield
    found = answer(request)
    return (yield from found.steps) if isinstance(found, Deferred) else found


def selection_of(request: Request) -> Selection:
    """The request's selection."""
    try:
        return selection(request.headers)
    except InvalidSelectorError as error:
        raise _BadRequest("GENERAL", f"invalid selector: {error}") from error


def read_context(body: bytes) -> dict[str, Any]:
    """`context` of a request body. No body, no context, or one that is no object: an empty one, as flagd has it."""
    if not body:
        return {}
    if too_many_in_json(body):
        raise _BadRequest("INVALID_CONTEXT", TOO_MANY)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _BadRequest("INVALID_CONTEXT", "Provider context is not valid") from error
    if document is None:
        return {}
    if not isinstance(document, dict) or read_too_deep(document, body):
        raise _BadRequest("INVALID_CONTEXT", "Provider context is not valid")
    context = document.get("context")
    return context if isinstance(context, dict) else {}


def matches(if_none_match: str | None, etag: str) -> bool:
    """RFC 9110, 13.1.2: weak comparison with each member of the list, or `*`."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or etag in _ETAG.findall(if_none_match)


def _agrees(request: Request, snapshot: Snapshot | None) -> bool:
    """Whether what an event told the client to fetch is what is served here; if not, ADR 0008 wants a full answer."""
    told = parse_qs(request.query).get("flagConfigEtag") if request.query else None
    return told is None or (snapshot is not None and told[0].strip('"') == snapshot.digest)


def _encode(key: str, resolution: Resolution) -> bytes:
    if resolution.error_code is not None:
        return orjson.dumps(_error_body(key, resolution.error_code, dict(resolution.metadata)))
    body: dict[str, Any] = {"key": key, "reason": resolution.reason.value}
    if resolution.value is not ABSENT:
        body["value"] = resolution.value
    if resolution.variant is not None:
        body["variant"] = resolution.variant
    body["metadata"] = dict(resolution.metadata)
    return orjson.dumps(body)


def _known(code: ErrorCode) -> ErrorCode:
    return code if code in ERRORS else ErrorCode.GENERAL


def _error_body(key: str, code: ErrorCode, metadata: dict[str, Any]) -> dict[str, Any]:
    details = ERRORS[_known(code)][1].format(key=key)
    return {"key": key, "errorCode": code.value, "errorDetails": details, "metadata": metadata}


def _json(status: int, body: dict[str, Any]) -> Response:
    return Response(status, orjson.dumps(body), JSON)
