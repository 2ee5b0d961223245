"""FlagProvider: the service that alerts are sent to, and the messages that wait to be sent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AfterValidator, Field, OnErrorOmit

from controller.api.addresses import AddressRefused, require_address, server_of
from controller.api.fields import (
    INT32,
    INT64,
    TIME,
    Duration,
    LocalReference,
    Model,
    Name,
    RuledModel,
    ShortText,
    SpecProblem,
    Timeout,
)
from controller.api.kind import AGE_COLUMN, READY_COLUMN, Kind, PrinterColumn
from controller.api.meta import API_VERSION
from controller.api.status import Status

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
LISTING: Final = (
    "githubpullrequestcomment",
    "gitlabmergerequestcomment",
    "giteapullrequestcomment",
    "bitbucketpullrequestcomment",
    "azuredevopspullrequestcomment",
)
"""Types whose servers list pull requests in a way that we read."""
APP_ID: Final = "githubAppID"
"""The key of a Secret that has an App; Flux's."""
_MAILBOX: Final = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}", re.ASCII)


def needs_of(type_: str) -> tuple[str, ...]:
    """Return the required keys of the Secret and fields of the spec of a provider type."""
    return _NEEDS.get(type_, _WITH_TOKEN if server_of(type_) else ("address",))


def missing_setting(type_: str, key: str, secret: str = "") -> SpecProblem:
    """The problem where neither the spec nor the Secret of that name, if there is one, has what is needed."""
    reason = f"{key.capitalize()}NotFound"
    if key in {"channel", "username"}:
        return SpecProblem(f"spec.{key}", f"type {type_} needs it", reason)
    other = "spec.address, or " if key == "address" else ""
    more = f', or those of a GitHub App: "{APP_ID}"' if key == "token" and type_ in GITHUB_APPS else ""
    where = f'a key "{key}" in Secret "{secret}"' if secret else f'a Secret with a key "{key}"'
    return SpecProblem("spec.secretRef", f"type {type_} needs {other}{where}{more}", reason)


class PullRequestPlans(Model):
    """What is said of open pull requests."""

    flag_sets: Annotated[tuple[Name, ...], Field(min_length=1, max_length=16)]
    """FlagSets in the same namespace, whose FlagSources read the repository by Git."""
    interval: Annotated[Duration, AfterValidator(lambda seconds: max(seconds, 60.0))] = 300.0
    """How often open pull requests are listed, at least a minute: a shorter time is read as a minute."""
    limit: Annotated[int, Field(ge=1, le=50), INT32] = 10
    """How many pull requests have comments: those that changed last."""
    fork_label: ShortText | None = None
    """The label that a pull request from a fork must have; none of a fork has a comment if it is not set."""


