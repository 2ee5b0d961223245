"""Builds the flag sets of strangers, whose definitions may be small to store and large to read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api.flagset import TestMode
from controller.artifacts.archive import ArchiveLimits, ArchiveRefused, unpack
from controller.authoring.flag_test_files import is_test_file
from controller.flagsets.build import Built, build
from controller.flagsets.pgp import one_process
from controller.runtime.helpers import SMALL, ForeignTasks, Task

if TYPE_CHECKING:
    from controller.api.artifact_status import ArtifactStatus
    from controller.api.flagset import FlagSetSpec
    from controller.api.meta import Resource

MODULES: Final = ("controller.flagsets.limited_build", "controller.flagsets.sops")
"""What a helper loads at its start."""
_SMALL: Final = ArchiveLimits(bytes=SMALL)


def build_apart(*arguments: Any) -> Built:
    """See `build`; all documents that OpenPGP encrypted are opened by one process."""
    with one_process():
        return build(*arguments)


async def build_in_thread(*arguments: Any) -> Built:
    """See `build`, beside the event loop: of definitions that are trusted, which may take any time."""
    return await asyncio.to_thread(build_apart, *arguments)


@dataclass(frozen=True, slots=True)
class LimitedBuild:
    """Builds as `build` does. Implements the reconciler's `Build`."""

    tasks: ForeignTasks
    small: ArchiveLimits = _SMALL

    async def __call__(
        self, archive: bytes, spec: FlagSetSpec, artifact: ArtifactStatus, resource: Resource, *rest: Any
    ) -> Built:
        """See `build`. Raises Stalled (LimitExceeded) for what takes too much to be built; Failed."""
        # Keys are tried on each encrypted document, so that a small one may take long.
        tested = spec.tests.mode is not TestMode.OFF
        large = spec.decryption is not None or not await asyncio.to_thread(self._is_small, archive, tested)
        task = Task(resource.namespace, f"building {artifact.revision}", "make several FlagSets of it")
        return await self.tasks.run(task, build_apart, archive, spec, artifact, resource, *rest, large=large)

    def _is_small(self, archive: bytes, tested: bool) -> bool:
        try:
            files = unpack(archive, self.small)
        except ArchiveRefused:
            # Too large, or damaged: then it is refused in the helper, too.
            return False
        # A small test may ask a slow rule for many users.
        return not (tested and any(map(is_test_file, files)))
