"""One selector finds the same flags whichever way one asks: one flag, all flags, changes, and the
sync port.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.json_format import MessageToDict
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1

from evaluator.flags.model import FlagSet
from evaluator.http.messages import Code, Request, RpcError
from evaluator.resolving.resolution import FlagType
from evaluator.server.context import ContextSources
from evaluator.server.evaluate_flags import PREFIX, Ofrep
from evaluator.server.evaluation import Evaluation
from evaluator.server.event_stream import EventStreams
from evaluator.server.service import EvaluationService
from evaluator.server.syncing import StoreBackend
from evaluator.store.store import Content, Report, Store
from evaluator.wire.sync_messages import Payload
from tests.worlds.evaluator import (
    NOW,
    FakeStream,
    FakeTimers,
    answer_of,
    call,
    flag,
    flag_set,
    in_place,
    unhurried_queue,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from evaluator.wire.servicer import Missing

if TYPE_CHECKING:
    Found = Mapping[str, str]
    Ask = Callable[[Store, str], Found]

KEYS = ("a", "b", "c", "d", "e")


def flag_saying(key: str, value: str, **metadata: Any) -> Any:
    return flag(key, {"v": value}, "v", metadata=metadata)


SOURCES = {
    "base": flag_set(flag_saying("a", "base a"), flag_saying("b", "base b"), flagSetId="shop"),
    "over": flag_set(
        flag_saying("b", "over b"), flag_saying("c", "over c", flagSetId="bank"), flagSetId="shop"
    ),
    "bare": flag_set(flag_saying("a", "bare a"), flag_saying("d", "bare d")),
    "silent": None,
}
SHOP = {"a": "base a", "b": "over b"}
BARE = {"a": "bare a", "d": "bare d"}
BANK = {"c": "over c"}
SELECTED = {
    "": {**SHOP, **BARE, **BANK}, "source=base": {"a": "base a", "b": "base b"},
    "base": {"a": "base a", "b": "base b"}, "source=over": {"b": "over b", **BANK}, "source=bare": BARE,
    "source=silent": {}, "source=other": {}, "flagSetId=shop": SHOP, "flagSetId=bank": BANK,
    "flagSetId=": BARE, "flagSetId=other": {},
}  # fmt: skip


def store(held: Mapping[str, FlagSet | None] = SOURCES) -> Store:
    made = Store(sources=tuple(SOURCES))
    serve(made, held)
    return made


def serve(made: Store, held: Mapping[str, FlagSet | None]) -> None:
    for name, flags in held.items():
        made.apply(Report(name, NOW, Content(flags)), now=NOW)


def evaluation(made: Store) -> Evaluation:
    return Evaluation(EvaluationService(made, ContextSources(), lambda: NOW))


def ofrep(made: Store) -> Callable[[str, str], Any]:
    answers = Ofrep(EvaluationService(made, ContextSources(), lambda: NOW))

    def ask(path: str, selector: str) -> Any:
        headers = (("flagd-selector", selector),)
        request = Request("POST", f"{PREFIX}{path}", "", headers, b"", "127.0.0.1:1")
        answer = answers.single(request) if path else answers.bulk(request)
        return json.loads(answer_of(answer).body)

    return ask


def one_by_one(made: Store, selector: str) -> Found:
    resolve = evaluation(made).unary("v1", FlagType.STRING)
    found = {}
    for key in KEYS:
        asked = v1.ResolveStringRequest(flag_key=key).SerializeToString()
        try:
            answer = answer_of(resolve(call((("flagd-selector", selector),)), asked))
        except RpcError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            continue
        found[key] = v1.ResolveStringResponse.FromString(answer).value
    return found


def all_at_once(made: Store, selector: str) -> Found:
    answer = evaluation(made).resolve_all(call((("flagd-selector", selector),)), b"")
    flags = v1.ResolveAllResponse.FromString(answer_of(answer)).flags
    return {key: flags[key].string_value for key in flags}


def ofrep_one_by_one(made: Store, selector: str) -> Found:
    ask = ofrep(made)
    answers = {key: ask(f"/{key}", selector) for key in KEYS}
    return {key: answer["value"] for key, answer in answers.items() if "value" in answer}


def ofrep_all_at_once(made: Store, selector: str) -> Found:
    return {one["key"]: one["value"] for one in ofrep(made)("", selector)["flags"]}


def sync(made: Store, selector: str) -> Found:
    payloads: list[Any] = []

    def keep(payload: Payload | Missing) -> None:
        payloads.append(json.loads(payload.message)["flags"] if isinstance(payload, Payload) else {})

    backend = StoreBackend(made, {})
    backend.stop_waiting()
    topic = backend.topic(selector, call())
    backend.watch(topic, lambda document, _: Payload(document, b""), keep)
    backend.close()
    return {key: one["variants"]["v"] for key, one in payloads[-1].items()}


@pytest.mark.parametrize("ask", [one_by_one, all_at_once, ofrep_one_by_one, ofrep_all_at_once, sync])
@pytest.mark.parametrize("selector", SELECTED)
def test_a_selector_finds_the_same_however_it_is_asked(ask: Ask, selector: str) -> None:
    assert ask(store(), selector) == SELECTED[selector]


def changes_of(streams: EventStreams, selector: str) -> Callable[[], list[dict[str, str]]]:
    stream = FakeStream()
    streams.open(call((("flagd-selector", selector),)), b"", stream)

    def changes() -> list[dict[str, str]]:
        events = [v1.EventStreamResponse.FromString(message) for message in stream.sent]
        found = [MessageToDict(one.data) for one in events if one.type == "configuration_change"]
        return [{key: change["type"] for key, change in one["flags"].items()} for one in found]

    return changes


@pytest.mark.parametrize("selector", SELECTED)
def test_an_event_stream_reports_changes_of_what_its_selector_finds(selector: str) -> None:
    made = store(dict.fromkeys(SOURCES))
    changes = changes_of(EventStreams(made, FakeTimers(), unhurried_queue(), run=in_place), selector)
    serve(made, SOURCES)
    assert kept_flags(changes()) == SELECTED[selector].keys()
    serve(made, dict.fromkeys(SOURCES))
    assert kept_flags(changes()) == set()


def kept_flags(changes: Sequence[Mapping[str, str]]) -> set[str]:
    """The flags that a stream named and whose last change is not a deletion."""
    last = {key: change for each in changes for key, change in each.items()}
    return {key for key, change in last.items() if change != "delete"}


def test_a_shadowed_flag_comes_back_for_all_when_the_winner_goes() -> None:
    made = store()
    changes = changes_of(EventStreams(made, FakeTimers(), unhurried_queue(), run=in_place), "flagSetId=shop")
    serve(made, {"over": FlagSet()})
    assert changes() == [{"b": "update"}]
    for ask in (one_by_one, all_at_once, ofrep_one_by_one, ofrep_all_at_once, sync):
        assert ask(made, "flagSetId=shop") == {"a": "base a", "b": "base b"}
