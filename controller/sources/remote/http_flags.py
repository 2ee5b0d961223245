"""A document of flags at a URL, fetched with its ETag."""

from __future__ import annotations

from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from yarl import URL

from controller.delivery.remote_answers import INVALID, RemoteAnswer
from controller.runtime.network.http_client import Cause, HttpClient, RequestError, Route, read_all
from controller.runtime.reconciling.setbacks import Failed
from controller.sources.remote.known_contents import KnownContents
from controller.sources.remote.provider_login import login_of, split_url
from evaluator.flags.layers.merge import parse
from evaluator.flags.syntax.document import Syntax, format_of

if TYPE_CHECKING:
    from datetime import datetime

    import aiohttp

    from controller.delivery.remote_answers import RemoteRequest
    from controller.sources.secrets import Secrets

MOST_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of a document, from any server."""
SECONDS: Final = 10.0
"""For one request and its answer."""
_MOST_ETAG: Final = 256
_ACCEPT: Final = "application/json, application/yaml"
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_REASONS: Final = {
    Cause.TOO_LONG: "TooLarge",
    Cause.TIMEOUT: "Timeout",
    Cause.CERTIFICATE: "CertificateRefused",
    Cause.PROXY_LOGIN: "AuthenticationFailed",
}
_TODO: Final = {
    Cause.TOO_LONG: "make the set smaller, or take a FlagSource",
    Cause.CERTIFICATE: "add its authority as 'ca.crt' to the Secret of credentials",
}


@dataclass(frozen=True, slots=True)
class HttpFlags:
    """Fetches documents."""

    client: HttpClient
    secrets: Secrets
    seconds: float = SECONDS
    known: KnownContents = field(default_factory=KnownContents)

    async def fetch(self, request: RemoteRequest) -> RemoteAnswer | None:
        """See RemoteSource."""
        url = request.spec.url or ""
        host = split_url(request).hostname or ""
        login = await login_of(request, self.secrets, host)
        headers = {"Accept": _ACCEPT}
        if login.token:
            headers["Authorization"] = f"Bearer {login.token}"
        if _is_etag(request.version):
            headers["If-None-Match"] = request.version
        route = Route(login.tls, namespace=request.key.namespace, seconds=self.seconds)
        try:
            async with self.client.request("GET", url, headers=headers, route=route) as answer:
                if answer.status == 304 and "If-None-Match" in headers:
                    return None
                _require_document(answer, host)
                content = await read_all(answer, MOST_BYTES)
        except RequestError as error:
            todo = _TODO.get(error.cause)
            message = error.message if todo is None else f"{error.message}; {todo}"
            raise Failed(_REASONS.get(error.cause, "FetchFailed"), message) from error
        file = _file_of(answer)
        _require_whole(answer, file, host)
        if content.lstrip()[:1] == b"<":
            raise _is_html(host)
        if self.known.is_in_force(request, content):
            return None
        etag = answer.headers.get("ETag", "")
        version = etag if _is_etag(etag) else ""
        return RemoteAnswer(partial(parse, content, file=file), version, modified=_time_of(answer))


def _require_document(answer: aiohttp.ClientResponse, host: str) -> None:
    """Raise Failed for an answer that is not the document."""
    status = answer.status
    if status in {401, 403}:
        todo = "correct the token in the Secret of credentials"
        raise Failed("AuthenticationFailed", f"{host} answers {status}; {todo}")
    if status in {404, 410}:
        raise Failed("NotFound", f"{host} answers {status}: there is no such document; correct url")
    if status in _REDIRECTS:
        raise Failed("Redirected", f"{host} answers {status}, to {_target(answer)}; {_NOT_FOLLOWED}")
    if status != 200:
        raise Failed("FetchFailed", f"{host} answers {status}; it is asked again")
    if "html" in answer.headers.get("Content-Type", "").lower():
        raise _is_html(host)


_NOT_FOLLOWED: Final = "redirects are not followed, since they would carry the token along; correct url"


def _target(answer: aiohttp.ClientResponse) -> str:
    """Return the host that a redirect leads to: the rest may be secret."""
    try:
        return URL(answer.headers.get("Location", "")).host or "another path"
    except ValueError:
        return "what is no URL"


def _is_html(host: str) -> Failed:
    return Failed(INVALID, f"{host} answers with HTML instead of flags; correct url: is this a login page?")


def _file_of(answer: aiohttp.ClientResponse) -> str:
    """Return a file name for messages, whose extension is the format."""
    yaml = "yaml" in answer.headers.get("Content-Type", "").lower()
    return "flags.yaml" if yaml or format_of(answer.url.path) is Syntax.YAML else "flags.json"


def _require_whole(answer: aiohttp.ClientResponse, file: str, host: str) -> None:
    """Raise Failed for YAML whose end cannot be told: cut at a line, it is valid, with fewer flags."""
    ends = "Content-Length" in answer.headers or "chunked" in answer.headers.get("Transfer-Encoding", "")
    if file.endswith(".yaml") and not ends:
        todo = "have it send Content-Length, or serve JSON"
        raise Failed(INVALID, f"{host} answers with YAML without its length, which may be cut off; {todo}")


def _is_etag(text: str) -> bool:
    """Whether it is an ETag that can be sent back."""
    quoted = text.removeprefix("W/")
    return len(text) <= _MOST_ETAG and text.isascii() and text.isprintable() and quoted[:1] == '"'


def _time_of(answer: aiohttp.ClientResponse) -> datetime | None:
    try:
        moment = parsedate_to_datetime(answer.headers.get("Last-Modified", ""))
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo is not None else None
