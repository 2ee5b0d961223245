"""The table of the forms of posts, by type of provider. Pure."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.notifications.addresses import HTTP, NATS
from controller.notifications.forms import (
    chats,
    cloudevents,
    comments,
    commits,
    incidents,
    mails,
    otlp,
    rooms,
    sentry,
    services,
)
from controller.notifications.forms.posts import Post, posted
from controller.notifications.messages import event_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.provider import Message
    from controller.notifications.forms.posts import Target


@dataclass(frozen=True, slots=True)
class Form:
    """How one type of provider is addressed."""

    post: Callable[[Message, Target], Post]
    needs: tuple[str, ...] = ("address",)
    """What it cannot do without: keys of the Secret, and fields of the spec."""
    schemes: tuple[str, str] = HTTP
    """Of its address."""
    server: str = ""
    """The URL of the server that is asked where no address is given."""
    refusal: str = ""
    """What an answer with a good status says where it is a refusal all the same."""
    known: str = ""
    """What an answer with a bad status says where the message had arrived before."""
    tested: str = ""
    """What an answer with a bad status says to a test where address and token are right."""


def post_of(message: Message, target: Target) -> Post:
    """The request that delivers the message."""
    return FORMS[target.spec.type].post(message, target)


def is_refusal(target: Target, content: bytes) -> bool:
    """Whether an answer says, against its status, that the message was not taken."""
    refusal = FORMS[target.spec.type].refusal
    return bool(refusal) and refusal.encode() in b"".join(content.split())


def is_known(target: Target, message: Message, content: bytes) -> bool:
    """Whether an answer says, against its status, that there is nothing to do."""
    form, said = FORMS[target.spec.type], b"".join(content.split())
    words = (form.known, "" if message.alert else form.tested)
    return any(each.encode() in said for each in words if each)


def _generic(message: Message, target: Target) -> Post:
    event = event_json(message, target.namespace, target.instance)
    return posted(target.address, message, event, **{"Gotk-Component": event["reportingController"]})


def _signed(message: Message, target: Target) -> Post:
    plain = _generic(message, target)
    signature = hmac.new(target.token.encode(), plain.body, hashlib.sha256).hexdigest()
    return Post(plain.url, plain.body, plain.headers | {"X-Signature": f"sha256={signature}"})


def _nats(message: Message, target: Target) -> Post:
    """JetStream takes no other message with the same Nats-Msg-Id within minutes."""
    event = event_json(message, target.namespace, target.instance)
    return posted(target.address, message, event, **{"Nats-Msg-Id": message.key})


FORMS: Final[dict[str, Form]] = {
    "generic": Form(_generic),
    "generic-hmac": Form(_signed, ("address", "token")),
    "cloudevents": Form(cloudevents.structured),
    "cloudevents-binary": Form(cloudevents.binary),
    otlp.TYPE: Form(otlp.post),
    "nats": Form(_nats, ("address", "channel"), NATS),
    "datadog": Form(incidents.datadog, ("token",), server=incidents.DATADOG),
    "slack": Form(chats.slack, refusal='"ok":false'),
    "discord": Form(chats.discord),
    "msteams": Form(chats.msteams),
    "googlechat": Form(chats.googlechat),
    "rocket": Form(chats.rocket),
    "mattermost": Form(chats.mattermost),
    "matrix": Form(rooms.matrix, ("address", "token", "channel")),
    "zulip": Form(rooms.zulip, ("address", "token", "channel")),
    "pagerduty": Form(incidents.pagerduty, ("token",), server=incidents.PAGERDUTY),
    "opsgenie": Form(incidents.opsgenie, ("token",), server=incidents.OPSGENIE),
    "incidentio": Form(incidents.incidentio, ("address", "token")),
    "alertmanager": Form(incidents.alertmanager),
    "sentry": Form(sentry.sentry),
    "grafana": Form(incidents.grafana, ("address", "token")),
    "apprise": Form(services.apprise),
    "email": Form(mails.email, ("address", "channel", "username")),
    # A test is the status of a commit that does not exist.
    "github": Form(commits.status, ("address", "token"), tested="NocommitfoundforSHA"),
    "githubdispatch": Form(commits.githubdispatch, ("address", "token")),
    # The server answers so to a status that the commit has already.
    "gitlab": Form(
        commits.status, ("address", "token"), known="Cannottransitionstatus", tested="CommitNotFound"
    ),
    "gitea": Form(commits.status, ("address", "token")),
    "bitbucket": Form(commits.status, ("address", "token")),
    "azuredevops": Form(commits.status, ("address", "token")),
    # Where the comment is there already it is edited instead: see exchanges.py.
    "githubpullrequestcomment": Form(comments.created, ("address", "token")),
    "gitlabmergerequestcomment": Form(comments.created, ("address", "token")),
    "giteapullrequestcomment": Form(comments.created, ("address", "token")),
    "bitbucketpullrequestcomment": Form(comments.created, ("address", "token")),
    "azuredevopspullrequestcomment": Form(comments.created, ("address", "token")),
}
"""By type."""
