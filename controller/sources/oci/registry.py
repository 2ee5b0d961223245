"""A repository of a registry (github.com/opencontainers/distribution-spec), which alone gets the login."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from yarl import URL

from controller.api.parsing.oci_address import DIGEST, TAG
from controller.runtime.reconciling.setbacks import Failed, Stalled
from controller.sources.oci.answers import NotFound, body_of, failing, json_of, refusal
from controller.sources.oci.credentials import RegistryAccess, challenges_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import BinaryIO

    import aiohttp

    from controller.api.parsing.oci_address import Address
    from controller.sources.oci.connections import Connections

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_EMPTY: Final = "application/vnd.oci.empty.v1+json"
_DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
_DOCKER_INDEX: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
_ACCEPTED: Final = f"{MANIFEST}, {_INDEX}, {_DOCKER_MANIFEST}, {_DOCKER_INDEX}"
MANIFEST_BYTES: Final = 4 * 1024**2
"""Most bytes of a manifest: all registries accept this many, and many accept no more."""
_ANSWER_BYTES: Final = 1024**2
"""Most bytes of a token or a list of tags."""
_TAGS: Final = 100_000
_PAGE: Final = 1000
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS: Final = 5
_BASIC_SECONDS: Final = 3600.0
_TOKEN_SECONDS: Final = 60.0
"""Seconds that a token without `expires_in` is used."""
_NEXT: Final = re.compile(r'<([^<>]+)>\s*;\s*rel="?next"?')


@dataclass(frozen=True, slots=True)
class Registry:
    """A repository, accessed with one login. Every method raises a Setback; none limits its time."""

    address: Address
    access: RegistryAccess
    connections: Connections = field(repr=False, compare=False)
    actions: str = "pull"
    """What a token is to allow: `pull`, or `pull,push`."""

    async def digest_of(self, tag: str) -> str:
        """Return the digest of the manifest that `tag` points at. Raises Gone."""
        async with self._asked("HEAD", self._url("manifests", tag), accept=_ACCEPTED) as answer:
            found = answer.headers.get("Docker-Content-Digest", "")
        # Optional in the specification.
        return found if DIGEST.fullmatch(found) else sha256(await self.manifest(tag))

    async def manifest(self, reference: str) -> bytes:
        """Return the manifest that a tag or digest names, verified for a digest. Raises Gone."""
        async with self._asked("GET", self._url("manifests", reference), accept=_ACCEPTED) as answer:
            content = await body_of(self.address, answer, MANIFEST_BYTES, "the manifest")
        if DIGEST.fullmatch(reference) and sha256(content) != reference:
            raise self._mismatch("the manifest", reference)
        return content

    async def found(self, reference: str) -> bytes:
        """Return as `manifest` does; empty if there is none."""
        try:
            return await self.manifest(reference)
        except NotFound:
            return b""

    async def tags(self) -> list[str]:
        """Return all tags. Raises Gone if there is no such repository, Stalled for too many tags."""
        found: list[str] = []
        read = 0
        url: URL | None = self._url("tags", "list").with_query(n=str(_PAGE))
        while url is not None:
            async with self._asked("GET", url) as answer:
                content = await body_of(self.address, answer, _ANSWER_BYTES, "a page of tags")
                following = _NEXT.search(answer.headers.get("Link", ""))
            tags = json_of(self.address, content).get("tags")
            tags = tags if isinstance(tags, list) else []
            # What can be no tag is not shown to anybody.
            found += [tag for tag in map(str, tags) if TAG.fullmatch(tag)]
            read += len(tags)
            if read > _TAGS:
                raise Stalled("LimitExceeded", f"{self.address} has more than {_TAGS} tags")
            url = self._next(url, following[1]) if following and tags else None
        return found

    async def referrers(self, digest: str, artifact_type: str) -> list[str]:
        """Digests of manifests that refer to one: of a type, then of no type, by the list or else the tag."""
        url = self._url("referrers", digest).with_query(artifactType=artifact_type)
        try:
            async with self._asked("GET", url, accept=_INDEX) as answer:
                content = await body_of(self.address, answer, _ANSWER_BYTES, "the list of referrers")
        except NotFound:
            try:
                content = await self.manifest(digest.replace(":", "-"))
            except NotFound:
                return []
        found = json_of(self.address, content).get("manifests")
        listed = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
        return [
            each["digest"]
            # Some registries, go-containerregistry's among them, give the config's type, which is empty.
            for type_ in (artifact_type, _EMPTY)
            for each in listed
            if each.get("artifactType") == type_ and DIGEST.fullmatch(str(each.get("digest")))
        ]

    async def save_blob(self, digest: str, size: int, file: BinaryIO) -> None:
        """Write the blob into a file, and compare its size and digest. Raises Gone."""
        summed, got = hashlib.sha256(), 0
        async with self._asked("GET", self._url("blobs", digest)) as answer:
            async for chunk in answer.content.iter_chunked(256 * 1024):
                got += len(chunk)
                if got > size:
                    break
                summed.update(chunk)
                await asyncio.to_thread(file.write, chunk)
        if got != size:
            compared = "more" if got > size else "less"
            raise self._mismatch(f"the layer has {compared} than {size} bytes:", digest)
        if f"sha256:{summed.hexdigest()}" != digest:
            raise self._mismatch("the layer", digest)

    async def push_blob(self, content: bytes) -> None:
        """Upload a blob, unless it is there."""
        digest = sha256(content)
        with contextlib.suppress(NotFound):
            async with self._asked("HEAD", self._url("blobs", digest)):
                return
        async with self._asked("POST", self._url("blobs", "uploads", "")) as answer:
            place = self._next(answer.url, answer.headers.get("Location", ""))
        headers = {"Content-Type": "application/octet-stream"}
        async with self._asked("PUT", place.update_query(digest=digest), headers=headers, data=content):
            pass

    async def push_manifest(self, tag: str, content: bytes) -> None:
        """Have `tag` point at a manifest."""
        headers = {"Content-Type": MANIFEST}
        async with self._asked("PUT", self._url("manifests", tag), headers=headers, data=content):
            pass

    def _url(self, *parts: str) -> URL:
        return URL(self.address.origin) / "v2" / self.address.repository / "/".join(parts)

    @contextlib.asynccontextmanager
    async def _asked(
        self,
        method: str,
        url: URL,
        *,
        accept: str = "*/*",
        headers: dict[str, str] | None = None,
        data: bytes = b"",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Return a successful answer, after a login if required, and redirects."""
        headers = {"Accept": accept, **(headers or {})}
        key = (self.address.origin, self.address.repository, self.actions, self.access)
        logins, redirects = 0, 0
        with failing(self.address, self.access):
            while True:
                known = self.connections.kept(key)
                own = url.origin() == URL(self.address.origin)
                login = {"Authorization": known} if own and known else {}
                more: dict[str, Any] = {"data": data} if data else {}
                async with self.connections.request(
                    method, url, headers={**headers, **login}, access=self._access(url), **more
                ) as answer:
                    if answer.status == 401 and own and logins == 0:
                        self.connections.drop(key)
                        challenges = answer.headers.getall("WWW-Authenticate", [])
                        logins += 1
                    elif (
                        answer.status in _REDIRECTS
                        and method in {"GET", "HEAD"}
                        and redirects < _MOST_REDIRECTS
                    ):
                        redirects += 1
                        url = self._redirected(url, answer.headers.get("Location", ""))
                        continue
                    elif answer.status >= 300:
                        raise await refusal(self.address, answer)
                    else:
                        yield answer
                        return
                self.connections.keep(key, *await self._login(challenges))

    def _access(self, url: URL) -> RegistryAccess:
        """The certificate of a client is for the registry alone, as its login is."""
        return self.access if url.origin() == URL(self.address.origin) else self.access.elsewhere

    async def _login(self, challenges: list[str]) -> tuple[str, float]:
        """The header that answers a challenge, and for how many seconds."""
        login = self.access.login
        known = challenges_of(challenges)
        bearer = known.get("bearer", {})
        if bearer.get("realm"):
            return await self._token(bearer)
        if login is None:
            raise Failed("AuthenticationFailed", f"{self.address}: the registry asks for a login")
        if "basic" not in known:
            asked = ", ".join(sorted(known)) or "nothing that it names"
            raise Failed("AuthenticationFailed", f"{self.address}: the registry asks for {asked[:100]}")
        return login.basic, _BASIC_SECONDS

    async def _token(self, bearer: dict[str, str]) -> tuple[str, float]:
        """`bearer`: the parameters of its challenge."""
        realm = self._realm(bearer["realm"])
        query = {"scope": f"repository:{self.address.repository}:{self.actions}"}
        if bearer.get("service"):
            query["service"] = bearer["service"]
        login = self.access.login
        if login is not None:
            login.binding.require(realm.host or "")
        headers = {"Authorization": login.basic} if login is not None else {}
        async with self.connections.request(
            "GET", realm.update_query(query), headers=headers, access=self._access(realm)
        ) as answer:
            if answer.status != 200:
                refused = await refusal(self.address, answer)
                # The service is not there; the repository may be.
                raise (
                    Failed("AuthenticationFailed", refused.message)
                    if isinstance(refused, NotFound)
                    else refused
                )
            said = json_of(self.address, await body_of(self.address, answer, _ANSWER_BYTES, "the token"))
        token = said.get("token") or said.get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise Failed("AuthenticationFailed", f"{self.address}: the token service gives no token")
        seconds = said.get("expires_in")
        if not isinstance(seconds, int) or seconds <= 0:
            seconds = _TOKEN_SECONDS
        return f"Bearer {token}", float(seconds)

    def _realm(self, text: str) -> URL:
        """Return the token service, which receives the login: with TLS, unless the registry has none."""
        realm = _url_of(text)
        if realm is None or not self._allowed(realm):
            message = f"{self.address}: the registry's token service has no https URL"
            raise Failed("AuthenticationFailed", message)
        return realm

    def _redirected(self, url: URL, location: str) -> URL:
        """Return the address of the content; with TLS, unless the registry is to be accessed without."""
        found = _url_of(location, url)
        if found is None or not self._allowed(found):
            raise Failed("OCIArtifactPullFailed", f"{self.address}: it redirects to a URL that is not https")
        return found

    def _allowed(self, url: URL) -> bool:
        return url.scheme == "https" or self.address.insecure

    def _next(self, url: URL, location: str) -> URL:
        """What the registry names as its own: the next page, the place for an upload."""
        found = _url_of(location, url)
        if found is None or found.origin() != URL(self.address.origin):
            raise Failed("OCIArtifactPullFailed", f"{self.address}: it names another host as its own")
        return found

    def _mismatch(self, what: str, digest: str) -> Failed:
        return Failed("DigestMismatch", f"{self.address}: {what} is not what {digest} stands for")


def sha256(content: bytes) -> str:
    """`sha256:<64 hexadecimal digits>`."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _url_of(text: str, base: URL | None = None) -> URL | None:
    """Return an http or https URL without a login, relative to `base`; None for any other."""
    try:
        url = URL(text) if base is None else base.join(URL(text, encoded=True))
        known = bool(text and url.host) and url.user is None and url.scheme in {"http", "https"}
    except ValueError:
        return None
    return url if known else None
