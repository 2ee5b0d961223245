"""Builds the flag sets of strangers: small ones in a thread, larger ones in a helper process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.artifacts.archive import ArchiveLimits, ArchiveRefused, unpack
from controller.flagsets.building.build import build
from controller.flagsets.preparing.pgp import one_process
from controller.runtime.process.helper import TaskLimits
from controller.runtime.process.helpers import HelperLostError, LimitExceededError
from controller.runtime.reconciling.setbacks import Failed, Stalled

if TYPE_CHECKING:
    from controller.api.flagset import FlagSetSpec
    from controller.api.objects.artifact_status import ArtifactStatus
    from controller.api.objects.meta import Resource
    from controller.flagsets.building.build import Built
    from controller.runtime.process.helpers import Helpers
    from controller.runtime.tenancy.places import Places

HELPERS: Final = 2
MODULES: Final = ("controller.flagsets.building.limited_build", "controller.flagsets.preparing.sops_keys")
"""What a helper loads at its start."""

_SMALL: Final = ArchiveLimits(bytes=512 * 1024)
"""A definition of it has at most some ten MB of values, and takes less than a second."""
_TASK: Final = TaskLimits(cpu_seconds=30.0)
_SECONDS: Final = 120.0
"""By the clock: a machine under load may need that long for the CPU time."""


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

    helpers: Helpers
    places: Places
    """Limits the helpers: one namespace is given half of them."""
    task: TaskLimits = _TASK
    small: ArchiveLimits = _SMALL
    seconds: float = _SECONDS
    """The deadline of a build, from the time when it has a helper."""

    async def __call__(
        self, archive: bytes, spec: FlagSetSpec, artifact: ArtifactStatus, resource: Resource, *rest: Any
    ) -> Built:
        """See `build`. Raises Stalled (LimitExceeded) for what takes too much to be built; Failed."""
        # Keys are tried on each encrypted document, so that a small one may take long.
        if spec.decryption is None and await asyncio.to_thread(self._is_small, archive):
            return await asyncio.to_thread(build, archive, spec, artifact, resource, *rest)
        task = f"building {artifact.revision}"
        arguments = (archive, spec, artifact, resource, *rest)
        try:
            async with self.places.place(resource.namespace), asyncio.timeout(self.seconds):
                return await self.helpers.run(self.task, build_apart, *arguments)
        except TimeoutError:
            message = f"{task} took longer than {self.seconds:g} seconds; make several FlagSets of it"
            raise Failed("BuildTimedOut", message) from None
        except LimitExceededError as error:
            allowed = self.task.describe_limit(error.limit)
            message = (
                f"{task} needs more {error.limit} than it may use ({allowed}); make several FlagSets of it"
            )
            raise Stalled("LimitExceeded", message) from error
        except HelperLostError as error:
            raise Failed("BuildFailed", f"{task} failed: {error}") from error

    def _is_small(self, archive: bytes) -> bool:
        try:
            unpack(archive, self.small)
        except ArchiveRefused:
            # Too large, or damaged: then it is refused in the helper, too.
            return False
        return True
