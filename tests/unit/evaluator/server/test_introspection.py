from __future__ import annotations

import asyncio
import logging
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from evaluator.flags.model import REVISION_KEY, FlagSet
from evaluator.http.messages import Request, Response, Streamed
from evaluator.http.offload import Offload
from evaluator.server.context import ContextSources
from evaluator.server.management import MOST_BODY, PAGE, Introspection
from evaluator.server.service import EvaluationService
from evaluator.store.history import History
from evaluator.store.store import Store
from tests.stores import fail, swap
from tests.waiting import until
from tests.worlds import evaluator as fakes
from tests.worlds.evaluator import NOW, body_of, flag, flag_set

if TYPE_CHECKING:
    from pathlib import Path

    from evaluator.flags.model import Flag
    from evaluator.http.messages import Headers
    from evaluator.http.routes import Answer


def introspection(
    store: Store, offload: Offload | None = None, history: History | None = None
) -> Introspection:
    sources = ContextSources(headers={"x-tier": "tier"})
    return Introspection(EvaluationService(store, sources, lambda: NOW + 5), offload or Offload(), history)


def store_of(*flags: Flag, **metadata: Any) -> Store:
    store = Store()
    swap(store, flag_set(*flags, **metadata), now=NOW)
    return store


async def list_flags(store: Store, query: str = "") -> dict[str, Any]:
    with closing(Offload()) as offload:
        routes = introspection(store, offload).routes()
        status, body = await read(routes.http["GET", "/flags"](Request("GET", "/flags", query, (), b"", "")))
    assert status == 200
    return body


async def explain(
    store: Store, body: Any, headers: Headers = (), history: History | None = None
) -> tuple[int, dict[str, Any]]:
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    with closing(Offload()) as offload:
        asked = introspection(store, offload, history)
        return await read(asked.explain(Request("POST", "/explain", "", headers, raw, "")))


async def read(answer: Answer) -> tuple[int, dict[str, Any]]:
    if isinstance(answer, Response):
        return answer.status, orjson.loads(answer.body)
    assert isinstance(answer, Streamed)
    return answer.status, orjson.loads(await body_of(answer))


async def test_before_anything_is_served_the_sources_are_listed_with_no_flags() -> None:
    body = await list_flags(Store(sources=("a", "b")))
    assert (body["digest"], body["count"], body["flags"], body["next"]) == (None, 0, [], None)
    assert [source["name"] for source in body["sources"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("variants", "wanted"),
    [({"a": 1, "b": 2}, "integer"), ({"a": 1, "b": 2.5}, "float"), ({"a": True}, "boolean")],
    ids=["integers", "a fraction among them", "boolean"],
)
async def test_the_type_of_a_flag_of_whole_numbers_is_integer(variants: dict[str, Any], wanted: str) -> None:
    (shown,) = (await list_flags(store_of(flag("number", variants, "a"))))["flags"]
    assert shown["type"] == wanted


async def test_what_is_served_is_listed_with_its_age() -> None:
    store = Store()
    flags = FlagSet({"boolean": fakes.BOOLEAN}, metadata={REVISION_KEY: "main@sha1:1"})
    snapshot = swap(store, flags, now=NOW)
    fail(store, "gone", NOW - 60)
    body = await list_flags(store)
    assert (body["revision"], body["digest"]) == ("main@sha1:1", snapshot.digest)
    assert (body["servedSince"], body["ageSeconds"]) == (NOW, 65)
    assert body["stale"] == {"reason": "gone", "since": NOW - 60}
    assert body["sources"][0]["flags"] == 1


async def test_each_flag_is_listed_with_where_it_comes_from() -> None:
    store = Store(sources=("base", "over"))
    swap(store, flag_set(fakes.BOOLEAN, fakes.TARGETED), now=NOW, source="base")
    swap(store, flag_set(fakes.TARGETED, flagSetId="f"), now=NOW, source="over")
    boolean, targeted = (await list_flags(store))["flags"]
    assert boolean == {
        "key": "boolean", "state": "ENABLED", "type": "boolean", "variants": ["on", "off"],
        "defaultVariant": "on", "targeting": False, "source": "base", "flagSetId": None,
        "revision": None, "metadata": {"owner": "shop"},
    }  # fmt: skip
    assert (targeted["source"], targeted["flagSetId"], targeted["targeting"]) == ("over", "f", True)


async def test_many_flags_come_in_pages_that_leave_none_out() -> None:
    store = store_of(*(flag(f"f{n:05}", {"on": True}, "on") for n in range(2 * PAGE + 1)))
    keys: list[str] = []
    for pages in range(1, 4):
        body = await list_flags(store, f"after={keys[-1]}" if keys else "")
        keys += [one["key"] for one in body["flags"]]
        assert len(keys) == min(pages * PAGE, 2 * PAGE + 1)
        assert (body["next"] is None) == (pages == 3)
    assert keys == sorted(store.catalog.everything.flags)


async def test_an_explanation_is_the_answer_with_its_steps() -> None:
    status, body = await explain(
        store_of(*fakes.ALL, revision="x"), {"flagKey": "targeted", "context": {"tier": "gold"}}
    )
    assert status == 200
    assert (body["value"], body["variant"], body["reason"]) == ("y", "yes", "TARGETING_MATCH")
    looked_up = next(step for step in body["steps"] if step["operator"] == "var")
    assert (looked_up["value"], looked_up["text"]) == ("gold", 'targeting.if[0].==[0].var: "tier" is "gold"')


async def test_headers_are_laid_over_the_context_as_in_an_evaluation() -> None:
    _, body = await explain(store_of(*fakes.ALL), {"flagKey": "targeted"}, (("x-tier", "gold"),))
    assert body["variant"] == "yes"


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ({"flagKey": "nowhere"}, "FLAG_NOT_FOUND"),
        ({"flagKey": "broken"}, "PARSE_ERROR"),
        ({"flagKey": "boolean", "type": "string"}, "TYPE_MISMATCH"),
    ],
    ids=["missing", "broken", "other type"],
)
async def test_an_error_of_the_flag_is_an_answer(question: dict[str, Any], code: str) -> None:
    status, body = await explain(store_of(*fakes.ALL), question)
    assert (status, body["errorCode"]) == (200, code)
    assert body["steps"]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "not JSON"),
        (b"{]", 400, "not JSON"),
        (b"[]", 400, "flagKey"),
        ({"flagKey": 1}, 400, "flagKey"),
        ({"flagKey": "a", "context": []}, 400, "context must be an object"),
        ({"flagKey": "a", "type": "date"}, 400, "type must be one of boolean"),
        (b'{"flagKey":"a","context":{"a":' + b"[" * 90 + b"]" * 90 + b"}}", 400, "too deep"),
        (b" " * (MOST_BODY + 1), 413, "more than"),
    ],
    ids=["nothing", "no json", "list", "key", "context", "type", "deep", "large"],
)
async def test_a_question_that_is_none_is_refused_with_a_reason(body: Any, status: int, said: str) -> None:
    found = await explain(store_of(*fakes.ALL), body)
    assert found[0] == status
    assert said in found[1]["error"]


