"""The table of the forms of posts, by type of provider, and the forms whose content is Flux's Event. Pure.

CloudEvents 1.0, in both modes of its HTTP binding:
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from controller.notifications.addresses import HTTP, NATS
from controller.notifications.forms import chats, incidents, otlp, services
from controller.notifications.forms.posts import Notice
from controller.notifications.forms.repositories import statuses
from controller.notifications.forms.repositories.comments import Thread
from controller.notifications.reporting.standing import PULL_REQUESTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.provider import Message
    from controller.notifications.forms.posts import Post, Target


@dataclass(frozen=True, slots=True)
class Form:
    """How one type of provider is addressed."""

    post: Callable[[Notice], Post]
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
    form = FORMS[target.spec.type]
    given = target if target.address else replace(target, address=form.server)
    return form.post(Notice(message, given))


def is_refusal(target: Target, content: bytes) -> bool:
    """Whether an answer says, against its status, that the message was not taken."""
    refusal = FORMS[target.spec.type].refusal
    return bool(refusal) and refusal.encode() in b"".join(content.split())


def is_known(target: Target, message: Message, content: bytes) -> bool:
    """Whether an answer says, against its status, that there is nothing to do."""
    form, said = FORMS[target.spec.type], b"".join(content.split())
    words = (form.known, "" if message.alert else form.tested)
    return any(each.encode() in said for each in words if each)


def _generic(notice: Notice) -> Post:
    return notice.post(notice.event, **{"Gotk-Component": notice.event["reportingController"]})


def _signed(notice: Notice) -> Post:
    plain = _generic(notice)
    signature = hmac.new(notice.target.token.encode(), plain.body, hashlib.sha256).hexdigest()
    return replace(plain, headers=plain.headers | {"X-Signature": f"sha256={signature}"})


def _nats(notice: Notice) -> Post:
    """JetStream takes no other message with the same Nats-Msg-Id within minutes."""
    return notice.post(notice.event, **{"Nats-Msg-Id": notice.message.key})


def _structured(notice: Notice) -> Post:
    """A CloudEvent that is all in the body."""
    content = {**_attributes(notice), "datacontenttype": "application/json", "data": notice.event}
    kind = {"Content-Type": "application/cloudevents+json; charset=utf-8"}
    return notice.post(content, **notice.target.bearer, **kind)


def _binary(notice: Notice) -> Post:
    """A CloudEvent with the attributes as headers, the data as the body."""
    headers = {f"ce-{name}": text for name, text in _attributes(notice).items()}
    return notice.post(notice.event, **notice.target.bearer, **headers)


def _attributes(notice: Notice) -> dict[str, str]:
    """All are ASCII, since names of objects and reasons are; `id` is the same each time that it is sent."""
    message = notice.message
    return {
        "specversion": "1.0",
        "id": message.key,
        "source": f"/namespaces/{notice.target.namespace}/{message.kind.lower()}s/{message.name}",
        "type": f"dev.flagstaff.{message.kind}.{message.reason}",
        "subject": f"{message.kind}/{message.name}",
        "time": message.time,
    }


_WITH_TOKEN: Final = ("address", "token")
FORMS: Final[dict[str, Form]] = {
    "generic": Form(_generic),
    "generic-hmac": Form(_signed, _WITH_TOKEN),
    "cloudevents": Form(_structured),
    "cloudevents-binary": Form(_binary),
    otlp.TYPE: Form(otlp.post),
    "nats": Form(_nats, ("address", "channel"), NATS),
    "datadog": Form(incidents.datadog, ("token",), server="https://api.datadoghq.com"),
    "slack": Form(chats.slack, refusal='"ok":false'),
    "discord": Form(chats.discord),
    "msteams": Form(chats.msteams),
    "googlechat": Form(chats.googlechat),
    "rocket": Form(chats.rocket),
    "mattermost": Form(chats.mattermost),
    "matrix": Form(chats.matrix, ("address", "token", "channel")),
    "zulip": Form(chats.zulip, ("address", "token", "channel")),
    "pagerduty": Form(incidents.pagerduty, ("token",), server="https://events.pagerduty.com"),
    "opsgenie": Form(incidents.opsgenie, ("token",), server="https://api.opsgenie.com"),
    "incidentio": Form(incidents.incidentio, _WITH_TOKEN),
    "alertmanager": Form(incidents.alertmanager),
    "sentry": Form(incidents.sentry),
    "grafana": Form(incidents.grafana, _WITH_TOKEN),
    "apprise": Form(services.apprise),
    "email": Form(services.email, ("address", "channel", "username")),
    # A test is the status of a commit that does not exist.
    "github": Form(statuses.status, _WITH_TOKEN, tested="NocommitfoundforSHA"),
    "githubdispatch": Form(statuses.githubdispatch, _WITH_TOKEN),
    # The server answers so to a status that the commit has already.
    "gitlab": Form(statuses.status, _WITH_TOKEN, known="Cannottransitionstatus", tested="CommitNotFound"),
    **dict.fromkeys(("gitea", "bitbucket", "azuredevops"), Form(statuses.status, _WITH_TOKEN)),
    # Where the comment is there already it is edited instead: see exchanges.py.
    **dict.fromkeys(sorted(PULL_REQUESTS), Form(lambda notice: Thread(notice).created(), _WITH_TOKEN)),
}
"""By type."""
