"""The table of the forms of posts, by type of provider, and the forms whose content is Flux's Event. Pure.

CloudEvents 1.0, in both modes of its HTTP binding:
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.notifications.forms import chats, comments, commits, incidents, mails, otlp, services
from controller.notifications.forms.posts import Post, bearer, posted
from controller.notifications.messages import event_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.provider import Message
    from controller.notifications.forms.posts import Target


@dataclass(frozen=True, slots=True)
class Form:
    """How one type of provider is addressed."""

    post: Callable[[Message, Target], Post]
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


def _structured(message: Message, target: Target) -> Post:
    """All of it in the body."""
    data = event_json(message, target.namespace, target.instance)
    content = {**_attributes(message, target), "datacontenttype": "application/json", "data": data}
    kind = {"Content-Type": "application/cloudevents+json; charset=utf-8"}
    return posted(target.address, message, content, **bearer(target), **kind)


def _binary(message: Message, target: Target) -> Post:
    """The attributes as headers, the data as the body."""
    data = event_json(message, target.namespace, target.instance)
    headers = {f"ce-{name}": text for name, text in _attributes(message, target).items()}
    return posted(target.address, message, data, **bearer(target), **headers)


def _attributes(message: Message, target: Target) -> dict[str, str]:
    """All are ASCII, since names of objects and reasons are; `id` is the same each time that it is sent."""
    return {
        "specversion": "1.0",
        "id": message.key,
        "source": f"/namespaces/{target.namespace}/{message.kind.lower()}s/{message.name}",
        "type": f"dev.flagstaff.{message.kind}.{message.reason}",
        "subject": f"{message.kind}/{message.name}",
        "time": message.time,
    }


FORMS: Final[dict[str, Form]] = {
    "generic": Form(_generic),
    "generic-hmac": Form(_signed),
    "cloudevents": Form(_structured),
    "cloudevents-binary": Form(_binary),
    otlp.TYPE: Form(otlp.post),
    "nats": Form(_nats),
    "datadog": Form(incidents.datadog, server=incidents.DATADOG),
    "slack": Form(chats.slack, refusal='"ok":false'),
    "discord": Form(chats.discord),
    "msteams": Form(chats.msteams),
    "googlechat": Form(chats.googlechat),
    "rocket": Form(chats.rocket),
    "mattermost": Form(chats.mattermost),
    "matrix": Form(chats.matrix),
    "zulip": Form(chats.zulip),
    "pagerduty": Form(incidents.pagerduty, server=incidents.PAGERDUTY),
    "opsgenie": Form(incidents.opsgenie, server=incidents.OPSGENIE),
    "incidentio": Form(incidents.incidentio),
    "alertmanager": Form(incidents.alertmanager),
    "sentry": Form(incidents.sentry),
    "grafana": Form(incidents.grafana),
    "apprise": Form(services.apprise),
    "email": Form(mails.email),
    # A test is the status of a commit that does not exist.
    "github": Form(commits.status, tested="NocommitfoundforSHA"),
    "githubdispatch": Form(commits.githubdispatch),
    # The server answers so to a status that the commit has already.
    "gitlab": Form(commits.status, known="Cannottransitionstatus", tested="CommitNotFound"),
    "gitea": Form(commits.status),
    "bitbucket": Form(commits.status),
    "azuredevops": Form(commits.status),
    # Where the comment is there already it is edited instead: see exchanges.py.
    "githubpullrequestcomment": Form(comments.created),
    "gitlabmergerequestcomment": Form(comments.created),
    "giteapullrequestcomment": Form(comments.created),
    "bitbucketpullrequestcomment": Form(comments.created),
    "azuredevopspullrequestcomment": Form(comments.created),
}
"""By type."""
