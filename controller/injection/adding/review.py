"""AdmissionReview (admission.k8s.io/v1): a pod that is to be created, and the answer. Pure."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

from controller.injection.adding.pod import inject
from controller.injection.options import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.injection.options import Known, Options

API_VERSION: Final = "admission.k8s.io/v1"
INJECTED: Final = "injected"
REFUSED: Final = "refused"
UNCHANGED: Final = "unchanged"


class InvalidReviewError(ValueError):
    """This is no AdmissionReview of a pod."""


def answer(review: object, options: Options, known: Known) -> tuple[str, dict[str, Any]]:
    """(INJECTED, REFUSED or UNCHANGED; the AdmissionReview to send back). Raises InvalidReviewError."""
    request = review.get("request") if isinstance(review, dict) else None
    pod = request.get("object") if isinstance(request, dict) else None
    if not (isinstance(request, dict) and isinstance(pod, dict) and pod.get("kind") == "Pod"):
        raise InvalidReviewError("not an AdmissionReview of a Pod")
    uid, namespace = str(request.get("uid", "")), str(request.get("namespace", ""))
    try:
        changes = inject(pod, namespace, options, known)
    except Refused as refusal:
        status = {"code": 422, "reason": "Invalid", "message": str(refusal)}
        return REFUSED, reviewed({"uid": uid, "allowed": False, "status": status})
    warnings = {"warnings": list(changes.warnings)} if changes is not None and changes.warnings else {}
    if changes is None or not changes.patch:
        return UNCHANGED, reviewed({"uid": uid, "allowed": True, **warnings})
    patch = base64.b64encode(json.dumps(changes.patch).encode()).decode()
    response = {"uid": uid, "allowed": True, "patchType": "JSONPatch", "patch": patch}
    return INJECTED, reviewed({**response, **warnings})


def reviewed(response: Mapping[str, Any]) -> dict[str, Any]:
    """The AdmissionReview to send back."""
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": dict(response)}
