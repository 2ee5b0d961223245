"""The flags in the artifact of a FlagSource, as a provider of flags that an object merges with its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from controller.api import flagsource
from controller.api.kinds import status_of
from controller.api.objects.artifact_status import artifact_of
from controller.api.objects.meta import ObjectKey
from controller.artifacts.archive import take_skipped, unpack
from controller.delivery.problem_text import first_problem
from controller.delivery.remote_answers import INVALID, RemoteAnswer
from controller.flagsets.reading.layers import LayersRefused, read_layers
from controller.runtime.reconciling.setbacks import Failed, stall_on_invalid_text
from evaluator.flags.layers.layer import as_read
from evaluator.flags.layers.merge import merge

if TYPE_CHECKING:
    from controller.delivery.remote_answers import RemoteRequest
    from controller.flagsets.reading.dependencies import Artifacts
    from controller.runtime.objects.cache import Cache
    from evaluator.flags.layers.parsed import Parsed

_SOURCE: Final = "SourceFailed"


@dataclass(frozen=True, slots=True)
class SourceFlags:
    """Reads layers of artifacts."""

    objects: Cache
    artifacts: Artifacts

    async def fetch(self, request: RemoteRequest) -> RemoteAnswer | None:
        """See RemoteSource. A source that fails, at the version in force, is a setback."""
        name = request.spec.flag_source or ""
        source = self.objects.get(ObjectKey(flagsource.KIND, request.key.namespace, name))
        if source is None:
            raise Failed(_SOURCE, f"FlagSource {name} does not exist; create it, or correct flagSource")
        status = status_of(source)
        with stall_on_invalid_text():
            artifact = artifact_of(source)
        if artifact is None:
            raise Failed(_SOURCE, f"FlagSource {name} has no artifact yet{status.why}")
        if artifact.revision == request.version:
            if status.failure:
                raise Failed(_SOURCE, f"FlagSource {name} is not ready{status.why}")
            return None
        archive = await self.artifacts.read(request.key.namespace, artifact)
        read = partial(_parse, archive, request.spec.paths)
        return RemoteAnswer(read, artifact.revision, large=True)


def _parse(archive: bytes, paths: tuple[str, ...]) -> Parsed:
    """Merge the layers. Raises ArchiveRefused, Failed."""
    files = unpack(archive)
    skipped = take_skipped(files)
    try:
        return merge(read_layers(files, paths, skipped, as_read))
    except LayersRefused as refused:
        raise Failed(INVALID, f"{first_problem(refused.problems)}; correct paths, or the source") from None
