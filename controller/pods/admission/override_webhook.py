"""The webhook for FlagOverrides: records who set one, and bounds how long it may last."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import orjson

from controller.api.flagoverride import KIND, SET_BY, moment_of
from controller.api.parsing import InvalidTextError
from controller.pods.admission.admission_answers import JSON, failure, review_response
from controller.pods.injection.changes import Changes
from controller.runtime.user_text.plain_text import one_line
from evaluator.http.messages import Response
from evaluator.http.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from evaluator.http.messages import Request

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
    changes = Changes(override)
    if user is not None:
        changes.merge(_ANNOTATIONS, {SET_BY: user})
    elif SET_BY in (override["metadata"].get("annotations") or {}):
        changes.remove((*_ANNOTATIONS, SET_BY))
    return changes.patch
