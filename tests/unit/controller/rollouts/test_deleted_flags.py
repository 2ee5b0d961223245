"""What a Prometheus is asked about flags that a revision deletes, and what its answers come to."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from controller.api.fields import InvalidSpecError, read
from controller.api.flagset import DeletionGuard
from controller.authoring.request_queries import FlagRequests, batches, selector_of
from controller.rollouts.deleted_flags import MOST_KEYS, DeletedFlags
from tests.web_server import web_server
from tests.worlds.metrics import NOW, metric_world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from controller.rollouts.metric_servers import AllowedServers

WEEK = timedelta(days=7)


@dataclass
class Answers:
    """A Prometheus with an answer for each kind of question."""

    totals: list[Any] = field(default_factory=list)
    users: list[Any] = field(default_factory=list)
    lasts: list[Any] = field(default_factory=list)
    status: int = 200
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        query = request.query["query"]
        self.asked.append(query)
        kinds = {"topk": self.users, "max b": self.lasts, "sum b": self.totals}
        data = {"resultType": "vector", "result": kinds[query[: 4 if query.startswith("topk") else 5]]}
        return web.json_response({"status": "success", "data": data}, status=self.status)


def series(value: object, **labels: str) -> dict[str, Any]:
    return {"metric": labels, "value": [1.0, str(value)]}


def of(key: str, value: object, **labels: str) -> dict[str, Any]:
    return series(value, feature_flag_key=key, **labels)


@dataclass
class Asked:
    answers: Answers
    servers: AllowedServers
    address: str

    async def ask(self, *keys: str, **guard: Any) -> Mapping[str, FlagRequests] | str:
        spec = {"requestedWithin": "168h", "provider": {"type": "prometheus", "address": self.address}}
        return await DeletedFlags(self.servers).ask("shop", read(DeletionGuard, spec | guard), keys, NOW)


@pytest.fixture
async def world() -> AsyncIterator[Asked]:
    answers = Answers()
    async with contextlib.AsyncExitStack() as stack:
        opened = await stack.enter_async_context(metric_world())
        port = await stack.enter_async_context(web_server(web.get("/api/v1/query", answers.answer)))
        yield Asked(answers, opened.servers, f"http://127.0.0.1:{port}")


async def test_who_asks_how_often_and_when_last_is_known_of_each_flag(world: Asked) -> None:
    steps = 2 * timedelta(seconds=604_800 // 100)
    world.answers.totals = [of("a", 12.5), of("b", 0)]
    world.answers.users = [
        of("a", 2, namespace="shop", pod="web-2"),
        of("a", 10, namespace="shop", pod="web-1", job="shop/evaluators"),
        of("a", 0.5, namespace="shop", job="shop/evaluators"),
    ]
    world.answers.lasts = [of("a", NOW.timestamp() - 3600)]
    assert await world.ask("a", "b", labels={"namespace": "shop"}) == {
        "a": FlagRequests(
            12.5,
            [("shop/web-1", 10.0), ("shop/web-2", 2.0), ("shop/shop/evaluators", 0.5)],
            NOW - timedelta(hours=1) - steps,
        )
    }
    totals, users, lasts = world.answers.asked
    assert '{namespace="shop",feature_flag_key=~"a|b"}[168h]' in totals
    assert '{namespace="shop",feature_flag_key=~"a"}[168h]' in users
    assert "[168h:6048s]" in lasts


async def test_of_flags_that_nobody_asks_for_nothing_else_is_asked(world: Asked) -> None:
    world.answers.totals = [of("a", 0), of("other", 5)]
    assert await world.ask("a", "b") == {}
    assert len(world.answers.asked) == 1


@pytest.mark.parametrize("end", [NOW + timedelta(days=1), NOW - WEEK - timedelta(days=1), None])
async def test_a_last_request_that_cannot_be_is_not_told(world: Asked, end: datetime | None) -> None:
    world.answers.totals = [of("a", 1)]
    world.answers.lasts = [] if end is None else [of("a", end.astimezone(UTC).timestamp())]
    assert await world.ask("a") == {"a": FlagRequests(1.0, [], None)}


async def test_no_text_of_an_answer_but_names_is_repeated(world: Asked) -> None:
    world.answers.totals = [of("a", 1)]
    world.answers.users = [of("a", 1, namespace="shop", pod="password: hunter2"), of("a", 1, other="x")]
    found = await world.ask("a")
    assert isinstance(found, dict)
    assert found["a"].by == [("shop", 1.0)]


@pytest.mark.parametrize(
    ("status", "totals", "why"),
    [
        (503, [], "127.0.0.1 answers 503"),
        (401, [], "127.0.0.1 answers 401; correct the Secret of spec.deletionGuard.provider.secretRef"),
        (200, [of("a", "NaN")], "the value is NaN: the query divides by nothing"),
        (200, [{"metric": {"feature_flag_key": "a"}}], "the value is no number"),
    ],
)
async def test_without_an_answer_nothing_is_known(
    world: Asked, status: int, totals: list[Any], why: str
) -> None:
    world.answers.status, world.answers.totals = status, totals
    assert await world.ask("a") == why


async def test_a_secret_that_is_not_there_is_named(world: Asked) -> None:
    provider = {"type": "prometheus", "address": world.address, "secretRef": {"name": "login"}}
    found = await world.ask("a", provider=provider)
    assert found == "Secret login does not exist; correct spec.deletionGuard.provider.secretRef"


async def test_too_many_deleted_flags_are_not_asked_about(world: Asked) -> None:
    found = await world.ask(*(f"flag-{number}" for number in range(MOST_KEYS + 1)))
    assert found == "201 flags are deleted at once, of 200 that are asked about; delete fewer in a commit"
    assert world.answers.asked == []


async def test_many_deleted_flags_are_asked_about_in_queries_of_bounded_length(world: Asked) -> None:
    keys = [f"{'ключ' * 20}-{number}" for number in range(MOST_KEYS)]
    assert await world.ask(*keys) == {}
    assert max(map(len, world.answers.asked)) < 4_000
    assert [key for batch in batches(keys) for key in batch] == keys


def test_a_key_cannot_leave_its_place_in_a_query() -> None:
    assert selector_of(['a"} or b', "c.d"], {"x": 'y"'}) == (
        r'{x="y\"",feature_flag_key=~"a\"\\}\\ or\\ b|c\\.d"}'
    )


def test_a_guard_asks_a_prometheus() -> None:
    provider = {"type": "http", "address": "https://a.example.com", "jsonPath": "$.x"}
    with pytest.raises(InvalidSpecError, match="provider of type prometheus"):
        read(DeletionGuard, {"requestedWithin": "1h", "provider": provider})
