"""One request to the API server and its answer, also one that is read as it comes.

A request is tried again where that helps, and large content is read beside the loop.
"""

from __future__ import annotations

import asyncio
import random
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlencode

import aiohttp
import orjson
from kubernetes.aio.client.exceptions import ApiException

from controller.api.meta import NOTHING
from controller.kube.answers import (
    ApiResponse,
    causes,
    date,
    require_object,
    retry_after,
    root_of,
    unreachable,
)
from controller.runtime.setbacks import Failed
from evaluator.host.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from kubernetes.aio.client import ApiClient


PAGE: Final = 100
"""Objects per page of a list: each may have 1.5 MiB."""
LARGE: Final = 65_536
"""Bytes from which on JSON is read in a thread."""
MANY: Final = 1000
"""Keys of a Secret or ConfigMap from which on its values are decoded in a thread: 50,000 take 15 ms. Their
size does not matter: 1 MiB, which is all they may have, takes 3 ms, in one call, in which a thread holds
Python's lock, too.
"""
JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY: Final = "application/apply-patch+yaml"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""An object without its content."""
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_HEADERS: Final = {"Content-Type": JSON, "Accept": JSON}
RETRIES: Final = 3
"""How often a request is tried again."""
_BACKOFF: Final = Backoff(first=0.25, most=1.0, jitter=0.0)
JITTER: Final = 0.5
"""A pause is longer by up to this share at random, so that those who were refused together come back apart.
"""
_TIMEOUT: Final = 15.0
PASSING: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, 500, 502, 503, 504})
"""Statuses that are retried."""


class ApiTransport(Protocol):
    """Sends requests to one API server."""

    async def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | list[dict[str, Any]] | None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """(status, headers, content) of any answer. `target`: path and query. Raises Failed without one."""


class ClientTransport:
    """Sends by the official client."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    async def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | list[dict[str, Any]] | None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """See ApiTransport."""
        try:
            _, url, sent, _, _ = await self._api.param_serialize(
                method, target, header_params=dict(headers), auth_settings=["BearerToken"]
            )
            response = await self._api.call_api(method, url, sent, body, _request_timeout=_TIMEOUT)
            return response.status, response.headers, await response.read()
        except ApiException as error:
            return error.status or 0, {}, orjson.dumps({"message": str(error.reason)})
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = unreachable(self._api.configuration.host, error)
            raise Failed("ApiServerUnavailable", f"the API server at {why}") from error


class Requests:
    """Requests to one API server."""

    def __init__(
        self,
        transport: ApiTransport,
        random: Callable[[], float] = random.random,
        headers: Mapping[str, str] = NOTHING,
        retries: int = RETRIES,
    ) -> None:
        """`random` returns numbers from 0 to 1. `headers` are sent with every request."""
        self._transport = transport
        self._headers = headers
        self._random = random
        self._retries = retries

    async def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | list[dict[str, Any]] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> ApiResponse:
        """Send a request, and retry transient refusals, not before the server's Retry-After. Raises Failed
        without an answer.
        """
        headers = {"Content-Type": content_type, "Accept": accept}
        for failures in range(1, self._retries + 1):
            answer = await self.once(method, path, query or {}, body, headers)
            if answer.status not in PASSING and not _overtaken(method, body, answer):
                return answer
            pause = max(_BACKOFF.delay(failures, 0.0), answer.retry_after)
            await asyncio.sleep(pause * (1 + JITTER * self._random()))
        return await self.once(method, path, query or {}, body, headers)

    async def once(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | list[dict[str, Any]] | None,
        headers: Mapping[str, str] = _HEADERS,
    ) -> ApiResponse:
        """Send a request once; return any answer. Raises Failed without one."""
        target = f"{path}?{urlencode(query)}" if query else path
        status, given, content = await self._transport.send(
            method, target, {**headers, **self._headers}, body
        )
        try:
            parsed = await read_json(content or b"{}")
        except ValueError:
            parsed = {"message": content[:200].decode(errors="replace")}
        body_read = parsed if isinstance(parsed, dict) else {}
        return ApiResponse(status, body_read, retry_after(given), date(given))

    async def pages(
        self, path: str, api_version: str, plural: str, accept: str, name: str = "", labels: str = ""
    ) -> AsyncIterator[dict[str, Any]]:
        """A list in parts, of all objects or those of one name; none of a kind that is not installed. Raises
        Failed.
        """
        query = {"limit": str(PAGE), **({"labelSelector": labels} if labels else {})}
        if name:
            # With this selector the API server requires only the right to objects of that name.
            query["fieldSelector"] = f"metadata.name={name}"
        while True:
            answer = await self.ask("GET", path, query, accept=accept)
            if answer.status == HTTPStatus.NOT_FOUND and not await self.installs(api_version, plural):
                return
            page = require_object(answer, plural, "")
            yield page
            query["continue"] = str(page["metadata"].get("continue") or "")
            if not query["continue"]:
                return

    async def installs(self, api_version: str, plural: str) -> bool:
        """Whether the kind is in the API server's own list of kinds. A 404 alone does not say so: a load
        balancer without an API server behind it answers the same. Raises Failed where what answers is no
        API server.
        """
        answer = await self.once("GET", root_of(api_version), {}, None)
        if answer.status == HTTPStatus.OK and answer.body.get("kind") == "APIResourceList":
            return any(object_.get("name") == plural for object_ in _objects(answer.body.get("resources")))
        groups = await self.once("GET", "/apis", {}, None)
        if groups.status == HTTPStatus.OK and groups.body.get("kind") == "APIGroupList":
            return any(
                version.get("groupVersion") == api_version
                for group in _objects(groups.body.get("groups"))
                for version in _objects(group.get("versions"))
            )
        raise Failed("ApiServerFailed", f"{plural}: 404, and the API server does not say which kinds it has")


async def read_json(text: bytes) -> Any:
    """The value of a JSON text; a large one, which would hold up everybody else, is read in a thread. Raises
    ValueError.
    """
    read: Callable[[bytes], Any] = orjson.loads
    return read(text) if len(text) < LARGE else await asyncio.to_thread(read, text)


async def decode_values(data: Mapping[str, Any], decode: Callable[[Any], bytes]) -> dict[str, bytes]:
    """The values of a Secret or ConfigMap by key; those of many keys are decoded in a thread. Raises what
    `decode` raises.
    """

    def work() -> dict[str, bytes]:
        return {key: decode(value) for key, value in data.items()}

    return work() if len(data) < MANY else await asyncio.to_thread(work)


def _objects(items: Any) -> Iterator[dict[str, Any]]:
    return (item for item in (items if isinstance(items, list) else ()) if isinstance(item, dict))


def _overtaken(
    method: str, body: Mapping[str, Any] | list[dict[str, Any]] | None, answer: ApiResponse
) -> bool:
    """Whether others wrote the object faster than the API server could patch it. A conflict of owners names
    its causes, and what is meant for one version must be decided again.
    """
    versioned = isinstance(body, dict) and "resourceVersion" in (body.get("metadata") or {})
    return method == "PATCH" and answer.status == HTTPStatus.CONFLICT and not (causes(answer) or versioned)


def status_patch(uid: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The JSON patch (RFC 6902) from one status to the other, of the object with that uid alone: in a merge
    patch of a status the API server ignores the uid.
    """
    same = {"op": "test", "path": "/metadata/uid", "value": uid}
    if not before:
        return [same, {"op": "add", "path": "/status", "value": dict(after)}]
    gone = [{"op": "remove", "path": f"/status/{name}"} for name in before.keys() - after.keys()]
    changed = [
        {"op": "add", "path": f"/status/{name}", "value": value}
        for name, value in after.items()
        if name not in before or before[name] != value
    ]
    return [same, *gone, *changed]


