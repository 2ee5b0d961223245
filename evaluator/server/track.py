"""POST /track: an event of a user, as an application reports it by OpenFeature's `track`
(https://openfeature.dev/specification/sections/tracking), counted by the arm of each flag in a rollout.

The arm is computed from the evaluation context, as for an evaluation: nothing of a user is kept or sent on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from evaluator.host.times import parse_time
from evaluator.http.deferred import Deferred, at_once
from evaluator.http.messages import JSON, Request, Response, RpcError
from evaluator.http.routes import Routes
from evaluator.server.evaluate_flags import InvalidRequestError, read_document, refusal
from evaluator.server.rollout_metrics import RolloutMetrics, TooManyEventsError, UserArm
from evaluator.server.service import EvaluationService, flags_per_step, is_large, selection

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from evaluator.store.snapshot import Snapshot

PATH: Final = "/track"
MOST_BYTES: Final = 65_536
"""Most bytes of an event."""
LONGEST_NAME: Final = 100
"""Most characters of an event's name."""
ANY: Final = "*"
"""In place of the names of events: all count."""


@dataclass(frozen=True, slots=True)
class TrackedEvent:
    """An event as it was reported."""

    name: str
    context: dict[str, Any]
    """The evaluation context."""
    value: float | None
    at: float | None
    """When it happened, in Unix seconds; None: now."""


class Tracking:
    """Counts events."""

    def __init__(
        self, service: EvaluationService, metrics: RolloutMetrics, events: Sequence[str] = ()
    ) -> None:
        """events: the names of the events to count; none or ANY: all."""
        self._service = service
        self._metrics = metrics
        self._events = frozenset() if ANY in events else frozenset(events)

    def routes(self) -> Routes:
        """Return the one route."""
        return Routes(http={("POST", PATH): self.post})

    def post(self, request: Request) -> Response | Deferred[Response]:
        """POST /track. The flags are those that are served when the request arrives."""
        try:
            snapshot = self._service.select(selection(request.headers))
            event = read_event(request.body)
            self._require_wanted(event.name)
        except (RpcError, InvalidRequestError) as error:
            return refusal(error)
        keys = self._metrics.history.keys(snapshot)
        steps = self._count(request, snapshot, event, keys)
        return Deferred(steps) if is_large(request.body, len(keys)) else at_once(steps)

    def _require_wanted(self, name: str) -> None:
        if self._events and name not in self._events:
            raise InvalidRequestError(
                "GENERAL", f"the event `{name}` is not counted here: --track-events has other names"
            )

    def _count(
        self, request: Request, snapshot: Snapshot, event: TrackedEvent, keys: Sequence[str]
    ) -> Generator[None, None, Response]:
        context = self._service.complete(event.context, request.headers)
        history, now, step = self._metrics.history, self._service.clock(), flags_per_step(request.body)
        moment = int(event.at if event.at is not None else now)
        arms: list[UserArm] = []
        for number, key in enumerate(keys, 1):
            flag = history.flag_at(snapshot, key, event.at, now=now)
            if flag is not None and (arm := flag.arm_of(context, moment)) is not None:
                arms.append(UserArm(key, arm, flag.revision))
            if number % step == 0:
                yield
        try:
            self._metrics.events.add(event.name, event.value, arms)
        except TooManyEventsError as excess:
            return refusal(InvalidRequestError("GENERAL", str(excess), 429))
        flags = [{"key": arm.key, "arm": arm.arm} for arm in arms]
        return Response(200, orjson.dumps({"flags": flags}), JSON)


def read_event(body: bytes) -> TrackedEvent:
    """Return the event of a body. Raises InvalidRequestError, whose message quotes nothing of the context."""
    if len(body) > MOST_BYTES:
        raise InvalidRequestError("GENERAL", f"an event may have at most {MOST_BYTES:,} bytes", 413)
    document = read_document(body)
    name = document.get("trackingEventName")
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise InvalidRequestError(
            "GENERAL", f"trackingEventName must be a text of 1 to {LONGEST_NAME} printable characters"
        )
    context = document.get("context")
    if context is None:
        context = {}
    if not isinstance(context, dict):
        raise InvalidRequestError("INVALID_CONTEXT", "context must be an object: the evaluation context")
    details = document.get("trackingEventDetails") or {}
    if not isinstance(details, dict):
        raise InvalidRequestError("GENERAL", "trackingEventDetails must be an object")
    return TrackedEvent(name, context, _value(details.get("value")), _moment(document.get("timestamp")))


def _value(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(float(value)):
        raise InvalidRequestError("GENERAL", "the value of trackingEventDetails must be a number")
    return float(value)


def _moment(text: Any) -> float | None:
    if text is None:
        return None
    moment = parse_time(text)
    if moment is None:
        raise InvalidRequestError(
            "GENERAL", "timestamp must be a time with its zone, such as 2026-01-02T03:04:05Z"
        )
    return moment.timestamp()
