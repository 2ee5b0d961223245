"""Objects and Events that tests of alerts are about."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from controller.api.flagprovider import FlagProviderStatus, Message
from controller.api.meta import ObjectKey, Resource
from controller.events.alert_stage import FLAG_ALERTS, FLAG_PROVIDERS
from controller.events.outbox import Outbox
from controller.events.senders import HttpSender
from controller.runtime.cache import Cache
from controller.runtime.event import Event, Occurrence, event_of
from controller.runtime.hosts import Hosts
from controller.runtime.http_client import HttpClient
from controller.runtime.limits import Places
from controller.runtime.setbacks import Setback
from controller.runtime.shards import WHOLE, Shard
from controller.runtime.watches import indexes_of
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from controller.api.status import Condition
    from controller.events.notice import ProviderTarget
    from controller.events.provider_outbox import ProviderOutbox

NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CHAT: Final = ObjectKey("FlagProvider", "shop", "chat")


def alert(name: str = "all", kind: str = "FlagSet", about: str = "*", **spec: Any) -> Resource:
    sources = [{"kind": kind, "name": about}]
    return thing("FlagAlert", name, {"providerRef": {"name": "chat"}, "eventSources": sources, **spec})


def status(reason: str = "Succeeded", digest: str = "", *, waits: bool = False) -> dict[str, Any]:
    """Of a flag set: ready for this reason, or not for another."""
    works = reason == "Succeeded"
    ready = {
        "type": "Ready",
        "status": "True" if works else "False",
        "reason": reason,
        "message": f"so: {reason}",
    }
    going = [{"type": "Reconciling", "status": "True", "reason": "Progressing"}] if waits else []
    ready["lastTransitionTime"] = "2026-01-02T00:00:00Z"
    return {"conditions": [ready, *going], "digest": digest, "lastAttemptedRevision": f"main@{digest}"}


def event(
    reason: str,
    message: str = "words",
    *,
    warning: bool = False,
    after: Mapping[str, Any] | None = None,
    name: str = "flags",
) -> Event:
    found = thing("FlagSet", name, status=after or status())
    return event_of(found, Occurrence(reason, message, warning=warning), NOW)


def failure_event(reason: str = "BuildFailed", message: str = "words") -> Event:
    """An Event of what left the object failing."""
    return event(reason, message, warning=True, after=status(reason))


def message(key: str = "k", **more: Any) -> Message:
    given: dict[str, Any] = {
        "alert": "all", "api_version": "flagstaff.dev/v1beta1", "kind": "FlagSet", "name": "flags",
        "uid": "u", "severity": "info", "reason": "Applied", "message": "1 changed: banner",
        "time": "2026-01-02T03:04:05Z",
    }  # fmt: skip
    return Message(key=key, **(given | more))


@contextlib.asynccontextmanager
async def http_sender(hosts: Hosts | None = None, *, local: bool = True) -> AsyncIterator[HttpSender]:
    """A sender to the hosts of the settings; `local`: private addresses are allowed."""
    client = HttpClient(hosts or Hosts(denied=(), kind="provider", local=local), Places(256, 256))
    try:
        yield HttpSender(client, lambda: NOW)
    finally:
        await client.close()


class Desk:
    """An outbox that leads, and the objects that it knows; `chat` is a provider whose box was read."""

    def __init__(
        self, *objects: Resource, kept: FlagProviderStatus | None = None, shard: Shard = WHOLE
    ) -> None:
        self.objects = Cache(indexes_of((FLAG_PROVIDERS, FLAG_ALERTS)))
        self.woken: list[tuple[ObjectKey, float]] = []
        self.now = NOW
        self.outbox = Outbox(
            self.objects, lambda: self.now, lambda key, delay: self.woken.append((key, delay)), shard
        )
        self.objects.react(self.outbox.on_change)
        self.provider = thing("FlagProvider", "chat", {"type": "generic"})
        for each in (self.provider, *objects):
            self.objects.learn(each)
        self.outbox.begin()
        self.box: ProviderOutbox = self.outbox.open(CHAT, kept or FlagProviderStatus())

    def accept(self, *events: Event) -> list[str]:
        """Reasons of all that waits after these."""
        for each in events:
            self.outbox.accept(each)
        return self.waiting_reasons()

    def waiting_reasons(self) -> list[str]:
        return [each.reason for each in self.box.pending.values()]

    def later(self, **passed: float) -> list[str]:
        """Reasons of all that waits after so much time, and another look."""
        self.now += timedelta(**passed)
        self.outbox.settled = True
        self.outbox.recheck(self.provider)
        return self.waiting_reasons()

    def learn(self, name: str, found: Mapping[str, Any]) -> None:
        """The status of a flag set is known from now on."""
        self.objects.learn(thing("FlagSet", name, status=found, resourceVersion=str(self.now)))

    def compare(self) -> list[str]:
        """Reasons of all that waits once the objects were compared."""
        self.outbox.settled = True
        comparing = self.outbox.compare(self.provider)
        with contextlib.suppress(StopIteration):
            while True:
                # It only lets others have their turn.
                comparing.send(None)
        return self.waiting_reasons()

    def restart(self) -> Desk:
        """Another leader over the same objects, with what this one's status kept."""
        again = Desk(*(each for each in self.objects if each.key != CHAT), kept=self.box.status())
        again.now = self.now
        return again


