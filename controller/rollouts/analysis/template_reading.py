"""Reads one value from the server of a MetricTemplate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from controller.rollouts.analysis.allowed_servers import Exchange
from controller.rollouts.analysis.metric_requests import DATADOG, datadog_since, request_of
from controller.rollouts.analysis.readings import (
    UnusableError,
    datadog_value,
    json_value,
    prometheus_problem,
    prometheus_value,
)
from controller.runtime.reconciling.setbacks import Setback
from controller.runtime.user_text.secret_texts import Tls

if TYPE_CHECKING:
    from datetime import datetime

    from controller.api.rollouts.metrictemplate import MetricProvider
    from controller.rollouts.analysis.allowed_servers import AllowedServers

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


async def read_value(
    servers: AllowedServers, namespace: str, question: Question, times: tuple[datetime, datetime]
) -> float:
    """Return the value. `times`: (since when the step is served, now). Raises NoValueError, UnusableError."""
    provider = question.provider
    since, now = times
    address = provider.address or DATADOG
    secret = await servers.texts(namespace, provider.secret_ref, address, "spec.provider.secretRef")
    authority = await servers.texts(
        namespace, provider.cert_secret_ref, address, "spec.provider.certSecretRef"
    )
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
        raise UnusableError(_problem(provider.type, urlsplit(address).hostname or "", status, content))
    if provider.type == "prometheus":
        return prometheus_value(content)
    if provider.type == "datadog":
        return datadog_value(content)
    return json_value(content, provider.json_path or "$")


def _problem(type_: str, host: str, status: int, content: bytes) -> str:
    """Return the message for an answer without a value."""
    if status in {401, 403}:
        return f"{host} answers {status}; correct the Secret of spec.provider.secretRef"
    if 300 <= status < 400:
        return f"{host} answers {status}: redirects are not followed; correct spec.provider.address"
    words = prometheus_problem(content) if type_ == "prometheus" else ""
    return f"{host} answers {status}{words}"
