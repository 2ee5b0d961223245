"""A repository of a registry (github.com/opencontainers/distribution-spec): logins, requests, manifests and
blobs.

Logins follow the header WWW-Authenticate (RFC 9110, section 11.6.1), and Docker's configuration
(`~/.docker/config.json`, and Secrets of type kubernetes.io/dockerconfigjson). No message repeats a value.

The login and the client's certificate go to the registry alone; the login goes to its token service, too.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from cachetools import TLRUCache
from yarl import URL

from controller.api.addresses import DIGEST, TAG, ArtifactAddress
from controller.runtime.http_client import DIRECT, Cause, HttpClient, RequestError, Route, read_all
from controller.runtime.plain_text import json_object
from controller.runtime.secret_texts import UNBOUND, Binding, Tls
from controller.runtime.setbacks import Failed, Setback, Stalled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
    from typing import BinaryIO

    import aiohttp

    from controller.runtime.hosts import Hosts


_LONGEST: Final = 8192
_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_ITEM: Final = re.compile(rf'({_WORD})(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|({_WORD})))?')


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """A name and a password or token; neither is ever printed."""

    username: str = field(repr=False)
    password: str = field(repr=False)
    binding: Binding = UNBOUND
    """Hosts that may receive it."""

    @property
    def basic(self) -> str:
        """The value of the header Authorization."""
        pair = f"{self.username}:{self.password}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"


class OwnLogins(Protocol):
    """Logins for the controller's own identity at a provider of registries."""

    async def login(self, host: str, *, refused: bool) -> RegistryLogin:
        """Return the login of a registry; another than before if the registry `refused` it. Raises Failed."""


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """Credentials for a registry, and the way to it."""

    login: RegistryLogin | None = None
    own: OwnLogins | None = None
    """Gives the login, where it is that of the controller's own identity."""
    route: Route = DIRECT

    @property
    def elsewhere(self) -> Route:
        """Return the way to hosts other than the registry: without the client's certificate."""
        return replace(self.route, tls=Tls(self.route.tls.authority))


def login_from(name: str, content: bytes, address: ArtifactAddress) -> RegistryLogin | None:
    """The login for `address` in the Docker configuration `name`, or None. Raises Stalled (InvalidSecret)."""
    try:
        configuration = json.loads(content)
    except (ValueError, RecursionError):
        raise _invalid(name, "is not JSON") from None
    if not isinstance(configuration, dict):
        raise _invalid(name, "is not an object")
    logins = configuration.get("auths") or {}
    if not isinstance(logins, dict):
        raise _invalid(name, "'auths' is not an object")
    known = {_plain(str(key)): entry for key, entry in logins.items()}
    for wanted in address.logins:
        if isinstance(entry := known.get(wanted), dict) and entry:
            return _login(name, wanted, entry)
    return None


