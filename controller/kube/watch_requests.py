"""Requests whose answers are read as they come: lists, and watches that last."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from kubernetes.aio.client.exceptions import ApiException

from controller.kube.answers import ApiResponse, retry_after, unreachable
from controller.kube.requests import read_json
from controller.runtime.reconciling.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubernetes.aio.client.api_client import ApiClient

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