class Plans:
    """Keeps no comments, and says of which providers it should."""

    def __init__(self) -> None:
        self.used: dict[ObjectKey, ProviderTarget] = {}
        self.condition: tuple[Condition, ...] = ()

    def use(self, key: ObjectKey, uid: str, target: ProviderTarget) -> None:
        del uid
        self.used[key] = target

    def stop(self, key: ObjectKey) -> None:
        self.used.pop(key, None)

    def last(self, key: ObjectKey) -> tuple[Condition, ...]:
        del key
        return self.condition


TOKEN = b"a-shared-secret-of-today"
OLD = b"the-secret-before"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TAG_OBJECT = "f" * 40
ZEROS = "0" * 40
DELIVERY = "72d3162e-cc78-11e3-81ab-4c9367dc0958"

GITHUB: dict[str, Any] = {
    "ref": "refs/heads/main",
    "before": "b" * 40,
    "after": COMMIT,
    "head_commit": {"id": COMMIT},
    "repository": {
        "clone_url": "https://github.com/acme/flags.git",
        "ssh_url": "git@github.com:acme/flags.git",
        "git_url": "git://github.com/acme/flags.git",
        "html_url": "https://github.com/acme/flags",
    },
}
GITLAB: dict[str, Any] = {
    "object_kind": "push",
    "ref": "refs/heads/main",
    "after": COMMIT,
    "checkout_sha": COMMIT,
    "project": {
        "web_url": "https://gitlab.example.com/acme/flags",
        "git_ssh_url": "git@gitlab.example.com:acme/flags.git",
        "git_http_url": "https://gitlab.example.com/acme/flags.git",
    },
}
GENERIC: dict[str, Any] = {
    "repository": "https://git.example.com/flags.git",
    "ref": "refs/heads/main",
    "commit": COMMIT,
}


def body_of(payload: Any) -> bytes:
    return json.dumps(payload).encode()


def hexdigest(body: bytes, token: bytes = TOKEN, algorithm: str = "sha256") -> str:
    return hmac.new(token, body, getattr(hashlib, algorithm)).hexdigest()


def headers_of(
    sender: str, body: bytes, *, token: bytes = TOKEN, event: str = "push", **more: str
) -> tuple[tuple[str, str], ...]:
    signature = f"sha256={hexdigest(body, token)}"
    own = {
        "github": {"x-hub-signature-256": signature, "x-github-event": event, "x-github-delivery": DELIVERY},
        "gitea": {"x-gitea-signature": hexdigest(body, token), "x-gitea-event": event},
        "gitlab": {
            "x-gitlab-token": token.decode(),
            "x-gitlab-event": "Push Hook" if event == "push" else event,
        },
        "generic-hmac": {"x-signature": signature},
        "bitbucket": {"x-hub-signature": signature, "x-event-key": "repo:push" if event == "push" else event},
        "azure-devops": {"authorization": f"Basic {base64.b64encode(b'hook:' + token).decode()}"},
        "harbor": {"authorization": token.decode()},
        "quay": {},
        "dockerhub": {},
    }[sender]
    own |= {name.replace("_", "-"): value for name, value in more.items()}
    return tuple(own.items())


@dataclass
class HookSecret:
    """The Secret `hook`, which may change; or why it cannot be read."""

    found: Mapping[str, bytes] | Setback | None = None

    async def read(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        assert (namespace, name) == ("shop", "hook")
        if isinstance(self.found, Setback):
            raise self.found
        return self.found
