"""The webhook for workloads that carry flags or have standing orders: refuses bad ones, and has the pods ask
for an evaluator.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from controller.api.objects.meta import ObjectKey, timestamp
from controller.pods.admission.admission_answers import failure, review_response
from controller.pods.admission.judging import NotJudged, answer_later, seconds_of
from controller.pods.direct_sets.carried_flags import KINDS, carried_flags, is_run_of_cron_job, text_of
from controller.pods.direct_sets.direct_flags import MOST_APPLIED, MOST_BYTES, warnings_of
from controller.pods.direct_sets.name_check import name_refusal
from controller.pods.direct_sets.workload_marks import Applied, mark, remark_on, unmark
from controller.pods.injection.changes import Changes
from controller.pods.settings.installation import Refused
from controller.runtime.user_text.plain_text import one_line
from evaluator.http.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from controller.pods.admission.judging import Judges
    from controller.pods.admission.workload_orders import WorkloadOrders
    from controller.pods.direct_sets.carried_flags import CarriedFlags
    from controller.runtime.objects.cache import Cache
    from evaluator.http.messages import Request, Response, Streamed

log = logging.getLogger(__name__)

MARKED: Final = "marked"
REFUSED: Final = "refused"
UNCHANGED: Final = "unchanged"
UNJUDGED: Final = "unjudged"
_LOGGED: Final = 1_000


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
        applied = Applied(str(name or "unknown"), timestamp(self.now()))
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
        except Refused as refusal:
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
            raise Refused(
                f"{carried.where}: the controller runs without --direct-sets, so nothing would serve these "
                "flags; add the option, or keep the flags in a FeatureFlagConfiguration"
            )
        if self.namespaces and namespace not in self.namespaces:
            raise Refused(
                f"{carried.where}: the controller works in {', '.join(self.namespaces)} alone; remove it, "
                f"or add {namespace} to --namespaces"
            )
        refusal = name_refusal(self.objects, ObjectKey(carried.kind, namespace, carried.name))
        if refusal:
            raise Refused(f"{carried.where}: {refusal}")


def _changes(
    workload: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    carried: CarriedFlags | None,
    applied: Applied,
) -> Changes:
    if is_run_of_cron_job(workload):
        return Changes(workload)
    if carried is None:
        return unmark(workload, before)
    return mark(workload, before, carried, applied, remark_on(carried))
