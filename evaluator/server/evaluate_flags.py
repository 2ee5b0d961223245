"""OFREP 0.3.0 (https://github.com/open-feature/protocol): one flag, or all of them with an ETag."""

from __future__ import annotations

import hashlib
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import orjson

from evaluator.flags.model import ABSENT, Flag
from evaluator.http.deferred import Deferred, at_once
from evaluator.http.messages import JSON, Request, Response, RpcError, header
from evaluator.http.routes import HttpHandler, Routes
from evaluator.resolving.resolution import ErrorCode, Resolution
from evaluator.server import sse
from evaluator.server.context import MOST_VALUES, TOO_MANY, json_value, read_too_deep, too_many_in_json
from evaluator.server.service import (
    RETRY_SECONDS,
    EvaluationService,
    NotReadyError,
    Selection,
    flags_per_step,
    is_large,
    selection,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from evaluator.server.sse import ChangeStreams
    from evaluator.store.snapshot import Snapshot

PREFIX: Final = "/ofrep/v1/evaluate/flags"
ERRORS: Final = {
    ErrorCode.FLAG_NOT_FOUND: (404, "flag `{key}` does not exist"),
    ErrorCode.PARSE_ERROR: (400, "error parsing the flag `{key}`"),
    ErrorCode.TYPE_MISMATCH: (400, "error processing the flag for evaluation"),
    ErrorCode.GENERAL: (400, "error processing the flag for evaluation"),
}
"""flagd's HTTP status and text for each error of one flag."""

_INVALID: Final = "Provider context is not valid"
_UNENCODABLE: Final = (ValueError, TypeError, OverflowError, RecursionError)
_ESCAPE: Final = re.compile(
    rb"\\(?:ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|(ud[89a-f][0-9a-f]{2})|.)", re.IGNORECASE | re.DOTALL
)
"""An escape within a JSON text; the group is half of a surrogate pair that stands alone."""
_ETAG: Final = re.compile(r'(?:W/)?("[^"]*")')


class InvalidRequestError(Exception):
    """The request cannot be answered: the fields of the error body, and the HTTP status."""

    def __init__(self, code: str, details: str, status: int = 400) -> None:
        super().__init__(details)
        self.code = code
        self.status = status


def routes(ofrep: Ofrep, changes: ChangeStreams | None) -> Routes:
    """A flag's key, and the selector of an event stream, is the rest of the path, slashes included."""
    http: dict[tuple[str, str], HttpHandler] = {
        ("POST", PREFIX): ofrep.bulk,
        ("POST", f"{PREFIX}/"): ofrep.bulk,
        ("POST", f"{PREFIX}/*"): ofrep.single,
    }
    if changes is not None:
        http[("GET", sse.PATH)] = http[("GET", f"{sse.PATH}/*")] = changes.open
    return Routes(http=http)


class Ofrep:
    """OFREP's evaluations; bodies of successful answers are encoded once."""

    def __init__(self, service: EvaluationService, changes: ChangeStreams | None = None) -> None:
        """changes: what bulk answers advertise; None: nothing."""
        self._service = service
        self._changes = changes

    def single(self, request: Request) -> Response | Deferred[Response]:
        """POST …/flags/{key}."""
        key = request.path[len(PREFIX) + 1 :]
        if not key:
            return self.bulk(request)
        if is_large(request.body):
            return Deferred(_later(partial(self._single, key, request)))
        return self._single(key, request)

    def _single(self, key: str, request: Request) -> Response:
        try:
            snapshot = self._service.snapshot_for(request.headers)
            context = read_context(request.body)
        except (RpcError, InvalidRequestError) as error:
            return refusal(error, key=key)
        resolution = self._service.evaluate(snapshot, request.headers, key, lambda: context)
        return snapshot.kept[self].get(resolution) or self._answer(snapshot, key, resolution)

    def bulk(self, request: Request) -> Response | Deferred[Response]:
        """POST …/flags: every flag, disabled and failing ones included.

        All answers are from the flags that were served when the request came.
        """
        try:
            selected = selection(request.headers)
            snapshot = self._service.select(selected)
        except RpcError as error:
            return refusal(error)
        steps = self._all(request, selected, snapshot)
        return Deferred(steps) if is_large(request.body, len(snapshot.compiled)) else at_once(steps)

    def _all(
        self, request: Request, selected: Selection, snapshot: Snapshot
    ) -> Generator[None, None, Response]:
        yield
        try:
            context = read_context(request.body)
        except InvalidRequestError as error:
            return refusal(error)
        rest: dict[str, Any] = {"metadata": dict(selected.metadata)}
        if self._changes is not None:
            rest["eventStreams"] = self._changes.stream_links(selected)
        resolutions = self._service.evaluate_all(snapshot, request.headers, context)
        pieces, answers, step = list[bytes](), snapshot.kept[self], flags_per_step(request.body)
        for number, (key, resolution) in enumerate(resolutions, 1):
            answer = answers.get(resolution) or self._answer(snapshot, key, resolution)
            pieces.append(answer.body)
            if number % step == 0:
                yield
        whole = b'{"flags":[%b],%b' % (b",".join(pieces), orjson.dumps(rest)[1:])
        yield
        etag = f'"{hashlib.blake2b(whole, digest_size=16).hexdigest()}"'
        if matches(header(request.headers, "if-none-match"), etag) and _agrees(request, snapshot):
            return Response(304, b"", (("etag", etag),))
        return Response(200, whole, (*JSON, ("etag", etag)))

    def _answer(self, snapshot: Snapshot, key: str, resolution: Resolution) -> Response:
        """Return the response of one flag; responses without an error are cached."""
        flag = snapshot.flag_set.flags.get(key)
        response = Response(*_encode(key, resolution, flag), JSON)
        if resolution.error_code is None:
            snapshot.kept[self][resolution] = response
        return response


def _later(answer: Callable[[], Response]) -> Generator[None, None, Response]:
    """What a large request is answered, once others have had their turn."""
    yield
    return answer()


def read_context(body: bytes) -> dict[str, Any]:
    """`context` of a request body; empty without a body or an object of that name, as in flagd. Raises
    InvalidRequestError.
    """
    context = read_document(body).get("context") if body else None
    return context if isinstance(context, dict) else {}


def read_document(body: bytes) -> dict[str, Any]:
    """The object that a body is; empty for null. Raises InvalidRequestError."""
    if too_many_in_json(body):
        raise InvalidRequestError("INVALID_CONTEXT", TOO_MANY)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = _loads_halves(body)
    if document is None:
        return {}
    if not isinstance(document, dict) or read_too_deep(document, body):
        raise InvalidRequestError("INVALID_CONTEXT", _INVALID)
    return document


def _loads_halves(body: bytes) -> Any:
    """JSON with half of a surrogate pair, from a text that was cut within an emoji: flagd reads U+FFFD."""
    try:
        if b"\\u" in body and body.count(b"\\") <= MOST_VALUES:
            return orjson.loads(_ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], body))
    except orjson.JSONDecodeError:
        pass
    raise InvalidRequestError("INVALID_CONTEXT", _INVALID)


