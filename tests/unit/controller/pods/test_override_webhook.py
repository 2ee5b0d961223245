"""Reviews of FlagOverrides, in the form that the API server reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from controller.pods.webhooks import OverrideWebhook
from tests.worlds.pods import apply_response, ask_webhook, read_review

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
class Reviews:
    max_days: float = 7.0
    reviewed: list[tuple[str, str]] = field(default_factory=list)

    async def post(self, content: Any) -> tuple[int, dict[str, Any]]:
        webhook = OverrideWebhook(
            self.max_days,
            lambda kind, outcome: self.reviewed.append((kind, outcome)),
            lambda: datetime(2026, 1, 2, tzinfo=UTC),
        )
        return await read_review(ask_webhook(webhook.routes(), "/override", content))

    async def review(self, wanted: dict[str, Any], before: dict[str, Any] | None = None) -> dict[str, Any]:
        asked = {"uid": "u", "object": wanted, "oldObject": before, "userInfo": USER}
        status, response = await self.post({"request": asked})
        assert status == 200
        return response


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
async def test_the_annotation_names_who_wrote_the_spec(
    wanted: dict[str, Any], before: dict[str, Any] | None, expected: dict[str, str]
) -> None:
    world = Reviews()
    after = apply_response(wanted, await world.review(wanted, before))
    assert (after["metadata"].get("annotations") or {}) == expected
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
async def test_an_expiry_in_the_past_or_too_far_ahead_is_refused(expires: str, words: str) -> None:
    world = Reviews()
    response = await world.review(override(expires=expires))
    assert not response["allowed"]
    assert words in response["status"]["message"]
    assert world.reviewed == [("FlagOverride", "refused")]


async def test_the_longest_override_is_let_through() -> None:
    assert (await Reviews().review(override(expires="2026-01-09T00:00:00Z")))["allowed"]


async def test_an_option_sets_how_far_ahead_an_override_may_end() -> None:
    world = Reviews(max_days=0.5)
    assert (await world.review(override(expires="2026-01-02T12:00:00Z")))["allowed"]
    refused = await world.review(override(expires="2026-01-02T12:00:01Z"))
    assert "0.5 days at most" in refused["status"]["message"]


async def test_an_override_that_has_ended_can_still_be_labelled() -> None:
    ended = override("bob", "2025-01-01T00:00:00Z")
    labelled = {**ended, "metadata": {**ended["metadata"], "labels": {"a": "b"}}}
    assert (await Reviews().review(labelled, ended))["allowed"]


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
async def test_another_body_is_no_review(asked: object) -> None:
    world = Reviews()
    assert (await world.post({"request": asked}))[0] == 400
    assert not world.reviewed


@pytest.mark.parametrize("body", [b"", b"{}", b"[]"])
async def test_a_body_without_a_request_is_no_review(body: bytes) -> None:
    assert (await Reviews().post(body))[0] == 400
