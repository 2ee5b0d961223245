"""The webhook's answers about flags, in the form that the API server reads."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from controller.authoring.policies import Circumstances
from controller.pods.judging import Judges
from controller.pods.webhooks import Validator
from controller.runtime.limits import Places
from evaluator.http.messages import Streamed
from tests.worlds.evaluator import body_of
from tests.worlds.pods import NoProcesses, ask_webhook, judges_at_once, read_review

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = "core.openfeature.dev/v1beta1"
FLAGS = {
    "apiVersion": VERSION,
    "kind": "FeatureFlag",
    "metadata": {"name": "x", "namespace": "shop"},
    "spec": {"flagSpec": {}},
}


def objection(content: bytes, _around: object) -> tuple[str, tuple[str, ...]]:
    name = json.loads(content)["request"]["object"]["metadata"]["name"]
    return ("no\nway" if name == "bad" else ""), (("odd",) if name == "odd" else ())


async def ask_validator(
    content: Any, *namespaces: str, counted: Callable[[str, str], None] = lambda _kind, _outcome: None
) -> tuple[int, dict[str, Any]]:
    validator = Validator(objection, judges_at_once(), counted, namespaces)
    return await read_review(ask_webhook(validator.routes(), "/validate", content))


def review(name: str) -> dict[str, Any]:
    body = {**FLAGS, "metadata": {"name": name, "namespace": "shop"}}
    return {"request": {"uid": "u", "object": body}}


@pytest.mark.parametrize(
    ("name", "response"),
    [
        ("good", {"uid": "u", "allowed": True}),
        ("odd", {"uid": "u", "allowed": True, "warnings": ["odd"]}),
        (
            "bad",
            {
                "uid": "u",
                "allowed": False,
                "status": {"code": 422, "reason": "Invalid", "message": "no\nway"},
            },
        ),
    ],
)
async def test_an_objection_is_a_refusal_and_a_warning_is_none(name: str, response: dict[str, Any]) -> None:
    answer = ask_webhook(
        Validator(objection, judges_at_once(), lambda *_: None, ()).routes(), "/validate", review(name)
    )
    assert isinstance(answer, Streamed)
    assert json.loads(await body_of(answer)) == {
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response,
    }  # fmt: skip


async def test_each_review_is_counted_with_its_outcome() -> None:
    counted: list[tuple[str, str]] = []
    for name in ("good", "bad"):
        await ask_validator(review(name), counted=lambda *each: counted.append(each))
    assert counted == [("FeatureFlag", "allowed"), ("FeatureFlag", "refused")]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"request":{"uid":"u","object":{}}}',
        b'{"request":{"uid":"u","object":null}}',
        {"request": {"object": FLAGS}},
        {"request": {"uid": "u", "object": {**FLAGS, "kind": "Pod"}}},
        {"request": {"uid": "u", "object": {**FLAGS, "apiVersion": "example.com/v1"}}},
        {"request": {"uid": "u", "object": {**FLAGS, "kind": []}}},
        {"request": {"uid": "u", "object": {**FLAGS, "metadata": []}}},
        b"[" * 5_000,
    ],
)
async def test_what_is_no_review_of_flags_is_400(content: Any) -> None:
    assert (await ask_validator(content))[0] == 400


async def test_a_refusal_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    await ask_validator(review("bad"))
    assert [each.getMessage() for each in caplog.records] == ["FeatureFlag/shop/bad is refused: no way"]


async def test_flags_of_a_namespace_that_the_controller_does_not_work_in_are_let_pass() -> None:
    assert (await ask_validator(review("bad"), "pay", "search"))[1] == {"uid": "u", "allowed": True}
    assert not (await ask_validator(review("bad"), "pay", "shop"))[1]["allowed"]


@pytest.mark.parametrize(("action", "allowed"), [("Deny", False), ("Hold", False), ("Warn", True)])
async def test_what_policies_could_refuse_is_refused_where_nobody_judged_it(
    action: str, allowed: bool
) -> None:
    around = Circumstances(datetime(2026, 11, 25, tzinfo=UTC), given=[("shop/steady", {"action": action})])
    none_waits = Judges(NoProcesses(), Places(1, most_waiting=0))
    validator = Validator(objection, none_waits, lambda *_: None, around=lambda _request, _object: around)
    async with none_waits.places.place("other"):
        answer = ask_webhook(validator.routes(), "/validate", review("good"))
        _, response = await read_review(answer)
    assert response["allowed"] is allowed
    if not allowed:
        assert response["status"]["reason"] == "Timeout"
        assert response["status"]["message"].startswith("FlagPolicies judge these flags, and did not: ")


async def test_nothing_is_judged_before_all_policies_are_known() -> None:
    validator = Validator(objection, judges_at_once(), lambda *_: None, ready=lambda: False)
    assert (await read_review(ask_webhook(validator.routes(), "/validate", review("good"))))[0] == 503
