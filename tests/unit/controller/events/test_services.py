"""What is posted to each type of provider: as files keep it (FLAGSTAFF_REWRITE=1 writes them anew), and
within what the service documents.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import pytest

from controller.api.flagprovider import SEVERITIES, FlagProviderSpec, Message
from controller.events.notice import ProviderTarget
from controller.events.service_types import SERVICES, is_refusal, post_of
from tests.unit.controller.events.schemas import SCHEMAS
from tests.worlds.events import message

WEBHOOKS: Final = sorted(SERVICES.keys() - {"flux"})
"""Flux's Event has tests of its own."""
GOLDEN: Final = Path(__file__).parent / "golden"
REVISION: Final = {"flagstaff.dev/revision": "main@sha1:" + "1" * 40}
FACTS: Final = REVISION | {
    "flagstaff.dev/summary": "flags of the shop", "flagstaff.dev/author": "Ada",
    "flagstaff.dev/subject": "Christmas <banner>",
    "flagstaff.dev/changes": "~ banner: default plain → christmas\n+ new: on",
}  # fmt: skip
SAID: Final = (
    message(
        "1" * 64, metadata=FACTS,
        message='main@sha1:… by Ada "Christmas <banner>": 2 changed: banner, new',
    ),
    message(
        "2" * 64, severity="error", reason="BuildFailed", state="failing", metadata=REVISION,
        message="main@sha1:… is refused: flags.yaml:3:4: it is wrong",
    ),
    message(
        "3" * 64, reason="Recovered", state="recovered", metadata=REVISION,
        message="Applied revision: main@sha1:…",
    ),
    message(
        "4" * 64, severity="error", reason="DriftCorrected",
        message="FeatureFlag x was edited by <!channel> & @here",
    ),
)  # fmt: skip


ADDRESSES: Final = {
    "azuredevops": "https://dev.azure.com/shop/the flags/_git/flags",
    "azuredevopspullrequestcomment": "https://dev.azure.com/shop/the flags/_git/flags",
    "email": "smtps://mail.example.com",
}


MAILBOXES: Final = ("team@example.com", "flags@example.com")


def target(kind: str) -> ProviderTarget:
    channel, username = MAILBOXES if kind == "email" else ("#flags", "Flagstaff")
    spec = FlagProviderSpec(type=kind, channel=channel, username=username)  # type: ignore[arg-type]
    address = "" if kind in {"pagerduty", "opsgenie"} else f"https://{kind}.example.com/hook/x"
    return ProviderTarget(spec, ADDRESSES.get(kind, address), "the-token", "shop", "controller-0")


def request_of(kind: str, said: Message) -> dict[str, Any]:
    """A request as its file has it."""
    post = post_of(said, target(kind))
    if post.headers["Content-Type"] == "message/rfc822":
        mail = message_from_bytes(post.body, policy=default)
        body = {name: str(text) for name, text in mail.items()} | {"text": mail.get_content()}
        return {"url": post.url, "headers": post.headers, "body": body}
    return {"url": post.url, "headers": post.headers, "body": json.loads(post.body)}


@pytest.mark.parametrize("kind", WEBHOOKS)
def test_request_matches_golden_file(kind: str) -> None:
    file = GOLDEN / f"{kind}.json"
    found = [request_of(kind, each) for each in SAID]
    if os.environ.get("FLAGSTAFF_REWRITE"):
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    assert found == json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", WEBHOOKS)
@pytest.mark.parametrize("said", SAID, ids=lambda each: str(each.reason))
def test_request_matches_the_schema_of_the_service(kind: str, said: Message) -> None:
    jsonschema_rs.validate(SCHEMAS[kind], request_of(kind, said)["body"])


@pytest.mark.parametrize("kind", WEBHOOKS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_request_of_each_severity_matches_the_schema(kind: str, severity: str) -> None:
    said = SAID[0].model_copy(update={"severity": severity})
    jsonschema_rs.validate(SCHEMAS[kind], request_of(kind, said)["body"])


@pytest.mark.parametrize("kind", WEBHOOKS)
def test_request_of_the_longest_message_matches_the_schema(kind: str) -> None:
    lines = "\n".join(f"~ {'k' * 63}{number}: default {'v' * 60} → {'w' * 60}" for number in range(19))
    facts = {**FACTS, "flagstaff.dev/changes": lines, "flagstaff.dev/summary": "s" * 255}
    long = message("5" * 64, name="n" * 253, message="m" * 2_000, metadata=facts, state="failing")
    found = request_of(kind, long)["body"]
    found = json.loads(json.dumps(found).replace("n" * 253, "n" * 60))
    jsonschema_rs.validate(SCHEMAS[kind], found)


def test_hmac_signature_covers_the_sent_body() -> None:
    post = post_of(SAID[0], target("generic-hmac"))
    signature = hmac.new(b"the-token", post.body, hashlib.sha256).hexdigest()
    assert post.headers["X-Signature"] == f"sha256={signature}"


def test_recovery_has_the_incident_key_of_its_failure() -> None:
    failing, recovered = (request_of("pagerduty", each)["body"] for each in SAID[1:3])
    assert failing["dedup_key"] == recovered["dedup_key"]
    assert (failing["event_action"], recovered["event_action"]) == ("trigger", "resolve")
    made, closed = (request_of("opsgenie", each) for each in SAID[1:3])
    assert made["body"]["alias"].replace("/", "%2F") in closed["url"]
    fires, ends = (request_of("alertmanager", each)["body"][0] for each in SAID[1:3])
    assert fires["labels"] == ends["labels"]
    assert ends["endsAt"] == SAID[2].time < fires["endsAt"]


def test_slack_answer_with_ok_false_is_a_refusal() -> None:
    assert is_refusal(target("slack"), b'{"ok": false,\n"error":"channel_not_found"}')
    assert not is_refusal(target("slack"), b"ok")
    assert not is_refusal(target("generic"), b'{"ok":false}')


@pytest.mark.parametrize("kind", ["slack", "discord", "msteams", "googlechat"])
def test_chat_messages_contain_no_token(kind: str) -> None:
    assert all("the-token" not in json.dumps(request_of(kind, each)["body"]) for each in SAID)
