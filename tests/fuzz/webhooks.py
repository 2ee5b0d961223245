"""What forges send to the receiver: who is not signed for gets nowhere, and whoever is may still send
anything.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from controller.events.pushes import Push
from controller.events.webhook_payloads import Quiet, Refusal, read_delivery
from tests.fuzz.target import Target, Wrong, same

if TYPE_CHECKING:
    from controller.api.flagreceiver import Sender
    from evaluator.http.messages import Headers

TOKEN: Final = b"a token"
SENDERS: Final[tuple[Sender, ...]] = (
    "github", "gitea", "gitlab", "bitbucket", "azure-devops", "harbor", "generic-hmac",
)  # fmt: skip
WORDS: Final = (
    '"repository":{"clone_url":"https://h/a.git"}', '"ref":"refs/heads/main"', '"after":"',
    '"0000000000000000000000000000000000000000"', '"head_commit":{"id":"', '"checkout_sha":',
    '"ref_type":"tag"', '"release":{"tag_name":"v1"}', '"object_kind":"push"', '"project":{"http_url":"',
    '"repository":"https://h/a"', '"commit":', "push", "tag_push", "Push Hook", "release", "ping",
    "repo:push", '"push":{"changes":[{"new":{"type":"tag","name":"', '"changes":[{"ref":{"id":"refs/',
    '"eventType":"git.push"', '"resource":{"refUpdates":[{"name":"', '"remoteUrl":"https://h/a"',
    '"type":"PUSH_ARTIFACT"', '"event_data":{"resources":[{"resource_url":"h/a:v1"', '"oci://h/a"',
)  # fmt: skip


def delivery(content: bytes) -> None:
    """A line for the event, then the body: judged, from any sender, and refused without its signature."""
    event, _, body = content.partition(b"\n")
    for sender in SENDERS:
        asked = headers(sender, event.decode("latin-1"), body)
        found = read_delivery(sender, asked, body, [TOKEN])
        same(read_delivery(sender, asked, body, [TOKEN]), found, f"{sender}, again")
        check_result(found)
        unsigned = read_delivery(sender, asked, body, [b"another token"])
        if not isinstance(unsigned, Refusal) or unsigned.status != 401:
            raise Wrong(f"{sender}: unsigned, and {unsigned!r}")


def check_result(found: Push | Quiet | Refusal) -> None:
    """A push names what was pushed, a refusal has a status."""
    if isinstance(found, Push):
        if not all(found.repositories) or not found.identity:
            raise Wrong(f"a push of nothing: {found!r}")
    elif not found.message or (isinstance(found, Refusal) and found.status not in {400, 401, 413}):
        raise Wrong(f"no answer: {found!r}")


def headers(sender: Sender, event: str, body: bytes) -> Headers:
    """A delivery's, by all forges at once, but for the header that two of them use."""
    basic = f"Basic {base64.b64encode(b'hook:' + TOKEN).decode()}"
    digest = hmac.new(TOKEN, body, hashlib.sha256).hexdigest()
    return (
        ("x-hub-signature-256", f"sha256={digest}"),
        ("x-gitea-signature", digest),
        ("x-gitlab-token", TOKEN.decode()),
        ("x-signature", f"sha256={digest}"),
        ("x-hub-signature", f"sha256={digest}"),
        ("x-event-key", event),
        ("authorization", TOKEN.decode() if sender == "harbor" else basic),
        *((f"x-{forge}-event", event) for forge in ("github", "gitea", "gitlab")),
        ("x-github-delivery", event),
    )


TARGETS = {"webhook": Target(delivery, WORDS, 2_048)}
