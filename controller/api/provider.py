"""FlagProvider: where alerts are sent, and what waits to be sent there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BeforeValidator, Field, OnErrorOmit

from controller.api.objects.fields import LocalReference, Model, SpecProblem, Timeout
from controller.api.objects.status import Status
from controller.api.parsing.addresses import AddressRefused, require_address, server_of

if TYPE_CHECKING:
    from collections.abc import Iterator

KIND: Final = "FlagProvider"

SEVERITIES: Final = ("info", "warning", "error")
"""The least first."""

ProviderType = Literal[
    "generic",
    "generic-hmac",
    "cloudevents",
    "flux",
    "slack",
    "discord",
    "msteams",
    "googlechat",
    "pagerduty",
    "opsgenie",
    "alertmanager",
    "grafana",
    "email",
    "github",
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
_BY_FLUX: Final = "use type flux, and Flux's Provider of type {}"
REMOVED: Final = {
    "apprise": "use type flux, whose Providers reach Telegram, Webex and Lark, or type email",
    "cloudevents-binary": "use type cloudevents, which sends the same in one body",
    "datadog": _BY_FLUX.format("datadog"),
    "githubdispatch": _BY_FLUX.format("githubdispatch"),
    "incidentio": _BY_FLUX.format("incident.io"),
    "matrix": _BY_FLUX.format("matrix"),
    "mattermost": _BY_FLUX.format("slack"),
    "nats": _BY_FLUX.format("nats"),
    "otlp": _BY_FLUX.format("otel"),
    "rocket": _BY_FLUX.format("rocket"),
    "sentry": _BY_FLUX.format("sentry"),
    "zulip": _BY_FLUX.format("zulip"),
}
"""Types of earlier versions, and what to use instead. crds/flagproviders.yaml says the same."""


def _require_offered(type_: object) -> object:
    """Raise ValueError for a type that was removed."""
    if isinstance(type_, str) and type_ in REMOVED:
        raise ValueError(f"type {type_} was removed; {REMOVED[type_]}")
    return type_


_WITH_TOKEN: Final = ("address", "token")
_NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "generic-hmac": _WITH_TOKEN,
    "flux": (),
    "pagerduty": ("token",),
    "opsgenie": ("token",),
    "grafana": _WITH_TOKEN,
    "email": ("address", "channel", "username"),
}
GITHUB_APPS: Final = frozenset({"github", "githubpullrequestcomment"})
"""Types that take an App in place of a token."""
APP_ID: Final = "githubAppID"
"""The key of a Secret that has an App; Flux's."""
_MAILBOX: Final = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}", re.ASCII)


def needs_of(type_: str) -> tuple[str, ...]:
    """Return the required keys of the Secret and fields of the spec of a provider type."""
    return _NEEDS.get(type_, _WITH_TOKEN if server_of(type_) else ("address",))


def missing(type_: str, key: str, secret: str = "") -> SpecProblem:
    """The problem where neither the spec nor the Secret of that name, if there is one, has what is needed."""
    reason = f"{key.capitalize()}NotFound"
    if key in {"channel", "username"}:
        return SpecProblem(f"spec.{key}", f"type {type_} needs it", reason)
    other = "spec.address, or " if key == "address" else ""
    more = f', or those of a GitHub App: "{APP_ID}"' if key == "token" and type_ in GITHUB_APPS else ""
    where = f'a key "{key}" in Secret "{secret}"' if secret else f'a Secret with a key "{key}"'
    return SpecProblem("spec.secretRef", f"type {type_} needs {other}{where}{more}", reason)


class FlagProviderSpec(Model):
    """What the user asks for."""

    type: Annotated[ProviderType, BeforeValidator(_require_offered)]
    address: Annotated[str, Field(max_length=2048)] | None = None
    secret_ref: LocalReference | None = None
    cert_secret_ref: LocalReference | None = None
    proxy_secret_ref: LocalReference | None = None
    channel: Annotated[str, Field(max_length=2048)] | None = None
    username: Annotated[str, Field(max_length=2048)] | None = None
    timeout: Timeout = 15.0
    suspend: bool = False

    def cluster_problems(self) -> Iterator[SpecProblem]:
        """What no Secret can put right; an address where no Secret can have another."""
        given = {key for key in ("address", "channel", "username") if getattr(self, key)}
        given |= set() if self.secret_ref is None else {"address", "token"}
        for key in needs_of(self.type):
            if key not in given:
                yield missing(self.type, key)
        if self.address and self.secret_ref is None:
            try:
                require_address(self.type, self.address, allow_local=True)
            except AddressRefused as error:
                yield SpecProblem("spec.address", str(error), error.reason)
        if self.type == "email":
            yield from self._mail_problems()

    def _mail_problems(self) -> Iterator[SpecProblem]:
        if self.proxy_secret_ref is not None:
            yield SpecProblem(
                "spec.proxySecretRef", "a provider of type email is reached directly; leave it out"
            )
        for name, mailbox in (("channel", self.channel), ("username", self.username)):
            if mailbox and not _MAILBOX.fullmatch(mailbox):
                yield SpecProblem(
                    f"spec.{name}", "must be one mailbox, such as flags@example.com", AddressRefused.REASON
                )


class Message(Model):
    """What one alert has to say of one object, until it is delivered."""

    key: str
    """Idempotency key: the same each time that it is sent."""
    alert: str
    """The FlagAlert's name; empty for a test."""
    api_version: str
    kind: str
    namespace: str | None = None
    """The object's namespace; None: that of the provider."""
    name: str
    uid: str
    """The object's uid."""
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
    """The earliest time to send it, RFC 3339 in UTC."""
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
    """The error in one line."""


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
