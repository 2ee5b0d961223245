"""A provider as it is used, a request to it, and what forms of messages are made of. Pure."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api.meta import GROUP
from controller.api.provenance import AUTHOR, CHANGES, LINK, SUBJECT, VERIFIED_BY
from controller.notifications.messages import SUMMARY
from controller.runtime.user_text.secret_texts import Tls
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from controller.api.provider import FlagProviderSpec, Message
    from controller.notifications.forms.github_apps import App
    from controller.notifications.forms.nats_logins import Login


_NO_CERTIFICATES: Final = Tls()


@dataclass(frozen=True, slots=True)
class Way:
    """How a server is reached, and for which namespace."""

    tls: Tls = _NO_CERTIFICATES
    proxy: str = ""
    """A URL, with user and password; empty: directly."""
    namespace: str = ""
    """The provider's: what senders have few of is shared out among namespaces."""


DIRECT: Final = Way()


@dataclass(frozen=True, slots=True)
class Target:
    """A provider as its spec and its Secret say."""

    spec: FlagProviderSpec
    address: str
    token: str = ""
    namespace: str = ""
    instance: str = ""
    """Of the controller that sends."""
    way: Way = DIRECT
    app: App | None = None
    """The GitHub App whose tokens are used in place of `token`."""
    login: Login | None = None
    """At a NATS server, in place of `token`."""


@dataclass(frozen=True, slots=True)
class Post:
    """One request."""

    url: str
    body: bytes
    headers: dict[str, str]
    method: str = "POST"
    whole: bool = False
    """Whether the answer's content is asked for."""


def posted(url: str, message: Message, content: Any, **headers: str) -> Post:
    """`content` as JSON, or bytes as they are, with the message's key."""
    body = content
    if not isinstance(content, bytes):
        body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    fixed = {"Content-Type": "application/json", "Idempotency-Key": message.key}
    return Post(url, body, fixed | headers)


def bearer(target: Target) -> dict[str, str]:
    """The header that shows the token, where there is one."""
    return {"Authorization": f"Bearer {target.token}"} if target.token else {}


def basic(credentials: str) -> str:
    """The value of the header that shows `user:password`."""
    return f"Basic {b64encode(credentials.encode()).decode()}"


def title(message: Message, target: Target) -> str:
    """`FlagSet/checkout.shop`, as Flux writes it."""
    return f"{message.kind}/{message.name}.{target.namespace}"


def subject(message: Message, target: Target) -> str:
    """What an incident is known by: the same for its beginning and its end."""
    return f"{GROUP}/{message.alert}/{message.kind}/{target.namespace}/{message.name}"


def changes(message: Message) -> str:
    """What a revision changed, a line for each flag; empty where it was not reported."""
    return message.metadata.get(CHANGES, "")


def facts(message: Message) -> dict[str, str]:
    """What is known beside the message, by the names that people see; never empty texts."""
    names = {
        SUMMARY: "Summary",
        REVISION_KEY: "Revision",
        LINK: "Commit",
        AUTHOR: "Author",
        SUBJECT: "Subject",
        VERIFIED_BY: "Signed by",
    }
    found = {name: message.metadata.get(key, "") for key, name in names.items()}
    return {"Reason": message.reason} | {name: text for name, text in found.items() if text}


def details(message: Message) -> dict[str, str]:
    """The same for machines, with the changes and the message's key."""
    found = {name.lower(): text for name, text in facts(message).items()}
    lines = changes(message)
    return found | ({"changes": lines} if lines else {}) | {"idempotency_key": message.key}


def plain(message: Message) -> str:
    """All that is known, as lines for people, for services that show nothing but text."""
    lines = [message.message]
    if said := changes(message):
        lines += ["", said]
    return "\n".join([*lines, "", *(f"{name}: {text}" for name, text in facts(message).items())])
