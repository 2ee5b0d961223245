"""Has reviews judged in helper processes, and answers the API server.

A judgement that takes too long, or that nobody waits for any more, ends with its process.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qs

import orjson

from controller.runtime.helper import TaskLimits
from controller.runtime.helpers import HelperLostError, Helpers, LimitExceededError
from evaluator.host.times import parse_duration
from evaluator.http.messages import ByteStream, Request, Response, Streamed
from evaluator.http.offload import send_result

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from controller.runtime.limits import Places


JSON: Final = (("content-type", "application/json"),)
_SHOWN: Final = 8_000
"""Characters of a refusal: it may repeat what the object says."""


def review_response(
    uid: str,
    refusal: str = "",
    warnings: Sequence[str] = (),
    patch: Sequence[dict[str, Any]] = (),
    *,
    late: bool = False,
) -> dict[str, Any]:
    """The AdmissionReview to send back: allowed, with a JSON patch if there is one, or refused. `late`: a
    refusal is of the time that a judgement takes, and not of the object.
    """
    response: dict[str, Any] = {"uid": uid, "allowed": not refusal}
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(patch)).decode()}
    if refusal:
        code, reason = (504, "Timeout") if late else (422, "Invalid")
        response["status"] = {"code": code, "reason": reason, "message": refusal[:_SHOWN]}
    if warnings:
        response["warnings"] = list(warnings)
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def failure(status: int, message: str) -> Response:
    """An answer that is no review; after one of 503 the API server asks again within its patience."""
    again = (("retry-after", "1"),) if status == 503 else ()
    return Response(status, orjson.dumps({"message": message}), (*JSON, *again))


T = TypeVar("T")

HELPERS: Final = 2
"""Processes of one webhook: one namespace has half of them."""
MOST_WAITING: Final = 8
"""Reviews of one webhook that wait for a process; one namespace has half of them."""
_LIMITS: Final = TaskLimits(memory_bytes=256 * 1024**2, cpu_seconds=10.0)
_SHARE: Final = 0.8
"""The part of the API server's patience that a review takes; the rest is for its way there and back."""
_PATIENCE: Final = 10.0
"""Kubernetes' default of `timeoutSeconds`."""
_PATIENCE_AT_MOST: Final = 30.0
"""What Kubernetes allows."""

log = logging.getLogger(__name__)


class NotJudged(Exception):
    """There is no judgement; the text says why."""


def seconds_of(request: Request) -> float:
    """The seconds for a review: less than the webhook's `timeoutSeconds`, which the API server gives as
    `?timeout=10s`.
    """
    given = parse_duration(parse_qs(request.query).get("timeout", [""])[0])
    patience = _PATIENCE if given is None else min(given, _PATIENCE_AT_MOST)
    return max(0.0, _SHARE * patience - request.waited)


@dataclass(frozen=True, slots=True)
class Judges:
    """The processes of one webhook."""

    helpers: Helpers
    places: Places

    async def judge(self, namespace: str, seconds: float, function: Callable[..., T], *arguments: Any) -> T:
        """Return or raise what `function` of a module does, once it is the namespace's turn. Raises
        NotJudged.
        """
        if self.places.is_full(namespace):
            raise NotJudged(f"too many others of namespace {namespace} are being judged")
        try:
            async with asyncio.timeout(seconds), self.places.place(namespace):
                return await self.helpers.run(_LIMITS, function, *arguments)
        except TimeoutError:
            raise NotJudged(f"that took longer than {seconds:g} seconds") from None
        except LimitExceededError as error:
            allowed = _LIMITS.describe_limit(error.limit)
            raise NotJudged(f"that needs more {error.limit} than it may use ({allowed})") from None
        except HelperLostError as error:
            log.error("a review was not judged: %s", error)  # noqa: TRY400 - the place does not matter
            raise NotJudged("the process that judges it was lost") from None


def answer_later(review: Coroutine[Any, Any, bytes]) -> Streamed:
    """The response whose body `review` makes; it is cancelled once the API server waits no longer."""

    def start(stream: ByteStream) -> None:
        send_result(stream, asyncio.ensure_future(review))

    return Streamed(200, JSON, start)
