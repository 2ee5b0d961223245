"""FlagProvider: where alerts are sent, and what waits to be sent there."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, OnErrorOmit

from controller.api.fields import LocalReference, Model, Timeout
from controller.api.status import Status

KIND: Final = "FlagProvider"

SEVERITIES: Final = ("info", "warning", "error")
"""The least first."""

ProviderType = Literal[
    "generic",
    "generic-hmac",
    "cloudevents",
    "cloudevents-binary",
    "otlp",
    "nats",
    "datadog",
    "slack",
    "discord",
    "msteams",
    "googlechat",
    "rocket",
    "mattermost",
    "matrix",
    "zulip",
    "pagerduty",
    "opsgenie",
    "incidentio",
    "alertmanager",
    "sentry",
    "grafana",
    "apprise",
    "email",
    "github",
    "githubdispatch",
    "gitlab",
    "gitea",
    "bitbucket",
    "azuredevops",
    "githubpullrequestcomment",
    "gitlabmergerequestcomment",
    "giteapullrequestcomment",
    "bitbucketpullrequestcomment",
    "azuredevopspullrequestcomment",
]


class FlagProviderSpec(Model):
    """What the user asks for."""

    type: ProviderType
    address: Annotated[str, Field(max_length=2048)] | None = None
    secret_ref: LocalReference | None = None
    cert_secret_ref: LocalReference | None = None
    proxy_secret_ref: LocalReference | None = None
    channel: Annotated[str, Field(max_length=2048)] | None = None
    username: Annotated[str, Field(max_length=2048)] | None = None
    timeout: Timeout = 15.0
    suspend: bool = False


class Message(Model):
    """What one alert has to say of one object, until it is delivered."""

    key: str
    """Idempotency key: the same each time that it is sent."""
    alert: str
    """The FlagAlert's name; empty for a test."""
    api_version: str
    kind: str
    namespace: str | None = None
    """None: that of the provider."""
    name: str
    uid: str
    """Of the object."""
    severity: Literal["info", "warning", "error"]
    reason: str
    message: str
    time: str
    """RFC 3339, in UTC."""
    state: Literal["failing", "recovered"] | None = None
    """Whether it opens or ends an incident; None: neither."""
    metadata: dict[str, str] = Field(default_factory=dict)
    group: str | None = None
    """What it has in common with messages that may become one with it, where the alert asks for that."""
    after: str | None = None
    """When it is sent at the earliest, RFC 3339 in UTC."""
    others: tuple[str, ...] = ()
    """The beginnings of the keys of messages that became one with it."""
    objects: tuple[str, ...] = ()
    """`<kind>/<name>` of each other object; `<kind>/<namespace>/<name>` if not in the provider's."""


class Failure(Model):
    """A try that did not succeed."""

    time: str
    """RFC 3339, in UTC."""
    reason: str
    message: str
    """One line."""


class FlagProviderStatus(Status):
    """What became of it."""

    last_handled_test: str | None = None
    waiting: int = 0
    dead: int = 0
    last_dead: str | None = None
    last_delivery: str | None = None
    last_failure: Failure | None = None
    pending: tuple[OnErrorOmit[Message], ...] | None = None
    reported: dict[str, str] | None = None
    recent: tuple[str, ...] | None = None
    failing: dict[str, str] | None = None
