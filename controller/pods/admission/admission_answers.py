"""The answers of webhooks to the API server. Pure."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import orjson

from evaluator.http.messages import Response

if TYPE_CHECKING:
    from collections.abc import Sequence

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
