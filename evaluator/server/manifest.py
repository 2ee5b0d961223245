"""OpenFeature's manifest API, read only: `GET /openfeature/v0/manifest`, with `/sets/{flagSetId}` before it
for one flag set. Definitions are changed in Git, so that writes get 403, in the API's form of errors
(`api/v0/sync.yaml` of https://github.com/open-feature/cli).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from evaluator.flags.openfeature_manifest import LeftOut, ManifestFlag, as_entry, manifest_flag
from evaluator.http.deferred import Deferred
from evaluator.http.messages import JSON, Request, Response, RpcError
from evaluator.http.routes import Routes
from evaluator.server.service import RETRY_SECONDS, EvaluationService, NotReadyError, Selection, selection

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from evaluator.flags.model import Flag

PATH: Final = "/openfeature/v0/manifest"
WRITES: Final = ("POST", "PUT", "DELETE")
_SETS: Final = "/sets/"
_HEADERS: Final = (*JSON, ("x-manifest-capabilities", "read"), ("cache-control", "no-cache"))
_EDIT_IN_GIT: Final = (
    "flags are defined in Git and served read-only here: change the definition in its repository; "
    "`flagstaff trace` names its file and line"
)
_STEP: Final = 256
"""Flags between two turns of others."""


def refusal(status: int, message: str, *more: tuple[str, str]) -> Response:
    """An error in the API's form."""
    content = {"error": {"message": message, "status": status, "details": []}}
    return Response(status, orjson.dumps(content), (*_HEADERS, *more))


def refuse_write(_: Request) -> Response:
    """The response to POST, PUT and DELETE."""
    return refusal(403, _EDIT_IN_GIT)


def manifest_answer(flags: Iterable[Flag]) -> Generator[None, None, Response]:
    """Make the manifest of flags in steps. `leftOut` is ours: a client of the API passes over it."""
    kept, left_out = [], []
    for number, flag in enumerate(flags, 1):
        match manifest_flag(flag):
            case ManifestFlag() as entry:
                kept.append(as_entry(entry))
            case LeftOut() as reason:
                left_out.append(reason._asdict())
        if number % _STEP == 0:
            yield
    content = {"flags": kept, **({"leftOut": left_out} if left_out else {})}
    return Response(200, orjson.dumps(content), _HEADERS)


class ManifestEndpoint:
    """Answers for the flags that an evaluator serves."""

    def __init__(self, service: EvaluationService) -> None:
        self._service = service

    def routes(self) -> Routes:
        """The paths, whole and of one flag set."""
        reads = {("GET", PATH): self.get, ("GET", f"{_SETS}*"): self.get_of_set}
        writes = {(write, f"{place}*"): refuse_write for write in WRITES for place in (f"{PATH}/", _SETS)}
        return Routes(http={**reads, **writes})

    def get(self, request: Request) -> Response | Deferred[Response]:
        """The manifest of all flags, or of those that the header selects."""
        try:
            return self._of(selection(request.headers))
        except RpcError as error:
            return refusal(400, error.message)

    def get_of_set(self, request: Request) -> Response | Deferred[Response]:
        """The manifest of the flag set that the path names."""
        if not request.path.endswith(PATH):
            return refusal(404, f"there is no such path; the manifest of a flag set is at {_SETS}ID{PATH}")
        return self._of(Selection("flagSetId", request.path.removeprefix(_SETS).removesuffix(PATH)))

    def _of(self, selected: Selection) -> Response | Deferred[Response]:
        try:
            flags = self._service.select(selected).flag_set.flags
        except NotReadyError as error:
            return refusal(503, error.message, ("retry-after", str(RETRY_SECONDS)))
        if selected.key and not flags:
            return refusal(404, f"no flag set {selected.value!r} is served here")
        return Deferred(manifest_answer(flags.values()))
