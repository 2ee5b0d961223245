"""Reviews of FlagOverrides, in the form that the API server reads."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from controller.pods.webhooks import OverrideWebhook
from evaluator.http.messages import Request, Response
from tests.worlds.pods import apply_patch

SET_BY = "flagstaff.dev/set-by"
USER = {"username": "ada"}
SPEC = {"expiresAt": "2026-01-02T12:00:00Z"}


def override(
    set_by: str | None = None, expires: str = SPEC["expiresAt"], **annotations: str
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "off"}
    named = {} if set_by is None else {SET_BY: set_by}
    if named or annotations:
        metadata["annotations"] = {**annotations, **named}
    return {"kind": "FlagOverride", "metadata": metadata, "spec": {"expiresAt": expires}}


@dataclass
class World:
    max_days: float = 7.0
    reviewed: list[tuple[str, str]] = field(default_factory=list)

    def post(self, body: bytes) -> tuple[int, dict[str, Any]]:
        webhook = OverrideWebhook(
            self.max_days,
            lambda kind, outcome: self.reviewed.append((kind, outcome)),
            lambda: datetime(2026, 1, 2, tzinfo=UTC),
        )
        answer = webhook.routes().http["POST", "/override"]
        response = answer(Request("POST", "/override", "", (), body, "127.0.0.1:1"))
        assert isinstance(response, Response)
        return response.status, json.loads(response.body)

    def review(self, wanted: dict[str, Any], before: dict[str, Any] | None = None) -> dict[str, Any]:
        asked = {"uid": "u", "object": wanted, "oldObject": before, "userInfo": USER}
        status, answer = self.post(json.dumps({"request": asked}).encode())
        assert status == 200
        response: dict[str, Any] = answer["response"]
        return response


def annotations_after(wanted: dict[str, Any], response: dict[str, Any]) -> dict[str, str]:
    assert response["allowed"]
    patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    after = apply_patch(wanted, patch)
    return dict(after["metadata"].get("annotations") or {})


@pytest.mark.parametrize(
    ("wanted", "before", "expected"),
    [
        pytest.param(override(), None, {SET_BY: "ada"}, id="a new one"),
        pytest.param(override("eve", note="x"), None, {SET_BY: "ada", "note": "x"}, id="a forged name"),
        pytest.param(
            override("bob", "2026-01-02T13:00:00Z"), override("bob"), {SET_BY: "ada"}, id="another spec"
        ),
        pytest.param(override("eve"), override("bob"), {SET_BY: "bob"}, id="another name"),
        pytest.param(override(), override("bob"), {SET_BY: "bob"}, id="the name removed"),
        pytest.param(override("eve"), override(), {}, id="a name on one that was set without admission"),
        pytest.param(override("bob", note="x"), override("bob"), {SET_BY: "bob", "note": "x"}, id="a note"),
    ],
)
def test_the_annotation_names_who_wrote_the_spec(
    wanted: dict[str, Any], before: dict[str, Any] | None, expected: dict[str, str]
) -> None:
    world = World()
    assert annotations_after(wanted, world.review(wanted, before)) == expected
    assert world.reviewed == [("FlagOverride", "recorded")]


@pytest.mark.parametrize(
    ("expires", "words"),
    [
        ("2026-01-02T00:00:00Z", "is in the past"),
        ("2025-01-02T00:00:00Z", "is in the past"),
        ("2026-01-09T00:00:01Z", "7 days at most"),
        ("2026-01-08T23:00:00-02:00", "7 days at most"),
        ("tomorrow", "must be a time"),
        ("2026-01-03", "must be a time"),
    ],
)
def test_an_expiry_in_the_past_or_too_far_ahead_is_refused(expires: str, words: str) -> None:
    world = World()
    response = world.review(override(expires=expires))
    assert not response["allowed"]
    assert words in response["status"]["message"]
    assert world.reviewed == [("FlagOverride", "refused")]


def test_the_longest_override_is_let_through() -> None:
    assert World().review(override(expires="2026-01-09T00:00:00Z"))["allowed"]


def test_an_option_sets_how_far_ahead_an_override_may_end() -> None:
    world = World(max_days=0.5)
    assert world.review(override(expires="2026-01-02T12:00:00Z"))["allowed"]
    refused = world.review(override(expires="2026-01-02T12:00:01Z"))
    assert "0.5 days at most" in refused["status"]["message"]


def test_an_override_that_has_ended_can_still_be_labelled() -> None:
    ended = override("bob", "2025-01-01T00:00:00Z")
    assert World().review({**ended, "metadata": {**ended["metadata"], "labels": {"a": "b"}}}, ended)[
        "allowed"
    ]


@pytest.mark.parametrize(
    "asked",
    [
        3,
        {"uid": "u", "object": override()},
        {"uid": "u", "object": {"kind": "Pod", "metadata": {}}, "userInfo": USER},
        {"uid": "u", "object": override(), "oldObject": 3, "userInfo": USER},
        {"uid": "u", "object": {"kind": "FlagOverride", "metadata": 3}, "userInfo": USER},
    ],
)
def test_another_body_is_no_review(asked: object) -> None:
    world = World()
    assert world.post(json.dumps({"request": asked}).encode())[0] == 400
    assert not world.reviewed


@pytest.mark.parametrize("body", [b"", b"{}", b"[]"])
def test_a_body_without_a_request_is_no_review(body: bytes) -> None:
    assert World().post(body)[0] == 400
