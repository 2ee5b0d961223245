"""Deliveries as the forges send them, cut down to what is read and a little of what is not."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

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
    }[sender]
    own |= {name.replace("_", "-"): value for name, value in more.items()}
    return tuple(own.items())
