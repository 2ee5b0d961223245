"""Requests to registries: logins, tokens, redirects, and answers that are errors.

The login and the client's certificate go to the registry alone; the login goes to its token service, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cachetools import TLRUCache
from yarl import URL

from controller.runtime.network.http_client import Cause, HttpClient, RequestError, Route, read_all
from controller.runtime.reconciling.setbacks import Failed, Setback, Stalled
from controller.runtime.user_text.plain_text import json_object
from controller.sources.oci.oci_credentials import RegistryAccess, challenges_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    import aiohttp

    from controller.api.parsing.oci_address import Address
    from controller.runtime.tenancy.hosts import Hosts

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

    address: Address
    access: RegistryAccess
    actions: str = "pull"

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
                    if answer.status == 401 and scope.is_own(url) and logins == 0:
                        logins += 1
                        self._tokens.pop(scope, None)
                        challenges = challenges_of(answer.headers.getall("WWW-Authenticate", []))
                    elif answer.status in _REDIRECTS and method in _READING and redirects < _MOST_REDIRECTS:
                        redirects += 1
                        url = _redirect_target(scope, url, answer.headers.get("Location", ""))
                        continue
                    else:
                        raise await _refusal(scope.address, answer)
                self._tokens[scope] = await self._login(scope, challenges)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _login(self, scope: Scope, challenges: Mapping[str, dict[str, str]]) -> tuple[str, float]:
        """Return the header that answers a challenge, and the seconds for which it is kept."""
        login = scope.access.login
        bearer = challenges.get("bearer", {})
        if bearer.get("realm"):
            return await self._token(scope, bearer)
        if login is None:
            raise _access_failure(scope, "the registry asks for a login")
        if "basic" not in challenges:
            asked = ", ".join(sorted(challenges)) or "nothing that it names"
            raise _access_failure(scope, f"the registry asks for {asked[:100]}")
        return login.basic, _BASIC_SECONDS

    async def _token(self, scope: Scope, bearer: Mapping[str, str]) -> tuple[str, float]:
        """`bearer`: the parameters of its challenge."""
        realm = _realm(scope, bearer["realm"])
        query = {"scope": f"repository:{scope.address.repository}:{scope.actions}"}
        if bearer.get("service"):
            query["service"] = bearer["service"]
        login = scope.access.login
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


def read_object(address: Address, content: bytes) -> dict[str, Any]:
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
    if realm.scheme == "http" and realm.host != URL(scope.address.origin).host:
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


async def _refusal(address: Address, answer: aiohttp.ClientResponse) -> Setback:
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
def _convert_errors(address: Address) -> Iterator[None]:
    """Raise the client's errors as setbacks."""
    try:
        yield
    except RequestError as error:
        message = f"{address}: {error.message}"
        if error.cause is Cause.TOO_LONG:
            raise Stalled("LimitExceeded", message) from error
        raise Failed(_REASONS.get(error.cause, "OCIArtifactPullFailed"), message) from error
