"""Sends the requests of rollouts, for metrics and webhooks, to servers that the installation allows."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from controller.api.addresses import AddressRefused, require_usable
from controller.rollouts.metric_values import (
    DATADOG,
    UnusableError,
    authorization_of,
    datadog_since,
    datadog_value,
    json_value,
    prometheus_problem,
    prometheus_value,
    request_of,
)
from controller.rollouts.rollout_ports import HookAnswer, HookCall
from controller.runtime.http_client import HttpClient, RequestError, Route, read_all
from controller.runtime.secret_texts import SecretTexts, Tls
from controller.runtime.setbacks import Failed, Setback

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from datetime import datetime

    from controller.api.fields import LocalReference
    from controller.api.flagrollout import Webhook
    from controller.api.metrictemplate import MetricProvider

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


_SECONDS: Final = 10.0
"""For one request and its answer."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a server is asked for."""

    provider: MetricProvider
    query: str
    """With its variables written out."""
    window: float
    """Seconds of the past that the query is about."""
    field: str = "spec.provider"
    """Where the provider stands in its object."""


async def read_value(
    servers: AllowedServers, namespace: str, question: Question, times: tuple[datetime, datetime]
) -> float:
    """Return the value. `times`: (since when the step is served, now). Raises NoValueError, UnusableError."""
    provider = question.provider
    content = await read_answer(servers, namespace, question, times)
    if provider.type == "prometheus":
        return prometheus_value(content)
    if provider.type == "datadog":
        return datadog_value(content)
    return json_value(content, provider.json_path or "$")


async def read_answer(
    servers: AllowedServers, namespace: str, question: Question, times: tuple[datetime, datetime]
) -> bytes:
    """Return the answer; `times` as in `read_value`. Raises UnusableError."""
    provider, field = question.provider, question.field
    since, now = times
    address = provider.address or DATADOG
    secret = await servers.texts(namespace, provider.secret_ref, address, f"{field}.secretRef")
    authority = await servers.texts(namespace, provider.cert_secret_ref, address, f"{field}.certSecretRef")
    try:
        tls = Tls() if authority is None else authority.tls()
        request = request_of(
            provider, question.query, secret, (datadog_since(question.window, now, since), now)
        )
    except Setback as setback:
        raise UnusableError(setback.message) from setback
    exchange = Exchange("GET", request.url, request.headers, tls=tls, seconds=_SECONDS)
    status, content = await servers.send(namespace, exchange)
    if status != 200:
        raise UnusableError(_problem(question, urlsplit(address).hostname or "", status, content))
    return content


def _problem(question: Question, host: str, status: int, content: bytes) -> str:
    """Return the message for an answer without a value."""
    if status in {401, 403}:
        return f"{host} answers {status}; correct the Secret of {question.field}.secretRef"
    if 300 <= status < 400:
        return f"{host} answers {status}: redirects are not followed; correct {question.field}.address"
    words = prometheus_problem(content) if question.provider.type == "prometheus" else ""
    return f"{host} answers {status}{words}"


@dataclass(frozen=True, slots=True)
class WebhookCalls:
    """The webhooks of all rollouts; see the port Hooks."""

    servers: AllowedServers

    async def ask(self, hook: Webhook, call: HookCall) -> HookAnswer:
        """See Hooks."""
        namespace = call.rollout.namespace
        headers = {"Content-Type": "application/json"}
        try:
            secret = await self.servers.texts(namespace, hook.secret_ref, hook.url, "secretRef")
            if secret is not None:
                headers["Authorization"] = authorization_of(secret)
        except (UnusableError, Setback) as error:
            return HookAnswer("Error", str(error))
        body = payload_of(hook, call)
        exchange = Exchange("POST", hook.url, headers, body, seconds=hook.timeout, whole=False)
        message = ""
        for _ in range(1 + hook.retries):
            try:
                status, _ = await self.servers.send(namespace, exchange)
            except UnusableError as error:
                message = str(error)
            else:
                return _answer(urlsplit(hook.url).hostname or "", status)
        return HookAnswer("Error", message)


def payload_of(hook: Webhook, call: HookCall) -> bytes:
    """Return the JSON that a webhook is sent: Flagger's fields, and where the rollout is."""
    return json.dumps(
        {
            "name": call.rollout.name,
            "namespace": call.rollout.namespace,
            "phase": call.phase,
            "checksum": call.checksum,
            "revision": call.revision,
            "step": call.step,
            "share": call.share,
            "flags": list(call.flags),
            "webhook": hook.name,
            "type": hook.type,
            "metadata": hook.metadata,
        }
    ).encode()


def _answer(host: str, status: int) -> HookAnswer:
    message = f"{host} answers {status}"
    if 200 <= status < 300:
        return HookAnswer("Pass", message)
    if status >= 500:
        return HookAnswer("Error", message)
    return HookAnswer("Fail", message)