class FlagProviderSpec(RuledModel):
    """What the user asks for."""

    type: ProviderType
    """The service; see [Types](#types)."""
    address: Annotated[str, Field(max_length=2048)] | None = None
    """The URL of the service, if it is not secret."""
    secret_ref: LocalReference | None = None
    """A Secret in the same namespace: `address`, which overrides `spec.address`; `token`, the key or
    password that the type needs; and keys that begin with `githubApp`, those of a GitHub App.
    """
    cert_secret_ref: LocalReference | None = None
    """A Secret in the same namespace: `ca.crt` is trusted in addition to the system's authorities;
    `tls.crt` is presented to the server; its key `tls.key` is of an elliptic curve, or RSA of at most 4,096
    bits.
    """
    proxy_secret_ref: LocalReference | None = None
    """A Secret in the same namespace: `address` of an `http://` or `https://` proxy, and `username` and
    `password` if it needs them.
    """
    channel: Annotated[str, Field(max_length=2048)] | None = None
    """The channel of `slack` (the webhook's own if it is not set), or the recipient of `email`."""
    username: Annotated[str, Field(max_length=2048)] | None = None
    """The name that `slack` and `discord` show (the webhook's own if it is not set), or the sender of
    `email`.
    """
    timeout: Timeout = 15.0
    """How long one try may take, at most `10m`."""
    plans: PullRequestPlans | None = None
    """Keep a comment on each open pull request that says [what it does to
    users](../notifications.md#comment-on-pull-requests); needs one of the types that end in `comment`.
    """
    suspend: bool = False
    """Send nothing and accept no new messages; messages that wait already are kept."""

    def cluster_problems(self) -> Iterator[SpecProblem]:
        """What no Secret can put right; an address where no Secret can have another."""
        given = {key for key in ("address", "channel", "username") if getattr(self, key)}
        given |= set() if self.secret_ref is None else {"address", "token"}
        for key in needs_of(self.type):
            if key not in given:
                yield missing_setting(self.type, key)
        if self.address and self.secret_ref is None:
            try:
                require_address(self.type, self.address, allow_local=True)
            except AddressRefused as error:
                yield SpecProblem("spec.address", str(error), error.reason)
        if self.plans is not None and self.type not in LISTING:
            message = f"a provider of type {self.type} lists no pull requests; {', '.join(LISTING)} do"
            yield SpecProblem("spec.plans", message)
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
    """Idempotency key, the same each time that it is sent."""
    alert: str
    """The FlagAlert that chose it; empty for a test."""
    api_version: str
    """Of the object that it is about."""
    kind: str
    """Of the object."""
    namespace: str | None = None
    """Of the object, where it is not the provider's."""
    name: str
    """Of the object."""
    uid: str
    """Of the object."""
    severity: Literal["info", "warning", "error"]
    """How bad it is."""
    reason: str
    """What happened, as one stable word."""
    message: str
    """What happened, in a sentence."""
    time: Annotated[str, TIME]
    """When it happened."""
    state: Literal["failing", "recovered"] | None = None
    """Whether it opens or ends an incident; not there where it does neither."""
    metadata: dict[str, str] = Field(default_factory=dict)
    """More facts, such as the revision."""
    group: str | None = None
    """What it has in common with messages that may become one with it."""
    after: Annotated[str, TIME] | None = None
    """When it is sent at the earliest."""
    others: tuple[str, ...] = ()
    """The beginnings of the keys of messages that became one with it."""
    objects: tuple[str, ...] = ()
    """The other objects that these are about, `<kind>/<name>`."""


class Failure(Model):
    """A try that did not succeed."""

    time: Annotated[str, TIME]
    """When it failed so first."""
    reason: str
    """Why, as one stable word."""
    message: str
    """Why, in a line."""


class FlagProviderStatus(Status):
    """What became of it."""

    last_handled_test: str | None = None
    """The last value of the annotation flagstaff.dev/test-alert that was acted on."""
    waiting: Annotated[int, INT64] = 0
    """How many messages wait to be delivered."""
    dead: Annotated[int, INT64] = 0
    """How many messages were given up."""
    last_dead: str | None = None
    """The message that was given up last, and why."""
    last_delivery: Annotated[str, TIME] | None = None
    """When a message was delivered last."""
    last_failure: Failure | None = None
    """What the last failure was, and since when; it stays after the next success."""
    pending: tuple[OnErrorOmit[Message], ...] | None = None
    """The messages that wait, oldest first. A replica that takes over sends them with the same keys."""
    reported: dict[str, str] | None = None
    """Of each object of each alert, `<alert>/<kind>/<name>`, the failures that were reported since it
    worked last, and the content that was reported last.
    """
    recent: tuple[str, ...] | None = None
    """The beginnings of the keys that were delivered last."""
    failing: dict[str, str] | None = None
    """Failures that were not reported yet, `<alert>/<kind>/<name>`, and until when each must last for
    that.
    """


RECORD: Final = Kind(
    API_VERSION,
    KIND,
    "flagproviders",
    short_name="fprov",
    description="FlagProvider names a server to which is sent what FlagAlerts choose.",
    spec=FlagProviderSpec,
    status=FlagProviderStatus,
    columns=(
        READY_COLUMN,
        PrinterColumn("Delivered", '.status.conditions[?(@.type=="Delivered")].status'),
        PrinterColumn("Waiting", ".status.waiting", "integer"),
        PrinterColumn("Dead", ".status.dead", "integer"),
        AGE_COLUMN,
        PrinterColumn("Status", '.status.conditions[?(@.type=="Ready")].message', priority=1),
    ),
    modules=(
        "events/deliverer events/flux_events events/git_servers events/notice "
        "events/provider_reconciler events/senders events/service_types"
    ),
    quota=10,
)
