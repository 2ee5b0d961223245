"""What is posted to each type of provider. Pure."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.notifications.messages import event_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.provider import FlagProviderSpec, Message


@dataclass(frozen=True, slots=True)
class Target:
    """A provider as its spec and its Secret say."""

    spec: FlagProviderSpec
    address: str
    token: str = ""
    namespace: str = ""
    instance: str = ""
    """Of the controller that sends."""


@dataclass(frozen=True, slots=True)
class Post:
    """One request."""

    url: str
    body: bytes
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Form:
    """How one type of provider is addressed."""

    post: Callable[[Message, Target], Post]
    needs: tuple[str, ...] = ("address",)
    """Keys of the Secret that it cannot do without; the address may stand in the spec."""


def post_of(message: Message, target: Target) -> Post:
    """The request that delivers the message."""
    return FORMS[target.spec.type].post(message, target)


def _posted(url: str, message: Message, content: Any, **headers: str) -> Post:
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    fixed = {"Content-Type": "application/json", "Idempotency-Key": message.key}
    return Post(url, body, fixed | headers)


def _generic(message: Message, target: Target) -> Post:
    event = event_json(message, target.namespace, target.instance)
    return _posted(target.address, message, event, **{"Gotk-Component": event["reportingController"]})


def _signed(message: Message, target: Target) -> Post:
    plain = _generic(message, target)
    signature = hmac.new(target.token.encode(), plain.body, hashlib.sha256).hexdigest()
    return Post(plain.url, plain.body, plain.headers | {"X-Signature": f"sha256={signature}"})


FORMS: Final[dict[str, Form]] = {
    "generic": Form(_generic),
    "generic-hmac": Form(_signed, ("address", "token")),
}
"""By type."""
