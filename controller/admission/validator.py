"""The webhook that refuses flags which no evaluator would serve, where they are written by hand."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson

from controller.admission.server import JSON, failed
from controller.api import configuration
from controller.api.meta import Resource
from controller.injection.adding.review import reviewed
from controller.runtime.user_text.plain_text import one_line
from evaluator.http.messages import Response
from evaluator.http.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evaluator.http.messages import Request, Streamed
    from evaluator.http.offload import Offload

log = logging.getLogger(__name__)

PATH: Final = "/validate"
_LOGGED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Validator:
    """Goes by the object alone, and changes nothing, so a dry run is like any other."""

    objection: Callable[[Resource], tuple[str, Sequence[str]]]
    """(why the object is refused, or empty; what its writer is warned of). Called in a thread."""
    offload: Offload
    answered: Callable[[str, str], None]
    """Called with the kind and the outcome, `allowed` or `refused`, of each review. Called in a thread."""
    namespaces: Sequence[str] = ()
    """Those that the controller works in; empty: all. What is in others is none of its business."""

    def routes(self) -> Routes:
        """`POST /validate`."""
        return Routes(http={("POST", PATH): self.answer})

    def answer(self, request: Request) -> Response | Streamed:
        """The review's answer; 400 for what is none, 503 where too many wait already."""
        try:
            asked = orjson.loads(request.body)["request"]
            uid, resource = str(asked["uid"]), Resource.of(asked["object"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return failed(400, "not an AdmissionReview")
        if resource.key.kind not in (configuration.KIND, configuration.FLAG_KIND):
            return failed(400, "not an AdmissionReview of flags")
        if self.namespaces and resource.namespace not in self.namespaces:
            return Response(200, orjson.dumps(reviewed({"uid": uid, "allowed": True})), JSON)
        return self.offload.answer(JSON, partial(self._judged, uid, resource))

    def _judged(self, uid: str, resource: Resource) -> bytes:
        refusal, warnings = self.objection(resource)
        response: dict[str, Any] = {"uid": uid, "allowed": not refusal}
        if refusal:
            response["status"] = {"code": 422, "reason": "Invalid", "message": refusal}
            log.info("%s is refused: %s", one_line(str(resource.key), _LOGGED), one_line(refusal, _LOGGED))
        if warnings:
            response["warnings"] = list(warnings)
        self.answered(resource.key.kind, "refused" if refusal else "allowed")
        return orjson.dumps(reviewed(response))