def _login(name: str, host: str, entry: Mapping[str, Any]) -> RegistryLogin:
    username, password = str(entry.get("username", "")), str(entry.get("password", ""))
    if not username:
        try:
            pair = base64.b64decode(str(entry.get("auth", "")), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise _invalid(name, f"'auth' of {host} is not Base64") from None
        username, _, password = pair.partition(":")
    if not username or not password:
        raise _invalid(name, f"{host} has no username and password, and no 'auth' with both")
    if not (username + password).isprintable():
        raise _invalid(name, f"the login of {host} contains a line break or a control character")
    return RegistryLogin(username, password)


def _plain(key: str) -> str:
    """`https://index.docker.io/v1/` and the like as a host, and what may follow it."""
    bare = key.partition("://")[2] or key
    return bare.strip("/").removesuffix("/v1").removesuffix("/v2")


def _invalid(name: str, why: str) -> Stalled:
    return Stalled("InvalidSecret", f"{name}: {why}")


def challenges_of(headers: Iterable[str]) -> dict[str, dict[str, str]]:
    """The parameters of each scheme, in lower case; of several alike the first."""
    challenges: dict[str, dict[str, str]] = {}
    for header in headers:
        parameters: dict[str, str] = {}
        for item in _ITEM.finditer(header[:_LONGEST]):
            name, quoted, plain = item.groups()
            if quoted is None and plain is None:
                parameters = {}
                challenges.setdefault(name.lower(), parameters)
            else:
                value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
                parameters.setdefault(name.lower(), value)
    return challenges


_ERROR_BYTES: Final = 16 * 1024
_TOKEN_BYTES: Final = 64 * 1024
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""A token as RFC 6750 has it."""
_CODES: Final = frozenset(
    {
        "BLOB_UNKNOWN", "BLOB_UPLOAD_INVALID", "BLOB_UPLOAD_UNKNOWN", "DENIED", "DIGEST_INVALID",
        "MANIFEST_BLOB_UNKNOWN", "MANIFEST_INVALID", "MANIFEST_UNKNOWN", "NAME_INVALID", "NAME_UNKNOWN",
        "SIZE_INVALID", "TAG_INVALID", "TOOMANYREQUESTS", "UNAUTHORIZED", "UNAVAILABLE", "UNKNOWN",
        "UNSUPPORTED",
    }
)  # fmt: skip
"""What is shown of an error: these words of the OCI's specification, since any service may have answered."""
_LONGEST_DELAY: Final = 900.0
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_READING: Final = frozenset({"GET", "HEAD"})
_MOST_REDIRECTS: Final = 5
_MOST_TOKENS: Final = 4096
_USED: Final = 0.8
"""The share of a token's life after which it is not used any more."""
_BASIC_SECONDS: Final = 3600.0
_TOKEN_SECONDS: Final = 60.0
"""Seconds that a token without `expires_in` is used."""
_LONGEST_TOKEN_SECONDS: Final = 86_400
_REASONS: Final = {
    Cause.CERTIFICATE: "CertificateRefused",
    Cause.PROXY_LOGIN: "AuthenticationFailed",
    Cause.TIMEOUT: "Timeout",
}


class NotFound(Failed):
    """The requested object does not exist."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A repository, the access to it, and what a token is to allow: `pull`, or `pull,push`."""

    address: ArtifactAddress
    access: RegistryAccess
    actions: str = "pull"

    @property
    def most_logins(self) -> int:
        """How often one request may log in: once anew where a login may have been withdrawn since."""
        return 1 if self.access.own is None else 2

    def is_own(self, url: URL) -> bool:
        """Whether a URL is the registry's."""
        return url.origin() == URL(self.address.origin)

    def route(self, url: URL) -> Route:
        """Return the way to a URL: the client's certificate is for the registry alone."""
        return self.access.route if self.is_own(url) else self.access.elsewhere

    def require_encrypted(self, url: URL | None, failure: Failed) -> URL:
        """Return the URL of another server. Raises `failure` without one, and for http where the registry is
        not asked by http either.
        """
        if url is None or (url.scheme != "https" and not self.address.insecure):
            raise failure
        return url


class RegistryClient:
    """Keeps connections open for a while, and tokens for most of the time that they are good for. Belongs to
    one event loop.
    """

    def __init__(self, hosts: Hosts | None = None) -> None:
        """`hosts`: where registries, and what they refer to, may be; None: anywhere."""
        # Who waits for a registry has a turn of its own already.
        self._http = HttpClient(hosts, system_proxies=True)
        self._tokens: TLRUCache[Scope, tuple[str, float]] = TLRUCache(
            _MOST_TOKENS,
            ttu=lambda _, value, now: now + value[1] * _USED,
            timer=asyncio.get_running_loop().time,
        )

    @contextlib.asynccontextmanager
    async def request(
        self, scope: Scope, method: str, url: URL, headers: Mapping[str, str], data: bytes = b""
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Return a successful answer, after a login if required, and redirects. Raises Setback."""
        logins = redirects = 0
        with _convert_errors(scope.address):
            while True:
                kept = self._tokens.get(scope) if scope.is_own(url) else None
                login = {"Authorization": kept[0]} if kept else {}
                async with self._http.request(
                    method, url, headers={**headers, **login}, data=data, route=scope.route(url)
                ) as answer:
                    if answer.status < 300:
                        yield answer
                        return
                    if answer.status == 401 and scope.is_own(url) and logins < scope.most_logins:
                        logins += 1
                        self._tokens.pop(scope, None)
                        challenges = challenges_of(answer.headers.getall("WWW-Authenticate", []))
                    elif answer.status in _REDIRECTS and method in _READING and redirects < _MOST_REDIRECTS:
                        redirects += 1
                        url = _redirect_target(scope, url, answer.headers.get("Location", ""))
                        continue
                    else:
                        raise await _refusal(scope.address, answer)
                self._tokens[scope] = await self._login(scope, challenges, refused=bool(login))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _login(
        self, scope: Scope, challenges: Mapping[str, dict[str, str]], *, refused: bool
    ) -> tuple[str, float]:
        """Return the header that answers a challenge, and the seconds for which it is kept. `refused`:
        whether the registry refused the last one.
        """
        login, own = scope.access.login, scope.access.own
        bearer = challenges.get("bearer", {})
        if bearer.get("realm"):
            realm = _realm(scope, bearer["realm"])
            if own is None:
                return await self._token(scope, realm, bearer, login)
            login = await own.login(scope.address.host, refused=refused)
            try:
                return await self._token(scope, realm, bearer, login)
            except Failed as failed:
                if failed.reason != "AuthenticationFailed":
                    raise
                other = await own.login(scope.address.host, refused=True)
                if other == login:
                    raise
            return await self._token(scope, realm, bearer, other)
        if own is not None:
            login = await own.login(scope.address.host, refused=refused)
        if login is None:
            raise _access_failure(scope, "the registry asks for a login")
        if "basic" not in challenges:
            asked = ", ".join(sorted(challenges)) or "nothing that it names"
            raise _access_failure(scope, f"the registry asks for {asked[:100]}")
        return login.basic, _BASIC_SECONDS

    async def _token(
        self, scope: Scope, realm: URL, bearer: Mapping[str, str], login: RegistryLogin | None
    ) -> tuple[str, float]:
        """`bearer`: the parameters of its challenge."""
        query = {"scope": f"repository:{scope.address.repository}:{scope.actions}"}
        if bearer.get("service"):
            query["service"] = bearer["service"]
        headers = {"Authorization": login.basic} if login is not None else {}
        async with self._http.request(
            "GET", realm.update_query(query), headers=headers, route=scope.route(realm)
        ) as answer:
            if answer.status != 200:
                refusal = await _refusal(scope.address, answer)
                if isinstance(refusal, NotFound):
                    # The service does not exist; the repository may.
                    raise Failed("AuthenticationFailed", refusal.message)
                raise refusal
            document = read_object(scope.address, await read_all(answer, _TOKEN_BYTES))
        token = document.get("token") or document.get("access_token")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise _access_failure(scope, "the token service gives no token")
        return f"Bearer {token}", token_seconds(document)


def token_seconds(document: Mapping[str, Any]) -> float:
    """The life of a token by `expires_in` of its service's answer."""
    seconds = document.get("expires_in")
    if not isinstance(seconds, int) or seconds <= 0:
        return _TOKEN_SECONDS
    # An integer of JSON may be larger than any float.
    return float(min(seconds, _LONGEST_TOKEN_SECONDS))


def read_object(address: ArtifactAddress, content: bytes) -> dict[str, Any]:
    """Return the JSON object in a body. Raises Failed for anything else."""
    document = json_object(content)
    if document is None:
        raise Failed("OCIArtifactPullFailed", f"{address}: the answer is not that of a registry")
    return document


def parse_url(text: str, base: URL | None = None) -> URL | None:
    """Return an http or https URL without a login, relative to `base`; None for any other."""
    try:
        url = URL(text) if base is None else base.join(URL(text, encoded=True))
        known = bool(text and url.host) and url.user is None and url.scheme in {"http", "https"}
    except ValueError:
        return None
    return url if known else None


def _realm(scope: Scope, text: str) -> URL:
    """Return the URL of the token service, which receives the login. What it answers is sent to the registry:
    so by http only the registry's own host is asked, since a registry could name any service beside us.
    """
    failure = _access_failure(scope, "the registry's token service has no https URL")
    realm = scope.require_encrypted(parse_url(text), failure)
    if scope.access.login is not None:
        scope.access.login.binding.require(realm.host or "")
    elsewhere = realm.host != URL(scope.address.origin).host
    if elsewhere and scope.access.own is not None:
        raise _access_failure(scope, f"its token service is on another host, {realm.host}")
    if elsewhere and realm.scheme == "http":
        raise _access_failure(
            scope, f"the registry's token service is on another host, {realm.host}, without https"
        )
    return realm


def _redirect_target(scope: Scope, url: URL, location: str) -> URL:
    """Return the address of the content; with TLS, unless the registry is to be accessed without."""
    failure = Failed("OCIArtifactPullFailed", f"{scope.address}: it redirects to a URL that is not https")
    return scope.require_encrypted(parse_url(location, url), failure)


def _access_failure(scope: Scope, why: str) -> Failed:
    return Failed("AuthenticationFailed", f"{scope.address}: {why}")


async def _refusal(address: ArtifactAddress, answer: aiohttp.ClientResponse) -> Setback:
    """Return the setback for an answer that is no success."""
    status, word = answer.status, ""
    with contextlib.suppress(RequestError, ValueError, LookupError, TypeError, RecursionError):
        code = json.loads(await read_all(answer, _ERROR_BYTES))["errors"][0]["code"]
        word = code if code in _CODES else ""
    message = f"{address}: {answer.url.host} answers {status}{f' ({word})' if word else ''}"
    if status in {401, 403, 407}:
        return Failed("AuthenticationFailed", message)
    if status == 404:
        return NotFound("RepositoryNotFound" if word == "NAME_UNKNOWN" else "RevisionGone", message)
    asked = answer.headers.get("Retry-After", "")
    delay = min(float(asked), _LONGEST_DELAY) if asked.isdecimal() else None
    return Failed("OCIArtifactPullFailed", message, delay=delay)


@contextlib.contextmanager
def _convert_errors(address: ArtifactAddress) -> Iterator[None]:
    """Raise the client's errors as setbacks."""
    try:
        yield
    except RequestError as error:
        message = f"{address}: {error.message}"
        if error.cause is Cause.TOO_LONG:
            raise Stalled("LimitExceeded", message) from error
        raise Failed(_REASONS.get(error.cause, "OCIArtifactPullFailed"), message) from error


MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_EMPTY: Final = "application/vnd.oci.empty.v1+json"
_DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
_DOCKER_INDEX: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
_TYPES: Final = (MANIFEST, _INDEX, _DOCKER_MANIFEST, _DOCKER_INDEX)
_ACCEPTED: Final = ", ".join(_TYPES)
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
    def address(self) -> ArtifactAddress:
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
        """Have `tag` point at a manifest, which may be an index."""
        manifest = read_object(self.address, content)
        # OCI's manifests need not name their type.
        unnamed = _INDEX if "manifests" in manifest else MANIFEST
        named = manifest.get("mediaType")
        await self._put(self._url("manifests", tag), content, named if named in _TYPES else unnamed)

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
