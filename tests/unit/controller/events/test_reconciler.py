"""A FlagReceiver's endpoint, as its Secret and its spec say."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from controller.delivery.object_bounds import RECEIVERS
from controller.events.receiver_reconciler import FlagReceiverReconciler
from controller.events.receiver_stage import FLAG_RECEIVERS
from controller.events.webhook_server import Endpoints, webhook_path
from controller.runtime.cache import Cache, Change
from controller.runtime.setbacks import Failed, Setback, Stalled, Waiting
from controller.runtime.watches import keys_to_wake
from tests.worlds.events import OLD, TOKEN, HookSecret
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.meta import Resource
    from controller.runtime.result import Result

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = {
    "type": "github",
    "secretRef": {"name": "hook"},
    "resources": [{"name": "flags"}, {"kind": "FlagSource", "name": "*"}],
    "events": ["push", "create"],
}


def receiver(spec: Mapping[str, Any] = SPEC, **status: Any) -> Resource:
    return thing("FlagReceiver", "push", spec, status)


class Receivers:
    """A reconciler, and a Secret that may change."""

    def __init__(self, secret: Mapping[str, bytes] | Setback | None) -> None:
        self.secret = HookSecret(secret)
        self.endpoints = Endpoints()
        self.objects = Cache()
        self.reconciler = FlagReceiverReconciler(self.secret.read, self.endpoints, self.objects)

    async def reconcile(self, resource: Resource | None = None) -> Result:
        return await self.reconciler.reconcile(resource or receiver(), NOW)

    def is_open(self, token: bytes = TOKEN) -> bool:
        return self.endpoints.find(webhook_path(token, receiver().key)) is not None


async def test_a_path_is_shown_and_answered() -> None:
    around = Receivers({"token": TOKEN})
    result = await around.reconcile()
    path = result.status.fields()["webhookPath"]
    found = around.endpoints.find(path)
    assert path in result.outcome.message
    assert found is not None
    assert (found.sender, found.events, found.sources) == ("github", ("push", "create"), ("flags", "*"))


async def test_it_says_nothing_the_second_time_and_once_that_the_path_moved() -> None:
    around = Receivers({"token": OLD})
    first = await around.reconcile()
    again = await around.reconcile(receiver(**first.status.fields()))
    around.secret.found = {"token": TOKEN, "previousToken": OLD}
    moved = await around.reconcile(receiver(**first.status.fields()))
    assert (first.events, again.events) == ((), ())
    assert [each.reason for each in moved.events] == ["PathChanged"]
    assert around.is_open(TOKEN)
    assert around.is_open(OLD)


async def test_a_line_break_after_the_token_is_no_part_of_it() -> None:
    around = Receivers({"token": TOKEN + b"\r\n"})
    await around.reconcile()
    assert around.is_open()


@pytest.mark.parametrize(
    ("secret", "setback", "reason"),
    [
        pytest.param(None, Waiting, "TokenNotFound", id="no Secret"),
        pytest.param({}, Stalled, "TokenNotFound", id="no token in it"),
        pytest.param({"token": b"\n"}, Stalled, "TokenNotFound", id="an empty token"),
        pytest.param({"token": b"fifteen-bytes-1\n"}, Stalled, "TokenTooShort", id="a token that is guessed"),
        pytest.param({"token": TOKEN, "previousToken": b"short"}, Stalled, "TokenTooShort",
                     id="one before that is guessed"),
        pytest.param({"previousToken": OLD}, Stalled, "TokenNotFound", id="only the one before"),
    ],
)  # fmt: skip
async def test_without_a_token_nothing_is_answered_until_it_is_there(
    secret: Mapping[str, bytes] | None, setback: type[Setback], reason: str
) -> None:
    around = Receivers({"token": TOKEN})
    await around.reconcile()
    around.secret.found = secret
    outcome = (await around.reconcile()).outcome
    assert (type(outcome), outcome.reason) == (setback, reason)
    assert not around.is_open()
    around.secret.found = {"token": TOKEN}
    await around.reconcile()
    assert around.is_open()


async def test_while_the_api_server_is_away_what_was_answered_still_is() -> None:
    around = Receivers({"token": TOKEN})
    await around.reconcile()
    around.secret.found = Failed("ApiServerUnavailable", "away")
    assert isinstance((await around.reconcile()).outcome, Failed)
    assert around.is_open()


async def test_a_spec_that_cannot_be_read_closes_the_endpoint() -> None:
    around = Receivers({"token": TOKEN})
    await around.reconcile()
    result = await around.reconcile(receiver({**SPEC, "type": "svn"}))
    assert (type(result.outcome), "spec.type" in result.outcome.message) == (Stalled, True)
    assert result.status.fields() == {"webhookPath": None}
    assert not around.is_open()


async def test_a_receiver_that_is_gone_leaves_no_token_behind() -> None:
    around = Receivers({"token": TOKEN})
    await around.reconcile()
    around.reconciler.forget(receiver().key)
    around.reconciler.forget(receiver().key)
    assert not around.is_open()


async def test_beyond_the_bound_the_newest_receiver_is_closed_until_another_is_deleted() -> None:
    around = Receivers({"token": TOKEN})
    older = [thing("FlagReceiver", f"a{number:03}") for number in range(RECEIVERS.most)]
    for resource in (*older, receiver()):
        around.objects.put(resource)
    result = await around.reconcile()
    assert isinstance(result.outcome, Stalled)
    assert result.outcome.reason == "TooManyReceivers"
    assert not around.is_open()
    around.objects.forget(older[0].key)
    assert receiver().key in keys_to_wake([FLAG_RECEIVERS], around.objects, Change(older[0], None))
    assert (await around.reconcile()).kind == "success"
    assert around.is_open()
