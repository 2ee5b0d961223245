"""The webhooks: evaluators for pods, flags and orders of workloads, and objects of our kinds.

Workloads with bad flags or orders are refused, and the pods of others ask for an evaluator.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson

from controller.api import kinds
from controller.api.flagoverride import KIND, SET_BY, moment_of
from controller.api.meta import ObjectKey, Resource
from controller.api.parsing import InvalidTextError
from controller.authoring.policies import may_refuse
from controller.pods.carried_flags import (
    KINDS,
    MOST_APPLIED,
    MOST_BYTES,
    CarriedFlags,
    WorkloadAuthor,
    WorkloadOrders,
    carried_flags,
    is_run_of_cron_job,
    mark,
    text_of,
    unmark,
    warnings_of,
    write_remark,
)
from controller.pods.changes import ObjectPatch
from controller.pods.installation import Known, Options, PodRefused
from controller.pods.judging import (
    JSON,
    Judges,
    NotJudged,
    answer_later,
    failure,
    review_response,
    seconds_of,
)
from controller.pods.marked_workloads import name_refusal
from controller.pods.pod_injection import MOST_BYTES as MOST_PATCH_BYTES
from controller.pods.pod_injection import inject
from controller.pods.pod_orders import Surroundings
from controller.runtime.plain_text import one_line
from evaluator.host.times import timestamp
from evaluator.http.limits import Limits
from evaluator.http.messages import Request, Response, Streamed
from evaluator.http.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from controller.authoring.policies import Circumstances
    from controller.runtime.cache import Cache


log = logging.getLogger(__name__)

RECORDED: Final = "recorded"
REFUSED: Final = "refused"
_ANNOTATIONS: Final = ("metadata", "annotations")
_NO_REVIEW: Final = "not an AdmissionReview of a FlagOverride"
_LOGGED: Final = 1_000


@dataclass(frozen=True, slots=True)
class OverrideWebhook:
    """Answers from the review alone, and writes nothing, so a dry run is like any other."""

    max_days: float
    """Days ahead that an override may end at most."""
    reviewed: Callable[[str, str], None]
    """Receives kind and outcome of each review."""
    now: Callable[[], datetime]

    def routes(self) -> Routes:
        """`POST /override`."""
        return Routes(http={("POST", "/override"): self.answer})

    def answer(self, request: Request) -> Response:
        """Answer an AdmissionReview; 400 for another body."""
        try:
            asked = orjson.loads(request.body)["request"]
            uid, override, before = str(asked["uid"]), asked["object"], asked.get("oldObject")
            user = str(asked["userInfo"]["username"])
            maps = isinstance(override["metadata"], dict) and isinstance(before, dict | None)
            if not maps or override["kind"] != KIND:
                return failure(400, _NO_REVIEW)
        except (ValueError, KeyError, TypeError, AttributeError):
            return failure(400, _NO_REVIEW)
        changed = before is None or before.get("spec") != override.get("spec")
        refusal = self._refusal(override.get("spec")) if changed else ""
        if refusal:
            name = one_line(str(override["metadata"].get("name")), _LOGGED)
            log.info("FlagOverride %s is refused: %s", name, one_line(refusal, _LOGGED))
        self.reviewed(KIND, REFUSED if refusal else RECORDED)
        known = None if before is None else _set_by(before)
        patch = () if refusal else _record(override, user if changed else known)
        return Response(200, orjson.dumps(review_response(uid, refusal, patch=patch)), JSON)

    def _refusal(self, spec: Any) -> str:
        """Why the expiry is refused. The schema refuses what is no time, and the rest of the spec."""
        text = spec.get("expiresAt") if isinstance(spec, dict) else None
        try:
            moment = moment_of(str(text))
        except InvalidTextError as error:
            return f"spec.expiresAt: {error}"
        now = self.now()
        if moment <= now:
            return f"spec.expiresAt: {one_line(str(text), _LOGGED)} is in the past; name a time to come"
        if moment > now + timedelta(days=self.max_days):
            return (
                f"spec.expiresAt: an override lasts {self.max_days:g} days at most; for longer, change the "
                "flag in Git"
            )
        return ""


def _set_by(body: Mapping[str, Any]) -> str | None:
    metadata = body.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    value = annotations.get(SET_BY) if isinstance(annotations, dict) else None
    return value if isinstance(value, str) else None


def _record(override: Mapping[str, Any], user: str | None) -> list[dict[str, Any]]:
    """The patch after which the annotation names `user`; None: after which there is none."""
    changes = ObjectPatch(override)
    if user is not None:
        changes.merge(_ANNOTATIONS, {SET_BY: user})
    elif SET_BY in (override["metadata"].get("annotations") or {}):
        changes.remove((*_ANNOTATIONS, SET_BY))
    return changes.patch


MARKED: Final = "marked"
UNCHANGED: Final = "unchanged"
UNJUDGED: Final = "unjudged"


@dataclass(frozen=True, slots=True)
class WorkloadWebhook:
    """Answers from what is known, and writes nothing, so a dry run is like any other."""

    objects: Cache
    enabled: bool
    """Whether the controller writes the flags of workloads."""
    namespaces: Sequence[str]
    """The namespaces that the controller works in; empty: all."""
    ready: Callable[[], bool]
    """Whether all objects are known: before that, no name can be called free."""
    judges: Judges
    reviewed: Callable[[str, str], None]
    """Receives kind and outcome of each review."""
    now: Callable[[], datetime]
    orders: WorkloadOrders

    def routes(self) -> Routes:
        """`POST /inject-workload`."""
        return Routes(http={("POST", "/inject-workload"): self.answer})

    def answer(self, request: Request) -> Response | Streamed:
        """Answer an AdmissionReview; 400 for another body, 503 while objects are still being read."""
        if not self.ready():
            return failure(503, "this replica does not know all objects yet; try again")
        try:
            asked = orjson.loads(request.body)["request"]
            workload, before = asked["object"], asked.get("oldObject")
            metadata, spec = workload["metadata"], workload["spec"]
        except (ValueError, KeyError, TypeError, AttributeError):
            return failure(400, "not an AdmissionReview")
        maps = isinstance(metadata, dict) and isinstance(spec, dict) and isinstance(before, dict | None)
        if not maps or workload.get("kind") not in KINDS:
            return failure(400, f"not an AdmissionReview of {', '.join(KINDS)}")
        return answer_later(self._review(asked, workload, before, seconds_of(request)))

    async def _review(
        self,
        asked: Mapping[str, Any],
        workload: Mapping[str, Any],
        before: Mapping[str, Any] | None,
        seconds: float,
    ) -> bytes:
        uid, namespace = str(asked.get("uid", "")), str(asked.get("namespace", ""))
        user = asked.get("userInfo")
        name = user.get("username") if isinstance(user, dict) else None
        applied = WorkloadAuthor(str(name or "unknown"), timestamp(self.now()))
        try:
            carried = None if is_run_of_cron_job(workload) else carried_flags(workload)
            warnings: tuple[str, ...] = ()
            if carried is not None and text_of(before) != carried.text:
                # What is stored already is not judged again: its workload can still be changed.
                self._require_place(carried, namespace)
                most = MOST_APPLIED if carried.by_server else MOST_BYTES
                given = (carried.text, carried.where, most)
                warnings = await self.judges.judge(namespace, seconds, warnings_of, *given)
            changes = _changes(workload, before, carried, applied)
            changes.warnings += warnings
            if not is_run_of_cron_job(workload):
                self.orders.mark(changes, before, namespace)
                write_remark(changes, carried)
        except PodRefused as refusal:
            place, why = one_line(namespace, _LOGGED), one_line(str(refusal), _LOGGED)
            log.info("a %s in %s is refused: %s", workload["kind"], place, why)
            self.reviewed(workload["kind"], REFUSED)
            return orjson.dumps(review_response(uid, str(refusal)))
        except NotJudged as why:
            self.reviewed(workload["kind"], UNJUDGED)
            message = (
                f"the flags of the workload were not judged: {why}; make them smaller, or apply it again"
            )
            return orjson.dumps(review_response(uid, message, late=True))
        self.reviewed(workload["kind"], MARKED if changes.patch else UNCHANGED)
        return orjson.dumps(review_response(uid, warnings=changes.warnings, patch=changes.patch))

    def _require_place(self, carried: CarriedFlags, namespace: str) -> None:
        """Raise Refused where the flags cannot be kept in a FeatureFlagConfiguration of their own."""
        if not self.enabled:
            raise PodRefused(
                f"{carried.where}: the controller runs without --direct-sets, so nothing would serve these "
                "flags; add the option, or keep the flags in a FeatureFlagConfiguration"
            )
        if self.namespaces and namespace not in self.namespaces:
            raise PodRefused(
                f"{carried.where}: the controller works in {', '.join(self.namespaces)} alone; remove it, "
                f"or add {namespace} to --namespaces"
            )
        refusal = name_refusal(self.objects, ObjectKey(carried.kind, namespace, carried.name))
        if refusal:
            raise PodRefused(f"{carried.where}: {refusal}")


def _changes(
    workload: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    carried: CarriedFlags | None,
    applied: WorkloadAuthor,
) -> ObjectPatch:
    if is_run_of_cron_job(workload):
        return ObjectPatch(workload)
    if carried is None:
        return unmark(workload, before)
    return mark(workload, before, carried, applied)


LIMITS: Final = Limits(body_bytes=4 * 1024 * 1024, connections=1_000, buffered_bytes=96 * 1024 * 1024)
"""A review holds one object, of an update also the one before, which have 1.5 MiB at most each. All come from
one address, that of the API server, and often by one connection: what it holds at most are the reviews that
wait for, or have, a process of either webhook.
"""
INJECTED: Final = "injected"
MOST_POD: Final = 2 * 1024 * 1024
"""Bytes of a review of one pod: the cluster stores no pod of more than 1.5 MiB."""


_JUDGED: Final = frozenset((kind.group, kind.kind) for kind in kinds.KINDS)
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
    except PodRefused as refusal:
        return REFUSED, review_response(uid, str(refusal))
    warnings = () if changes is None else changes.warnings
    if changes is None or not changes.patch:
        return UNCHANGED, review_response(uid, warnings=warnings)
    review = review_response(uid, warnings=warnings, patch=changes.patch)
    if len(review["response"]["patch"]) > MOST_PATCH_BYTES:
        message = (
            f"the evaluator's part of the pod has more than {MOST_PATCH_BYTES} bytes; name fewer sources"
        )
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

    objection: Callable[[bytes, Circumstances | None], tuple[str, Sequence[str]]]
    """Returns of a review (why the object is refused, or empty; what its writer is warned of). A function of
    a module: it is called in another process, with what `around` returns.
    """
    judges: Judges
    answered: Callable[[str, str], None]
    """Called with the kind and the outcome, `allowed`, `refused` or `unjudged`, of each review."""
    namespaces: Sequence[str] = ()
    """The namespaces that the controller works in; empty: all. Objects elsewhere are allowed."""
    around: Callable[[Mapping[str, Any], Resource], Circumstances | None] = lambda _request, _object: None
    """Returns how the change of a request comes; None where no policy judges it."""
    ready: Callable[[], bool] = lambda: True
    """Whether all policies are known."""

    def routes(self) -> Routes:
        """`POST /validate`."""
        return Routes(http={("POST", "/validate"): self.answer})

    def answer(self, request: Request) -> Response | Streamed:
        """Answer an AdmissionReview; 400 for another body, 503 while policies are still being read. What
        cannot be judged in time is allowed, with a warning: so it is without admission. It is refused where a
        policy could refuse it.
        """
        if not self.ready():
            return failure(503, "this replica does not know all objects yet; try again")
        try:
            asked = orjson.loads(request.body)["request"]
            uid, body = str(asked["uid"]), asked["object"]
            resource = Resource.of(body)
            key = resource.key
            judged = (str(body["apiVersion"]).rpartition("/")[0], key.kind) in _JUDGED
        except (ValueError, KeyError, TypeError, AttributeError):
            return failure(400, "not an AdmissionReview")
        if not judged:
            return failure(400, "not an AdmissionReview of a kind that is judged")
        if self.namespaces and key.namespace not in self.namespaces:
            return Response(200, orjson.dumps(review_response(uid)), JSON)
        around = self.around(asked, resource)
        return answer_later(self._judge(uid, key, request.body, around, seconds_of(request)))

    async def _judge(
        self, uid: str, key: ObjectKey, content: bytes, around: Circumstances | None, seconds: float
    ) -> bytes:
        try:
            given = (self.objection, content, around)
            refusal, warnings = await self.judges.judge(key.namespace, seconds, *given)
        except NotJudged as why:
            self.answered(key.kind, UNJUDGED)
            if around is not None and may_refuse(around.given):
                message = (
                    f"FlagPolicies judge these flags, and did not: {why}; apply it again, or change fewer "
                    "flags at once"
                )
                return orjson.dumps(review_response(uid, one_line(message, _LOGGED), late=True))
            warning = f"Flagstaff did not judge this object: {why}. Its status will say whether it is used"
            return orjson.dumps(review_response(uid, warnings=(one_line(warning, _LOGGED),)))
        if refusal:
            log.info("%s is refused: %s", one_line(str(key), _LOGGED), one_line(refusal, _LOGGED))
        self.answered(key.kind, REFUSED if refusal else "allowed")
        return orjson.dumps(review_response(uid, refusal, warnings))
