"""What a FlagProvider's body says of a test, and an Event of the API server on a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from controller.api.flagprovider import FlagProviderStatus
from controller.cli import main
from controller.cli.events import lines
from controller.cli.sample_message import MessageOutcome, outcome_of
from controller.events.alert_messages import test_key as key_of
from controller.runtime.event import as_event
from tests.worlds.events import message
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from controller.api.meta import Resource


def provider(*pending: str, tested: str = "t", suspend: bool = False, **conditions: str) -> Resource:
    found = [
        {"type": kind.partition("_")[0], "status": status, "message": "why"}
        for kind, status in conditions.items()
    ]
    waiting = tuple(message(key_of("u", asked)) for asked in pending)
    status = FlagProviderStatus(last_handled_test=tested, pending=waiting).fields()
    return thing(
        "FlagProvider", "chat", {"suspend": suspend}, uid="u", status={**status, "conditions": found}
    )


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (None, MessageOutcome(False, "the FlagProvider was deleted")),
        (provider(suspend=True), MessageOutcome(False, "the FlagProvider is suspended")),
        (provider(tested="before"), MessageOutcome(False, "no controller has seen the request", over=False)),
        (provider("t", Ready="False"), MessageOutcome(False, "the FlagProvider is not ready: why")),
        (provider("t", Ready="True"), MessageOutcome(False, "the message waits to be delivered", over=False)),
        (provider("t", Delivered="False"), MessageOutcome(False, "the last try failed: why", over=False)),
        (provider(Delivered="False"), MessageOutcome(False, "the last try failed: why")),
        (provider("another", Ready="True", Delivered="True"), MessageOutcome(True, "delivered")),
    ],
)
def test_a_provider_gives_the_outcome_of_a_test(found: Resource | None, outcome: MessageOutcome) -> None:
    assert outcome_of(found, "t") == outcome


@pytest.mark.parametrize("what", ["chat", "flagset/chat", "provider/"])
def test_wrong_usage_says_what_to_write(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test-alert", what]) == 2
    assert "write provider/NAME" in capsys.readouterr().err


EVENT: dict[str, Any] = {
    "metadata": {"uid": "e", "annotations": {"flagstaff.dev/revision": "main@sha1:1", "other": "x"}},
    "involvedObject": {"apiVersion": "flagstaff.dev/v1beta1", "kind": "FlagSet", "namespace": "shop",
                       "name": "flags", "uid": "u"},
    "type": "Warning", "reason": "BuildFailed", "message": "it is\x1b[2J wrong",
    "lastTimestamp": "2026-01-02T03:04:05Z", "reportingComponent": "flagstaff-controller",
}  # fmt: skip


def test_an_event_is_shown_as_it_is_posted_and_on_a_line() -> None:
    event = as_event(EVENT)
    assert event == {
        "involvedObject": EVENT["involvedObject"], "severity": "error", "timestamp": "2026-01-02T03:04:05Z",
        "message": "it is\x1b[2J wrong", "reason": "BuildFailed",
        "reportingController": "flagstaff-controller", "metadata": {"flagstaff.dev/revision": "main@sha1:1"},
    }  # fmt: skip
    shown = "2026-01-02T03:04:05Z  Warning  FlagSet/shop/flags  BuildFailed  it is [2J wrong"
    assert lines(event, colours=False) == [shown]
