"""Whether a FlagRollout has promoted a commit, as webhooks of other clusters ask it."""

from __future__ import annotations

import json
from typing import Final

import pytest

from controller.api.fields import read
from controller.api.flagrollout import Webhook
from controller.api.meta import ObjectKey
from controller.delivery.promotion import Promotion
from controller.rollouts.metric_servers import payload_of
from controller.rollouts.rollout_ports import HookCall
from tests.worlds.page import FakeSource, ask

GOOD, STEP, OTHER = (f"main@sha1:{letter * 40}" for letter in "abc")
PATH: Final = "/ui/rollouts/shop/checkout/promoted"
SOURCE: Final = FakeSource(
    promotions={
        ("shop/checkout", GOOD): Promotion("promoted", "everybody gets it"),
        ("shop/checkout", STEP): Promotion("pending", "step 1/2: 10% of users"),
    }
)


def payload(revision: str) -> str:
    """What a FlagRollout of another cluster sends."""
    hook = read(Webhook, {"name": "staging", "type": "confirm-rollout", "url": "https://flags.example.com"})
    key = ObjectKey("FlagRollout", "shop", "checkout")
    return payload_of(hook, HookCall(key, "Pending", "sha256:1", revision, "", None, ("banner",))).decode()


@pytest.mark.parametrize(
    ("target", "body"),
    [(f"{PATH}?revision={GOOD}", ""), (PATH, payload(GOOD)), (f"{PATH}?revision={GOOD}", payload(STEP))],
    ids=["a GET", "a webhook", "the query comes first"],
)
def test_a_promoted_commit_is_confirmed(target: str, body: str) -> None:
    response = ask(SOURCE, target, body)
    assert response.status == 200
    assert json.loads(response.body) == {"state": "promoted", "message": "everybody gets it"}


def test_a_commit_at_a_step_is_not_confirmed_and_the_step_is_said() -> None:
    response = ask(SOURCE, PATH, payload(STEP))
    assert response.status == 409
    assert json.loads(response.body) == {"state": "pending", "message": "step 1/2: 10% of users"}


@pytest.mark.parametrize(
    ("target", "body", "status"),
    [
        (PATH, "", 400),
        (PATH, "{", 400),
        (PATH, "[]", 400),
        (PATH, payload(""), 400),
        (f"{PATH}?revision=main", "", 400),
        (PATH, payload(OTHER), 404),
        (f"/ui/rollouts/bank/checkout/promoted?revision={GOOD}", "", 404),
        (f"/ui/rollouts/shop?revision={GOOD}", "", 404),
    ],
)
def test_what_names_no_commit_or_no_rollout_is_refused(target: str, body: str, status: int) -> None:
    assert ask(SOURCE, target, body).status == status
