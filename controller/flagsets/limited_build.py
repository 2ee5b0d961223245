"""Builds the flag sets of strangers, whose definitions may be small to store and large to read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api.flagset import TestMode
from controller.artifacts.archive import ArchiveLimits, ArchiveRefused, unpack
from controller.authoring.policies import Circumstances
from controller.flagsets.build import Built, build
from controller.flagsets.layers import policies_of, tests_beside
from controller.flagsets.pgp import one_process
from controller.runtime.helpers import SMALL, ForeignTasks, Task

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        judged = any(isinstance(each, Circumstances) and each.given for each in rest)
        large = (
            spec.decryption is not None
            or judged
            or not await asyncio.to_thread(self._is_small, archive, spec.paths, tested)
        )
        task = Task(resource.namespace, f"building {artifact.revision}", "make several FlagSets of it")
        return await self.tasks.run(task, build_apart, archive, spec, artifact, resource, *rest, large=large)

    def _is_small(self, archive: bytes, paths: Sequence[str], tested: bool) -> bool:
        try:
            files = unpack(archive, self.small)
        except ArchiveRefused:
            # Too large, or damaged: then it is refused in the helper, too.
            return False
        # A small test may ask a slow rule for many users, as may the plan that policies judge.
        return not any(policies_of(files, path) or (tested and tests_beside(files, path)) for path in paths)