CONNECT_SECONDS: Final = 5.0
MOST_LINE: Final = 64 * 1024 * 1024
_MOST_REFUSAL: Final = 64 * 1024


class WatchExpired(Exception):
    """The watched version is too old for the API server: 410."""


class KindNotInstalled(Exception):
    """The kind is not installed: 404."""


class WatchRefused(Failed):
    """The API server refused, possibly with a Retry-After."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__("ApiServerFailed", message)
        self.retry_after = retry_after


class WatchRequest:
    """A GET whose body is read as it comes. Raises Failed, WatchExpired,
    KindNotInstalled, also while it is read."""

    def __init__(self, api: ApiClient, target: str, accept: str, silent: float) -> None:
        """`target`: path and query; `silent`: seconds without a byte after which it is cut."""
        self._api = api
        self._target = target
        self._accept = accept
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silent)
        self._response: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> aiohttp.ClientResponse:
        try:
            _, url, headers, _, _ = await self._api.param_serialize(
                "GET", self._target, header_params={"Accept": self._accept}, auth_settings=["BearerToken"]
            )
            raw_response = await self._api.call_api("GET", url, headers, _request_timeout=self._timeout)
        except ApiException as error:
            raise Failed("ApiServerFailed", f"status {error.status}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Failed("ApiServerUnavailable", self._unreachable(error)) from error
        response: aiohttp.ClientResponse = raw_response.response
        self._response = response
        if response.status == HTTPStatus.OK:
            return response
        message = await _message_of(response)
        response.close()
        if response.status == HTTPStatus.GONE:
            raise WatchExpired
        if response.status == HTTPStatus.NO_CONTENT:
            raise Failed("NoContent", "there is no log yet: a pod has one once a node runs it")
        if response.status == HTTPStatus.NOT_FOUND:
            raise KindNotInstalled
        raise WatchRefused(message, retry_after(response.headers))

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._response is not None:
            self._response.close()
        if isinstance(error, (aiohttp.ClientError, TimeoutError, OSError, ValueError)):
            raise Failed("ApiServerUnavailable", self._unreachable(error)) from error

    def _unreachable(self, error: BaseException) -> str:
        return unreachable(self._api.configuration.host, error)


async def _message_of(response: aiohttp.ClientResponse) -> str:
    """The API server's sentence about a refusal, such as who may not list what; else its status."""
    try:
        body = await read_object(await response.content.read(_MOST_REFUSAL))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        body = {}
    return ApiResponse(response.status, body).message


async def read_object(text: bytes) -> dict[str, Any]:
    """JSON of an object. Raises ValueError."""
    event = await read_json(text)
    if not isinstance(event, dict):
        raise ValueError("not an object")  # noqa: TRY004 - of what was sent, like any other text that is wrong
    return event


async def lines_of(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The lines of a body, of any length up to MOST_LINE. Raises ValueError for a longer one."""
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        *whole, rest = piece.split(b"\n")
        for line in whole:
            pieces.append(line)
            if any(pieces):
                yield b"".join(pieces)
            pieces, size = [], 0
        pieces.append(rest)
        size += len(rest)
        if size > MOST_LINE:
            raise ValueError("an event is too large")