async def test_where_a_selector_finds_nothing_no_flag_is_found() -> None:
    store = store_of(*fakes.ALL)
    _, body = await explain(store, {"flagKey": "boolean"}, (("flagd-selector", "source=x"),))
    assert body["errorCode"] == "FLAG_NOT_FOUND"
    assert (await explain(store, {"flagKey": "a"}, (("flagd-selector", "color=x"),)))[0] == 400


async def test_while_nothing_is_known_nothing_is_explained() -> None:
    status, body = await explain(Store(), {"flagKey": "a"})
    assert (status, body["error"].startswith("no flags are known yet")) == (503, True)


async def test_a_large_context_makes_no_larger_answer_and_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rule = {"if": [{"in": ["z", {"var": "much"}]}, "a", None]}
    store = store_of(flag("f", {"a": 1}, "a", targeting=rule))
    much = ["secret" * 1_000] * 15
    with caplog.at_level(logging.DEBUG):
        status, body = await explain(store, {"flagKey": "f", "context": {"much": much}})
    assert status == 200
    step = next(step for step in body["steps"] if step["operator"] == "var")
    assert "value" not in step
    assert len(orjson.dumps(body)) < 5_000
    assert "secret" not in caplog.text


async def test_an_answer_of_a_version_that_was_served_before_is_explained(tmp_path: Path) -> None:
    store, history = Store(), History(tmp_path)
    store.subscribe(history.record)
    task = asyncio.create_task(history.run())
    first = swap(store, flag_set(flag("f", {"v": "old"}, "v")), now=NOW)
    second = swap(store, flag_set(flag("f", {"v": "new"}, "v")), now=NOW + 60)
    await until(lambda: history.find(second.digest))
    task.cancel()
    moment = datetime.fromtimestamp(NOW + 30, UTC).isoformat()
    for at in (first.digest, moment):
        status, found = await explain(store, {"flagKey": "f", "at": at}, history=history)
        assert (status, found["value"], found["digest"]) == (200, "old", first.digest)
    status, found = await explain(store, {"flagKey": "f"}, history=history)
    assert (status, found["value"]) == (200, "new")


@pytest.mark.parametrize(
    ("at", "selector", "kept", "status"),
    [
        ("sha256:00000000", "", True, 404),
        ("sha256:00000000", "", False, 404),
        ("yesterday", "", True, 400),
        (7, "", True, 400),
        ("sha256:00000000", "flagSetId=shop", True, 400),
    ],
)
async def test_a_version_that_is_not_kept_or_not_named_is_refused(
    tmp_path: Path, at: object, selector: str, kept: bool, status: int
) -> None:
    headers = (("flagd-selector", selector),) if selector else ()
    history = History(tmp_path) if kept else None
    found, answer = await explain(store_of(fakes.BOOLEAN), {"flagKey": "f", "at": at}, headers, history)
    assert (found, list(answer)) == (status, ["error"])
