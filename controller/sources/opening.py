"""A FlagSource's spec and Secrets as a source that can be read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from controller.api.flagsource import DEFAULT_BRANCH
from controller.runtime.setbacks import Failed, Stalled
from controller.sources.git import GitSource
from controller.sources.listings import Listings, Look
from controller.sources.location import Transport, parse_location
from controller.sources.mirror import remove_mirror, sweep_mirrors
from controller.sources.programs import Programs
from controller.sources.reference import Reference
from controller.sources.scratch import sweep_scratch
from controller.sources.secrets import credentials_from, with_proxy
from controller.sources.threads import GitThreads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from controller.api.fields import LocalReference
    from controller.api.flagsource import FlagSourceSpec, GitSpec
    from controller.api.meta import ObjectKey
    from controller.sources.location import Credentials
    from controller.sources.source import Source

MISSING: Final = "AuthenticationFailed"
"""As Flux calls a Secret that is not there."""
GIT_AT_ONCE: Final = 16
"""Each takes some 10 MB while it runs."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Opens sources; those of one remote and one identity share its mirror and its listings."""

    secret: Callable[[str, str], Awaitable[Mapping[str, bytes] | None]]
    """(namespace, name) -> a Secret's content; None where there is none. Raises Failed."""
    mirror_root: Path
    allow_local: bool = False
    """Whether a `file://` URL may name a folder of this machine: whoever writes it reads with our rights."""
    threads: GitThreads = field(default_factory=lambda: GitThreads(GIT_AT_ONCE))
    """Of its own, so that remotes that do not answer hold up nothing else."""
    programs: Programs = field(default_factory=Programs)
    """What runs of git, for whoever stops to end: a process is not gone before its threads are."""
    listings: Listings = field(init=False)
    _mirrors: dict[ObjectKey, Path] = field(default_factory=dict)
    """Whose mirror each source uses."""

    def __post_init__(self) -> None:
        """A process that was killed may have left keys behind."""
        sweep_scratch()
        object.__setattr__(self, "listings", Listings(self.threads))

    async def open(self, spec: FlagSourceSpec, key: ObjectKey, look: Look) -> Source:
        """The source that `spec` and its Secrets describe. Raises Setback."""
        location = parse_location(spec.git.url)
        if location.path is not None and not self.allow_local:
            message = (
                "a file:// URL names a folder of the controller's own machine, which is not read;"
                " write https://, http:// or ssh://"
            )
            raise Stalled("URLInvalid", message)
        source = GitSource(
            location,
            _reference(spec.git),
            self.mirror_root,
            credentials=await self._credentials(spec.git, key.namespace, location.transport),
            timeout=spec.timeout,
            listed=partial(self.listings.references, look=look, namespace=key.namespace),
            run=self.threads.runner(key.namespace),
            programs=self.programs,
        )
        self._uses(key, source.mirror.path if location.path is None else None)
        return source

    def forget(self, key: ObjectKey) -> None:
        """The source is gone; so is its mirror, unless another source uses it, too."""
        self._uses(key, None)
        self.listings.forget()

    async def sweep(self, now: datetime) -> None:
        """Remove mirrors that none of our sources used for a week: their credentials changed, or they went, while nobody ran."""
        used = frozenset(self._mirrors.values())
        await asyncio.to_thread(sweep_mirrors, self.mirror_root, used, now.timestamp())

    async def _credentials(
        self, git: GitSpec, namespace: str, transport: Transport
    ) -> Credentials | None:
        credentials = None
        if git.secret_ref is not None:
            name, content = await self._secret(git.secret_ref, namespace)
            credentials = credentials_from(name, content, transport)
        elif transport is Transport.SSH:
            message = (
                "ssh needs a Secret with 'identity' and 'known_hosts': write spec.git.secretRef"
            )
            raise Stalled("AuthenticationFailed", message)
        if git.proxy_secret_ref is not None:
            name, content = await self._secret(git.proxy_secret_ref, namespace)
            credentials = with_proxy(credentials, name, content, transport)
        return credentials

    async def _secret(
        self, reference: LocalReference, namespace: str
    ) -> tuple[str, Mapping[str, bytes]]:
        name = f"{namespace}/{reference.name}"
        content = await self.secret(namespace, reference.name)
        if content is None:
            raise Failed(MISSING, f"Secret {name} does not exist; the source is read once it does")
        return name, content

    def _uses(self, key: ObjectKey, mirror: Path | None) -> None:
        before = self._mirrors.pop(key, None)
        if mirror is not None:
            self._mirrors[key] = mirror
        if before is not None and before != mirror and before not in self._mirrors.values():
            # Credentials that are renewed every hour would leave a mirror every hour.
            self.threads.submit(partial(remove_mirror, before))


def _reference(git: GitSpec) -> Reference:
    ref = git.ref
    given = Reference(ref.branch, ref.tag, ref.semver, ref.name, ref.commit)
    return given if given != Reference() else Reference(branch=DEFAULT_BRANCH)
