from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from evaluator.flags.model import REVISION_KEY, FlagSet
from evaluator.http.routes import Request, Response
from evaluator.server.context import ContextSources
from evaluator.server.introspection import MOST_BODY, MOST_PAGES, PAGE, Introspection
from evaluator.store import Store

from . import fakes
from .fakes import NOW, flag, flag_set

if TYPE_CHECKING:
    from evaluator.flags.model import Flag
    from evaluator.http.routes import Headers


def introspection(store: Store) -> Introspection:
    sources = ContextSources(headers={"x-tier": "tier"})
    return Introspection(store, sources, lambda: NOW + 5)


def serving(*flags: Flag, **metadata: Any) -> Store:
    store = Store()
    store.swap(flag_set(*flags, **metadata), now=NOW)
    return store


def listed(store: Store, query: str = "") -> dict[str, Any]:
    routes = introspection(store).routes()
    response = routes.http["GET", "/flags"](Request("GET", "/flags", query, (), b"", ""))
    assert isinstance(response, Response)
    assert response.status == 200
    found: dict[str, Any] = orjson.loads(response.body)
    return found


def explained(store: Store, body: Any, headers: Headers = ()) -> tuple[int, dict[str, Any]]:
    routes = introspection(store).routes()
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    response = routes.http["POST", "/explain"](Request("POST", "/explain", "", headers, raw, ""))
    assert isinstance(response, Response)
    return response.status, orjson.loads(response.body)


def test_before_anything_is_served_the_sources_are_told_with_no_flags() -> None:
    body = listed(Store(sources=("a", "b")))
    assert (body["digest"], body["count"], body["flags"], body["next"]) == (None, 0, [], None)
    assert [source["name"] for source in body["sources"]] == ["a", "b"]


def test_what_is_served_is_told_with_its_age() -> None:
    store = Store()
    flags = FlagSet({"boolean": fakes.BOOLEAN}, metadata={REVISION_KEY: "main@sha1:1"})
    snapshot = store.swap(flags, now=NOW)
    store.mark_stale("gone", NOW - 60)
    body = listed(store)
    assert (body["revision"], body["digest"]) == ("main@sha1:1", snapshot.digest)
    assert (body["servedSince"], body["ageSeconds"]) == (NOW, 65)
    assert body["stale"] == {"reason": "gone", "since": NOW - 60}
    assert body["sources"][0]["flags"] == 1


def test_each_flag_is_told_with_where_it_comes_from() -> None:
    store = Store(sources=("base", "over"))
    store.swap(flag_set(fakes.BOOLEAN, fakes.TARGETED), now=NOW, source="base")
    store.swap(flag_set(fakes.TARGETED, flagSetId="f"), now=NOW, source="over")
    boolean, targeted = listed(store)["flags"]
    assert boolean == {
        "key": "boolean", "state": "ENABLED", "type": "boolean", "variants": ["on", "off"],
        "defaultVariant": "on", "targeting": False, "source": "base", "flagSetId": None,
        "revision": None, "metadata": {"owner": "shop"},
    }  # fmt: skip
    assert (targeted["source"], targeted["flagSetId"], targeted["targeting"]) == ("over", "f", True)


def test_many_flags_come_in_pages_that_leave_none_out() -> None:
    store = serving(*(flag(f"f{n:05}", {"on": True}, "on") for n in range(2 * PAGE + 1)))
    keys: list[str] = []
    for pages in range(1, 4):
        body = listed(store, f"after={keys[-1]}" if keys else "")
        keys += [one["key"] for one in body["flags"]]
        assert len(keys) == min(pages * PAGE, 2 * PAGE + 1)
        assert (body["next"] is None) == (pages == 3)
    assert keys == sorted(store.catalog.everything.flags)


def test_a_page_is_made_once_per_snapshot_and_few_are_kept() -> None:
    store = serving(*fakes.ALL)
    asked = introspection(store)
    pages = {after: Request("GET", "/flags", f"after={after}", (), b"", "") for after in "abc"}
    first = asked.flags(pages["a"]).body
    assert asked.flags(pages["a"]).body == first
    for number in range(MOST_PAGES + 5):
        asked.flags(Request("GET", "/flags", f"after=k{number}", (), b"", ""))
        assert len(asked._pages) <= MOST_PAGES
    store.swap(flag_set(fakes.STRING), now=NOW)
    assert orjson.loads(asked.flags(pages["a"]).body)["count"] == 1


def test_an_explanation_is_the_answer_with_its_steps() -> None:
    status, body = explained(
        serving(*fakes.ALL, revision="x"), {"flagKey": "targeted", "context": {"tier": "gold"}}
    )
    assert status == 200
    assert (body["value"], body["variant"], body["reason"]) == ("y", "yes", "TARGETING_MATCH")
    looked_up = next(step for step in body["steps"] if step["operator"] == "var")
    assert (looked_up["value"], looked_up["text"]) == ("gold", 'targeting.if[0].==[0].var: "tier" is "gold"')  # fmt: skip


def test_headers_are_laid_over_the_context_as_in_an_evaluation() -> None:
    body = explained(serving(*fakes.ALL), {"flagKey": "targeted"}, (("x-tier", "gold"),))[1]
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
def test_an_error_of_the_flag_is_an_answer(question: dict[str, Any], code: str) -> None:
    status, body = explained(serving(*fakes.ALL), question)
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
def test_a_question_that_is_none_is_refused_with_a_reason(
    body: Any, status: int, said: str
) -> None:
    found = explained(serving(*fakes.ALL), body)
    assert found[0] == status
    assert said in found[1]["error"]


def test_a_selector_that_finds_nothing_is_told() -> None:
    store = serving(*fakes.ALL)
    assert explained(store, {"flagKey": "a"}, (("flagd-selector", "source=x"),))[0] == 412
    assert explained(store, {"flagKey": "a"}, (("flagd-selector", "color=x"),))[0] == 400


def test_a_large_context_makes_no_larger_answer_and_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rule = {"if": [{"in": ["z", {"var": "much"}]}, "a", None]}
    store = serving(flag("f", {"a": 1}, "a", targeting=rule))
    much = ["secret" * 1_000] * 15
    with caplog.at_level(logging.DEBUG):
        status, body = explained(store, {"flagKey": "f", "context": {"much": much}})
    assert status == 200
    step = next(step for step in body["steps"] if step["operator"] == "var")
    assert "value" not in step
    assert len(orjson.dumps(body)) < 5_000
    assert "secret" not in caplog.text
