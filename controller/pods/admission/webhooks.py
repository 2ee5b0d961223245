"""The webhooks: evaluators for pods, and the judgement of objects of our kinds as they are written."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson

from controller.api.kinds import WATCHED
from controller.api.objects.meta import GROUP, OPENFEATURE_GROUP, Resource
from controller.pods.admission.admission_answers import JSON, failure, review_response
from controller.pods.admission.judging import NotJudged, answer_later, seconds_of
from controller.pods.injection.pod_injection import MOST_BYTES, inject
from controller.pods.settings.installation import Refused
from controller.pods.settings.pod_orders import Surroundings
from controller.runtime.user_text.plain_text import one_line
from evaluator.http.messages import Response
from evaluator.http.routes import Routes
from evaluator.http.server.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from controller.api.objects.meta import ObjectKey
    from controller.pods.admission.judging import Judges
    from controller.pods.settings.installation import Known, Options
    from evaluator.http.messages import Request, Streamed

log = logging.getLogger(__name__)

LIMITS: Final = Limits(body_bytes=4 * 1024 * 1024, connections=1_000, buffered_bytes=96 * 1024 * 1024)
"""A review holds one object, of an update also the one before, which have 1.5 MiB at most each. All come from
one address, that of the API server, and often by one connection: what it holds at most are the reviews that
wait for, or have, a process of either webhook.
"""
INJECTED: Final = "injected"
REFUSED: Final = "refused"
UNCHANGED: Final = "unchanged"
UNJUDGED: Final = "unjudged"
_LOGGED: Final = 1_000
MOST_POD: Final = 2 * 1024 * 1024
"""Bytes of a review of one pod: the cluster stores no pod of more than 1.5 MiB."""


_JUDGED: Final = frozenset(
    (type_.group, type_.kind) for type_ in WATCHED if type_.group in {GROUP, OPENFEATURE_GROUP}
)
"""(group, kind) of what `Validator` judges."""


class InvalidReviewError(ValueError):
    """The body is no AdmissionReview of a pod."""


def answer(
    review: object,
    options: Options,
    known: Known,
    labels_of: Callable[[str], Mapping[str, str] | None] = lambda _namespace: None,
) -> tuple[str, dict[str, Any]]:
    """(INJECTED, REFUSED or UNCHANGED; the AdmissionReview to send back). `labels_of` returns the labels of a
    Namespace that has standing orders. Raises InvalidReviewError.
    """
    request = review.get("request") if isinstance(review, dict) else None
    pod = request.get("object") if isinstance(request, dict) else None
    if not (isinstance(request, dict) and isinstance(pod, dict) and pod.get("kind") == "Pod"):
        raise InvalidReviewError("not an AdmissionReview of a Pod")
    uid, namespace = str(request.get("uid", "")), str(request.get("namespace", ""))
    try:
        changes = inject(pod, namespace, options, known, Surroundings(labels_of(namespace)))
    except Refused as refusal:
        return REFUSED, review_response(uid, str(refusal))
    warnings = () if changes is None else changes.warnings
    if changes is None or not changes.patch:
        return UNCHANGED, review_response(uid, warnings=warnings)
    review = review_response(uid, warnings=warnings, patch=changes.patch)
    if len(review["response"]["patch"]) > MOST_BYTES:
        message = f"the evaluator's part of the pod has more than {MOST_BYTES} bytes; name fewer sources"
        return REFUSED, review_response(uid, message)
    return INJECTED, review


@dataclass(frozen=True, slots=True)
class Injector:
    """Injects evaluators within the request: everything that it needs is known."""

    known: Known
    options: Options
    ready: Callable[[], bool]
    """Whether all objects are known: before that, nothing can be said to be missing."""
    answered: Callable[[str], None]
    """Receives the outcome of each review."""
    refused: Callable[[Mapping[str, Any], str], None]
    """Receives the request of each review that is refused, and why; must not wait."""
    namespace_labels: Callable[[str], Mapping[str, str] | None] = lambda _namespace: None
    """Returns the labels of a Namespace with a standing order, as far as it is known."""

    def routes(self) -> Routes:
        """`POST /inject` for pods that ask, `POST /inject-ordered` for all pods of Namespaces with a standing
        order.
        """
        ordered = partial(self._answer, labels_of=lambda name: self.namespace_labels(name) or {})
        return Routes(http={("POST", "/inject"): self.answer, ("POST", "/inject-ordered"): ordered})

    def answer(self, request: Request) -> Response:
        """Answer an AdmissionReview; 400 for another body, 503 while objects are still being read."""
        return self._answer(request, labels_of=self.namespace_labels)

    def _answer(self, request: Request, *, labels_of: Callable[[str], Mapping[str, str] | None]) -> Response:
        if len(request.body) > MOST_POD:
            return failure(413, f"a review of a pod has at most {MOST_POD} bytes")
        if not self.ready():
            return failure(503, "this replica does not know all objects yet; try again")
        try:
            review = orjson.loads(request.body)
            outcome, reply = answer(review, self.options, self.known, labels_of)
        except (ValueError, InvalidReviewError):
            return failure(400, "not an AdmissionReview of a Pod")
        if outcome == REFUSED:
            message = reply["response"]["status"]["message"]
            place = one_line(str(review["request"].get("namespace")), _LOGGED)
            log.info("a pod in %s is refused: %s", place, one_line(message, _LOGGED))
            self.refused(review["request"], message)
        self.answered(outcome)
        return Response(200, orjson.dumps(reply), JSON)


@dataclass(frozen=True, slots=True)
class Validator:
    """Refuses objects that no process of ours could use. Changes nothing, so a dry run is like any other."""

    objection: Callable[[bytes], tuple[str, Sequence[str]]]
    """Returns of a review (why the object is refused, or empty; what its writer is warned of). A function of
    a module: it is called in another process.
    """
    judges: Judges
    answered: Callable[[str, str], None]
    """Called with the kind and the outcome, `allowed`, `refused` or `unjudged`, of each review."""
    namespaces: Sequence[str] = ()
    """The namespaces that the controller works in; empty: all. Objects elsewhere are allowed."""

    def routes(self) -> Routes:
        """`POST /validate`."""
        return Routes(http={("POST", "/validate"): self.answer})

    def answer(self, request: Request) -> Response | Streamed:
        """Answer an AdmissionReview; 400 for another body. What cannot be judged in time is allowed, with a
        warning: so it is without admission.
        """
        try:
            asked = orjson.loads(request.body)["request"]
            uid, body = str(asked["uid"]), asked["object"]
            key = Resource.of(body).key
            judged = (str(body["apiVersion"]).rpartition("/")[0], key.kind) in _JUDGED
        except (ValueError, KeyError, TypeError, AttributeError):
            return failure(400, "not an AdmissionReview")
        if not judged:
            return failure(400, "not an AdmissionReview of a kind that is judged")
        if self.namespaces and key.namespace not in self.namespaces:
            return Response(200, orjson.dumps(review_response(uid)), JSON)
        return answer_later(self._judge(uid, key, request.body, seconds_of(request)))

    async def _judge(self, uid: str, key: ObjectKey, content: bytes, seconds: float) -> bytes:
        try:
            refusal, warnings = await self.judges.judge(key.namespace, seconds, self.objection, content)
        except NotJudged as why:
            self.answered(key.kind, UNJUDGED)
            warning = f"Flagstaff did not judge this object: {why}. Its status will say whether it is used"
            return orjson.dumps(review_response(uid, warnings=(one_line(warning, _LOGGED),)))
        if refusal:
            log.info("%s is refused: %s", one_line(str(key), _LOGGED), one_line(refusal, _LOGGED))
        self.answered(key.kind, REFUSED if refusal else "allowed")
        return orjson.dumps(review_response(uid, refusal, warnings))
