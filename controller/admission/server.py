"""The webhook: AdmissionReviews by HTTPS, answered by every replica."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from controller.injection.adding.review import REFUSED, InvalidReviewError, answer
from evaluator.http.messages import Response
from evaluator.http.routes import Routes
from evaluator.http.server.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from controller.injection.options import Known, Options
    from evaluator.http.messages import Request

log = logging.getLogger(__name__)

PATH: Final = "/inject"
LIMITS: Final = Limits(body_bytes=4 * 1024 * 1024, connections=1_000, buffered_bytes=16 * 1024 * 1024)
"""A review holds one object, of an update also the one before, which have 1.5 MiB at most each."""
JSON: Final = (("content-type", "application/json"),)


@dataclass(frozen=True, slots=True)
class Injector:
    """Answers within the request: everything that it needs is known."""

    known: Known
    options: Options
    ready: Callable[[], bool]
    """Whether all objects are known: before that, nothing can be said to be missing."""
    answered: Callable[[str], None]
    """Receives the outcome of each review."""
    refused: Callable[[Mapping[str, Any], str], None]
    """Receives the request of each review that is refused, and why; must not wait."""

    def routes(self) -> Routes:
        """`POST /inject`."""
        return Routes(http={("POST", PATH): self.answer})

    def answer(self, request: Request) -> Response:
        """The review's answer; 400 for what is none, 503 while objects are still read."""
        if not self.ready():
            return failed(503, "this replica does not know all objects yet; try again")
        try:
            review = orjson.loads(request.body)
            outcome, reply = answer(review, self.options, self.known)
        except (ValueError, InvalidReviewError):
            return failed(400, "not an AdmissionReview of a Pod")
        if outcome == REFUSED:
            message = reply["response"]["status"]["message"]
            log.info("a pod in %s is refused: %s", review["request"].get("namespace"), message)
            self.refused(review["request"], message)
        self.answered(outcome)
        return Response(200, orjson.dumps(reply), JSON)


def failed(status: int, message: str) -> Response:
    """An answer that is no review."""
    return Response(status, orjson.dumps({"message": message}), JSON)