def matches(if_none_match: str | None, etag: str) -> bool:
    """RFC 9110, 13.1.2: weak comparison with each member of the list, or `*`."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or etag in _ETAG.findall(if_none_match)


def _agrees(request: Request, snapshot: Snapshot) -> bool:
    """Whether the client wants, after an event, what is served here; if not, the answer must be full."""
    etag = parse_qs(request.query).get("flagConfigEtag") if request.query else None
    return etag is None or etag[0].strip('"') == snapshot.digest


def _encode(key: str, resolution: Resolution, flag: Flag | None) -> tuple[int, bytes]:
    code = resolution.error_code
    try:
        if code is None:
            return 200, orjson.dumps(_success(key, resolution, flag))
        return _error(key, code, json_value(dict(resolution.metadata)))
    except _UNENCODABLE:
        # One flag that JSON cannot hold must not take down the others.
        return _error(key, code or ErrorCode.PARSE_ERROR, {})


def _success(key: str, resolution: Resolution, flag: Flag | None) -> dict[str, Any]:
    body: dict[str, Any] = {"key": key, "reason": resolution.reason.value}
    value = resolution.value
    if value is not ABSENT:
        # Clients infer the type of a number from its text, and one that expects a float refuses `0`.
        body["value"] = float(value) if type(value) is int and _has_fractions(flag) else json_value(value)
    # Never absent, though it may be by the protocol: a published provider reads it unconditionally.
    body["variant"] = resolution.variant or ""
    body["metadata"] = json_value(dict(resolution.metadata))
    return body


def _has_fractions(flag: Flag | None) -> bool:
    """Return whether the flag is one of floats: a variant is no whole number."""
    return flag is not None and any(type(value) is float for value in flag.variants.values())


def _error(key: str, code: ErrorCode, metadata: dict[str, Any]) -> tuple[int, bytes]:
    status, details = ERRORS.get(code, ERRORS[ErrorCode.GENERAL])
    body = {
        "key": key,
        "errorCode": code.value,
        "errorDetails": details.format(key=key),
        "metadata": metadata,
    }
    return status, orjson.dumps(body)


def refusal(error: RpcError | InvalidRequestError, **more: str) -> Response:
    """Return the answer for an error. OFREP has no error code for what is not ready: it is OpenFeature's."""
    status, headers, code, details = 400, JSON, "GENERAL", str(error)
    if isinstance(error, InvalidRequestError):
        status, code = error.status, error.code
    elif isinstance(error, NotReadyError):
        status, code, headers = 503, "PROVIDER_NOT_READY", (*JSON, ("retry-after", str(RETRY_SECONDS)))
    else:
        details = f"invalid selector: {error}"
    return Response(status, orjson.dumps({**more, "errorCode": code, "errorDetails": details}), headers)
