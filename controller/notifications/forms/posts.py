"""A provider as it is used, a message on its way to it, and the request that delivers it. Pure."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api.meta import GROUP
from controller.api.provenance import AUTHOR, CHANGES, LINK, SUBJECT, VERIFIED_BY
from controller.notifications.messages import SUMMARY, event_json
from controller.runtime.user_text.secret_texts import Tls
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from controller.api.provider import FlagProviderSpec, Message
    from controller.notifications.forms.repositories.github_apps import App
    from controller.notifications.sending.nats import Login

_NO_CERTIFICATES: Final = Tls()
_FACTS: Final = {
    SUMMARY: "Summary",
    REVISION_KEY: "Revision",
    LINK: "Commit",
    AUTHOR: "Author",
    SUBJECT: "Subject",
    VERIFIED_BY: "Signed by",
}
"""By key of a message's metadata: the name that people see."""


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

    @property
    def base(self) -> str:
        """The address, to which a path is added."""
        return self.address.rstrip("/")

    @property
    def bearer(self) -> dict[str, str]:
        """The header that shows the token, where there is one."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


@dataclass(frozen=True, slots=True)
class Post:
    """One request."""

    url: str
    body: bytes
    headers: dict[str, str]
    method: str = "POST"
    whole: bool = False
    """Whether the answer's content is asked for."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message on its way to a provider."""

    message: Message
    target: Target

    def post(self, content: Any, url: str = "", **headers: str) -> Post:
        """`content` as JSON, or bytes as they are, to the address or another URL, with the message's key."""
        body = content
        if not isinstance(content, bytes):
            body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
        fixed = {"Content-Type": "application/json", "Idempotency-Key": self.message.key}
        return Post(url or self.target.address, body, fixed | headers)

    @property
    def event(self) -> dict[str, Any]:
        """As Flux's Event."""
        return event_json(self.message, self.target.namespace, self.target.instance)

    @property
    def title(self) -> str:
        """`FlagSet/checkout.shop`, as Flux writes it."""
        return f"{self.message.kind}/{self.message.name}.{self.target.namespace}"

    @property
    def subject(self) -> str:
        """What an incident is known by: the same for its beginning and its end."""
        message = self.message
        return f"{GROUP}/{message.alert}/{message.kind}/{self.target.namespace}/{message.name}"

    @property
    def labels(self) -> dict[str, str]:
        """What it is about, as tools filter by it."""
        message = self.message
        place = {"kind": message.kind, "name": message.name, "namespace": self.target.namespace}
        return {**place, "reason": message.reason}

    @property
    def changes(self) -> str:
        """What a revision changed, a line for each flag; empty where it was not reported."""
        return self.message.metadata.get(CHANGES, "")

    @property
    def facts(self) -> dict[str, str]:
        """What is known beside the message, by the names that people see; never empty texts."""
        found = {name: self.message.metadata.get(key, "") for key, name in _FACTS.items()}
        return {"Reason": self.message.reason} | {name: text for name, text in found.items() if text}

    @property
    def details(self) -> dict[str, str]:
        """The same for machines, with the changes and the message's key."""
        found = {name.lower(): text for name, text in self.facts.items()}
        lines = {"changes": self.changes} if self.changes else {}
        return found | lines | {"idempotency_key": self.message.key}

    @property
    def text(self) -> str:
        """The message, then what changed."""
        return f"{self.message.message}\n{self.changes}" if self.changes else self.message.message

    @property
    def plain(self) -> str:
        """All that is known, as lines for people, for services that show nothing but text."""
        changes = f"\n\n{self.changes}" if self.changes else ""
        facts = "\n".join(f"{name}: {text}" for name, text in self.facts.items())
        return f"{self.message.message}{changes}\n\n{facts}"


def basic(credentials: str) -> str:
    """The value of the header that shows `user:password`."""
    return f"Basic {b64encode(credentials.encode()).decode()}"
