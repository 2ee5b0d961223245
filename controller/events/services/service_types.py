"""The request format of each provider type, and the formats that contain Flux's Event. Pure.

CloudEvents 1.0: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from controller.events.alerts.flag_set_progress import CHANGE_REQUESTS
from controller.events.services import chat_services, incident_services
from controller.events.services.change_request_comment import CommentThread
from controller.events.services.git_servers import commit_status
from controller.events.services.mail_sender import email
from controller.events.services.notice import Notice

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.flagprovider import Message
    from controller.events.services.notice import Post, ProviderTarget


@dataclass(frozen=True, slots=True)
class Service:
    """The request format of one provider type, and the meaning of its answers."""

    post: Callable[[Notice], Post]
    server: str = ""
    """URL of the server for a provider without address."""
    refusal: str = ""
    """Text that marks an answer with status 2xx as a refusal."""
    known: str = ""
    """Text in an error answer if the message had arrived before."""
    tested: str = ""
    """Text in an error answer to a test if address and token are right."""


def post_of(message: Message, target: ProviderTarget) -> Post:
    """Return the request that delivers the message."""
    form = SERVICES[target.spec.type]
    given = target if target.address else replace(target, address=form.server)
    return form.post(Notice(message, given))


def is_refusal(target: ProviderTarget, content: bytes) -> bool:
    """Whether an answer with status 2xx is a refusal."""
    refusal = SERVICES[target.spec.type].refusal
    return bool(refusal) and refusal.encode() in b"".join(content.split())


def is_known(target: ProviderTarget, message: Message, content: bytes) -> bool:
    """Whether an error answer means that the message had arrived before, or that a test succeeded."""
    form, said = SERVICES[target.spec.type], b"".join(content.split())
    words = (form.known, "" if message.alert else form.tested)
    return any(word.encode() in said for word in words if word)


def _generic(notice: Notice) -> Post:
    return notice.post(notice.event, **{"Gotk-Component": notice.event["reportingController"]})


def _generic_hmac(notice: Notice) -> Post:
    plain = _generic(notice)
    signature = hmac.new(notice.target.token.encode(), plain.body, hashlib.sha256).hexdigest()
    return replace(plain, headers=plain.headers | {"X-Signature": f"sha256={signature}"})


def _cloudevent(notice: Notice) -> Post:
    """Return a CloudEvent in structured mode: all of it is in the body."""
    content = {**_attributes(notice), "datacontenttype": "application/json", "data": notice.event}
    kind = {"Content-Type": "application/cloudevents+json; charset=utf-8"}
    return notice.post(content, **notice.target.bearer, **kind)


def _attributes(notice: Notice) -> dict[str, str]:
    """Return the attributes, all ASCII as names and reasons are; `id` is the same for each retry."""
    message = notice.message
    return {
        "specversion": "1.0",
        "id": message.key,
        "source": f"/namespaces/{notice.target.namespace}/{message.kind.lower()}s/{message.name}",
        "type": f"dev.flagstaff.{message.kind}.{message.reason}",
        "subject": f"{message.kind}/{message.name}",
        "time": message.time,
    }


SERVICES: Final[dict[str, Service]] = {
    "generic": Service(_generic),
    "generic-hmac": Service(_generic_hmac),
    "cloudevents": Service(_cloudevent),
    # The Event that Flux is handed names an object of Flux instead: see flux_events.py.
    "flux": Service(_generic),
    "slack": Service(chat_services.slack, refusal='"ok":false'),
    "discord": Service(chat_services.discord),
    "msteams": Service(chat_services.msteams),
    "googlechat": Service(chat_services.googlechat),
    "pagerduty": Service(incident_services.pagerduty, server="https://events.pagerduty.com"),
    "opsgenie": Service(incident_services.opsgenie, server="https://api.opsgenie.com"),
    "alertmanager": Service(incident_services.alertmanager),
    "grafana": Service(incident_services.grafana),
    "email": Service(email),
    # A test is the status of a commit that does not exist.
    "github": Service(commit_status, tested="NocommitfoundforSHA"),
    # GitLab's answer to a status that the commit already has.
    "gitlab": Service(commit_status, known="Cannottransitionstatus", tested="CommitNotFound"),
    **dict.fromkeys(("gitea", "bitbucket", "azuredevops"), Service(commit_status)),
    # An existing comment is edited instead: see git_deliveries.py.
    **dict.fromkeys(sorted(CHANGE_REQUESTS), Service(lambda notice: CommentThread(notice).create_request())),
}
"""How each type of provider is sent a message."""
