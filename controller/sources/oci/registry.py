"""A repository of a registry (github.com/opencontainers/distribution-spec)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from yarl import URL

from controller.api.parsing.oci_address import DIGEST, TAG
from controller.runtime.network.http_client import read_all
from controller.runtime.reconciling.setbacks import Failed, Stalled
from controller.sources.oci.registry_client import NotFound, parse_url, read_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import BinaryIO

    import aiohttp

    from controller.api.parsing.oci_address import Address
    from controller.sources.oci.registry_client import RegistryClient, Scope

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_EMPTY: Final = "application/vnd.oci.empty.v1+json"
_DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
_DOCKER_INDEX: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
_ACCEPTED: Final = f"{MANIFEST}, {_INDEX}, {_DOCKER_MANIFEST}, {_DOCKER_INDEX}"
_ANSWER_BYTES: Final = 1024**2
"""Most bytes of a manifest, a page of tags or a list of referrers: reading one takes less than 50 ms."""
_TAGS: Final = 100_000
_PAGE: Final = 1000
_NEXT: Final = re.compile(r'<([^<>]+)>\s*;\s*rel="?next"?')


@dataclass(frozen=True, slots=True)
class Registry:
    """A repository, accessed with one login. Every method raises a Setback; none limits its time."""

    scope: Scope
    client: RegistryClient = field(repr=False, compare=False)

    @property
    def address(self) -> Address:
        """The repository's address."""
        return self.scope.address

    async def digest_of(self, tag: str) -> str:
        """Return the digest of the manifest that `tag` points at. Raises NotFound."""
        async with self._request("HEAD", self._url("manifests", tag), _ACCEPTED) as answer:
            digest = answer.headers.get("Docker-Content-Digest", "")
        # Optional in the specification.
        return digest if DIGEST.fullmatch(digest) else sha256(await self.manifest(tag))

    async def manifest(self, reference: str) -> bytes:
        """Return the manifest that a tag or digest names, verified for a digest. Raises NotFound."""
        content = await self._content(self._url("manifests", reference), _ACCEPTED)
        if DIGEST.fullmatch(reference) and sha256(content) != reference:
            raise self._mismatch("the manifest", reference)
        return content

    async def find_manifest(self, reference: str) -> bytes:
        """Return as `manifest` does; empty if there is none."""
        try:
            return await self.manifest(reference)
        except NotFound:
            return b""

    async def tags(self) -> list[str]:
        """Return all tags. Raises NotFound if there is no such repository, Stalled for too many tags."""
        names: list[str] = []
        count = 0
        url: URL | None = self._url("tags", "list").with_query(n=str(_PAGE))
        while url is not None:
            async with self._request("GET", url) as answer:
                content = await read_all(answer, _ANSWER_BYTES)
                following = _NEXT.search(answer.headers.get("Link", ""))
            tags = read_object(self.address, content).get("tags")
            tags = tags if isinstance(tags, list) else []
            count += len(tags)
            if count > _TAGS:
                raise Stalled("LimitExceeded", f"{self.address} has more than {_TAGS} tags")
            # What can be no tag is not shown to anybody.
            names += [tag for tag in map(str, tags) if TAG.fullmatch(tag)]
            url = self._next(url, following[1]) if following and tags else None
        return names

    async def referrers(self, digest: str, artifact_type: str) -> list[str]:
        """Digests of manifests that refer to one: of a type, then of no type, by the list or else the tag."""
        url = self._url("referrers", digest).with_query(artifactType=artifact_type)
        try:
            content = await self._content(url, _INDEX)
        except NotFound:
            content = await self.find_manifest(digest.replace(":", "-")) or b"{}"
        manifests = read_object(self.address, content).get("manifests")
        listed = (
            [entry for entry in manifests if isinstance(entry, dict)] if isinstance(manifests, list) else []
        )
        return [
            entry["digest"]
            # Some registries, go-containerregistry's among them, give the config's type, which is empty.
            for type_ in (artifact_type, _EMPTY)
            for entry in listed
            if entry.get("artifactType") == type_ and DIGEST.fullmatch(str(entry.get("digest")))
        ]

    async def save_blob(self, digest: str, size: int, file: BinaryIO) -> None:
        """Write the blob into a file, and compare its size and digest. Raises NotFound."""
        sum_, got = hashlib.sha256(), 0
        async with self._request("GET", self._url("blobs", digest)) as answer:
            async for chunk in answer.content.iter_chunked(256 * 1024):
                got += len(chunk)
                if got > size:
                    break
                sum_.update(chunk)
                await asyncio.to_thread(file.write, chunk)
        if got != size:
            compared = "more" if got > size else "less"
            raise self._mismatch(f"the layer has {compared} than {size} bytes:", digest)
        if f"sha256:{sum_.hexdigest()}" != digest:
            raise self._mismatch("the layer", digest)

    async def push_blob(self, content: bytes) -> None:
        """Upload a blob, unless it is there."""
        digest = sha256(content)
        with contextlib.suppress(NotFound):
            async with self._request("HEAD", self._url("blobs", digest)):
                return
        async with self._request("POST", self._url("blobs", "uploads", "")) as answer:
            place = self._next(answer.url, answer.headers.get("Location", ""))
        await self._put(place.update_query(digest=digest), content, "application/octet-stream")

    async def push_manifest(self, tag: str, content: bytes) -> None:
        """Have `tag` point at a manifest."""
        await self._put(self._url("manifests", tag), content, MANIFEST)

    def _url(self, *parts: str) -> URL:
        return URL(self.address.origin) / "v2" / self.address.repository / "/".join(parts)

    async def _content(self, url: URL, accepted: str) -> bytes:
        async with self._request("GET", url, accepted) as answer:
            return await read_all(answer, _ANSWER_BYTES)

    async def _put(self, url: URL, content: bytes, media_type: str) -> None:
        headers = {"Content-Type": media_type}
        async with self.client.request(self.scope, "PUT", url, headers, content):
            pass

    @contextlib.asynccontextmanager
    async def _request(
        self, method: str, url: URL, accepted: str = "*/*"
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        async with self.client.request(self.scope, method, url, {"Accept": accepted}) as answer:
            yield answer

    def _next(self, url: URL, location: str) -> URL:
        """Return what the registry names as its own: the next page, the place for an upload."""
        target = parse_url(location, url)
        if target is None or not self.scope.is_own(target):
            raise Failed("OCIArtifactPullFailed", f"{self.address}: it names another host as its own")
        return target

    def _mismatch(self, item: str, digest: str) -> Failed:
        return Failed("DigestMismatch", f"{self.address}: {item} is not what {digest} stands for")


def sha256(content: bytes) -> str:
    """`sha256:<64 hexadecimal digits>`."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
