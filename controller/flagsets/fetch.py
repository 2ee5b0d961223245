"""Artifacts of any source: our own from the store beside us, Flux's over HTTP, each proven by its digest."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import aiohttp

from controller.artifacts.archive import DEFAULT_LIMITS
from controller.runtime.setbacks import Failed, Stalled, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.artifact import ArtifactStatus

_SECONDS: Final = aiohttp.ClientTimeout(total=60.0, sock_connect=10.0)
_KNOWN: Final = {"sha256": hashlib.sha256, "sha384": hashlib.sha384, "sha512": hashlib.sha512}
_CHUNK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ArtifactReader:
    """Reads what a source's status tells. `local` finds our own by their path, and may raise Setback."""

    local: Callable[[str], bytes | None]
    most_bytes: int = DEFAULT_LIMITS.compressed_bytes

    async def read(self, namespace: str, artifact: ArtifactStatus) -> bytes:
        """The archive. Raises Waiting where it is gone (its source makes a new one), Failed where it cannot be had."""
        found = None
        # Whoever may write an artifact's status may name any path: only the namespace's own are looked up.
        if artifact.path.startswith(f"flagsource/{namespace}/"):
            found = await asyncio.to_thread(self.local, artifact.path)
        if found is None:
            found = await self._download(artifact)
        algorithm, _, wanted = artifact.digest.partition(":")
        if algorithm not in _KNOWN:
            raise Stalled("ArtifactFailed", f"digest {algorithm} is not known here")
        is_it = await asyncio.to_thread(lambda: _KNOWN[algorithm](found).hexdigest())
        if is_it != wanted:
            message = (
                f"{artifact.url} is not what its source says: its digest is {algorithm}:{is_it}"
            )
            raise Failed("ArtifactFailed", message)
        return found

    async def _download(self, artifact: ArtifactStatus) -> bytes:
        content = bytearray()
        try:
            async with (
                aiohttp.ClientSession(timeout=_SECONDS) as session,
                session.get(artifact.url, allow_redirects=False) as response,
            ):
                if response.status == 404:
                    raise Waiting(
                        "ArtifactFailed", f"{artifact.url} is gone; its source is to make a new one"
                    )
                if response.status != 200:
                    raise Failed("ArtifactFailed", f"{artifact.url} answers {response.status}")
                async for piece in response.content.iter_chunked(_CHUNK):
                    content += piece
                    if len(content) > self.most_bytes:
                        message = f"{artifact.url} is larger than {self.most_bytes} bytes"
                        raise Stalled("ArtifactTooLarge", message)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Failed("ArtifactFailed", f"{artifact.url}: {type(error).__name__}") from error
        return bytes(content)
