"""A provider's settings, a message to it, and the request that delivers the message. Pure."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from controller.api.meta import AUTHOR, CHANGES, GROUP, LINK, PAGE, SUBJECT, VERIFIED_BY
from controller.events.alert_messages import SUMMARY, event_json
from controller.runtime.http_client import DIRECT, Route
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.flagprovider import FlagProviderSpec, Message

_FACTS: Final = {
    SUMMARY: "Summary",
    REVISION_KEY: "Revision",
    LINK: "Commit",
    PAGE: "Page",
    AUTHOR: "Author",
    SUBJECT: "Subject",
    VERIFIED_BY: "Signed by",
}
"""Displayed names, by key of a message's metadata."""


@dataclass(frozen=True, slots=True)
class App:
    """One installation of a GitHub App."""

    id: str
    installation: str
    key: str = field(repr=False)
    """An RSA key in PEM."""
    base: str = ""
    """URL of the API; empty: derived from the repository's address."""


@dataclass(frozen=True, slots=True)
class ProviderTarget:
    """A provider's settings, of its spec and its Secret."""

    spec: FlagProviderSpec
    address: str
    token: str = ""
    namespace: str = ""
    instance: str = ""
    """Name of the controller's replica that sends."""
    route: Route = DIRECT
    """How the server is reached."""
    operators: bool = False
    """Whether the address comes from the controller's operator, who may name private ones."""
    app: App | None = None
    """The GitHub App whose tokens are used in place of `token`."""
    cluster: str = ""
    """The name of our cluster; empty: it has none."""

    @property
    def base(self) -> str:
        """The address without a trailing slash, for appending a path."""
        return self.address.rstrip("/")

    @property
    def bearer(self) -> dict[str, str]:
        """The Authorization header; empty without a token."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


@dataclass(frozen=True, slots=True)
class Post:
    """One request."""

    url: str
    body: bytes
    headers: dict[str, str]
    method: str = "POST"
    whole: bool = False
    """Whether the answer's whole content is needed."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message and the provider that it is sent to."""

    message: Message
    target: ProviderTarget

    def post(self, content: Any, url: str = "", **headers: str) -> Post:
        """Return a request with `content` (JSON, or raw bytes) and the message's key."""
        return json_post(content, url or self.target.address, self.message.key, headers)

    @property
    def event(self) -> dict[str, Any]:
        """The message as Flux's Event."""
        return event_json(self.message, self.target.namespace, self.target.instance)

    @property
    def title(self) -> str:
        """`FlagSet/checkout.shop`, as Flux writes it."""
        return f"{self.message.kind}/{self.message.name}.{self.target.namespace}"

    @property
    def subject(self) -> str:
        """The incident's identifier: the same for its start and its end."""
        message = self.message
        return f"{GROUP}/{message.alert}/{message.kind}/{self.target.namespace}/{message.name}"

    @property
    def labels(self) -> dict[str, str]:
        """Kind, name and namespace of the object, and the reason, for filters of tools."""
        message = self.message
        place = {"kind": message.kind, "name": message.name, "namespace": self.target.namespace}
        return {**place, "reason": message.reason}

    @property
    def changes(self) -> str:
        """The revision's changes, one line per flag; empty if not reported."""
        return self.message.metadata.get(CHANGES, "")

    @property
    def facts(self) -> dict[str, str]:
        """Non-empty facts about the message, by their displayed names."""
        facts = {name: self.message.metadata.get(key, "") for key, name in _FACTS.items()}
        return {"Reason": self.message.reason} | {name: text for name, text in facts.items() if text}

    @property
    def details(self) -> dict[str, str]:
        """Facts for machines, with the changes and the message's key."""
        facts = {name.lower(): text for name, text in self.facts.items()}
        lines = {"changes": self.changes} if self.changes else {}
        return facts | lines | {"idempotency_key": self.message.key}

    @property
    def text(self) -> str:
        """The message, then the changes."""
        return f"{self.message.message}\n{self.changes}" if self.changes else self.message.message

    @property
    def plain(self) -> str:
        """Return all facts as lines of text, for services without markup."""
        changes = f"\n\n{self.changes}" if self.changes else ""
        facts = "\n".join(f"{name}: {text}" for name, text in self.facts.items())
        return f"{self.message.message}{changes}\n\n{facts}"


def json_post(content: Any, url: str, key: str, headers: Mapping[str, str]) -> Post:
    """Return a request with `content` (JSON, or raw bytes), and the key of the message if it delivers one."""
    body = content
    if not isinstance(content, bytes):
        body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    fixed = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
    return Post(url, body, fixed | dict(headers))


def basic(credentials: str) -> str:
    """Return the value of an Authorization header for `user:password`."""
    return f"Basic {b64encode(credentials.encode()).decode()}"
