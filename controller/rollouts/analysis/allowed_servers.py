"""Sends the requests of rollouts to servers that the installation allows."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from controller.api.parsing.addresses import AddressRefused, require_usable
from controller.rollouts.analysis.readings import UnusableError
from controller.runtime.network.http_client import RequestError, Route, read_all
from controller.runtime.reconciling.setbacks import Failed, Setback
from controller.runtime.user_text.secret_texts import SecretTexts, Tls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from controller.api.objects.fields import LocalReference
    from controller.runtime.network.http_client import HttpClient

    ReadSecret = Callable[[str, str], Awaitable[Mapping[str, bytes] | None]]
    """(namespace, name) -> a Secret's content, None if there is none; raises Setback."""

_MOST_BYTES: Final = 256 * 1024
"""Most bytes of an answer, which has one number."""
_OPTION: Final = "whoever runs the controller may name it in --rollout-hosts"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = b""
    tls: Tls = field(default=Tls(), repr=False)
    seconds: float = 10.0
    """For the request and the whole answer."""
    whole: bool = True
    """Whether the content of the answer is needed."""


@dataclass(frozen=True, slots=True)
class AllowedServers:
    """The servers that the installation allows. Every failure is an UnusableError."""

    client: HttpClient
    secret: ReadSecret
    allow_local: bool = False
    """Whether plain http and private addresses may be asked, as far as the client allows them."""

    async def texts(
        self, namespace: str, reference: LocalReference | None, url: str, field: str
    ) -> SecretTexts | None:
        """Return the Secret that a field names, if its binding allows the URL's host.
        Raises UnusableError.
        """
        if reference is None:
            return None
        with _as_unusable():
            content = await self.secret(namespace, reference.name)
            if content is None:
                raise Failed("SecretNotFound", f"Secret {reference.name} does not exist; correct {field}")
            texts = SecretTexts(reference.name, content)
            texts.require_host(urlsplit(url).hostname or "")
            return texts

    async def send(self, namespace: str, exchange: Exchange) -> tuple[int, bytes]:
        """Return (status, content). Raises UnusableError."""
        with _as_unusable():
            require_usable(exchange.url, allow_local=self.allow_local)
            route = Route(exchange.tls, namespace=namespace, seconds=exchange.seconds)
            async with self.client.request(
                exchange.method, exchange.url, headers=exchange.headers, data=exchange.body, route=route
            ) as answer:
                content = await read_all(answer, _MOST_BYTES) if exchange.whole else b""
                return answer.status, content


@contextlib.contextmanager
def _as_unusable() -> Iterator[None]:
    """Raise UnusableError for refusals and setbacks that the block raises."""
    try:
        yield
    except RequestError as error:
        raise UnusableError(error.message) from error
    except AddressRefused as error:
        raise UnusableError(f"the address cannot be used: {error}; {_OPTION}") from error
    except Setback as setback:
        private = setback.message.endswith("is not a public address")
        raise UnusableError(f"{setback.message}; {_OPTION}" if private else setback.message) from setback
