from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from evaluator.flags.model import FlagSet
from evaluator.http.messages import Code, RpcError
from evaluator.server import syncing
from evaluator.server.syncing import LARGE, NOT_YET, StoreBackend
from evaluator.store.store import Store
from evaluator.wire.servicer import Missing
from evaluator.wire.sync_messages import Payload, encode
from tests.stores import confirm, fail, swap
from tests.worlds.evaluator import NOW, call, flag, flag_set

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def many(number: int) -> FlagSet:
    """A set that is encoded in a thread; its flag `f-0` is `number`."""
    return flag_set(*(flag(f"f-{each}", {"n": number}, "n") for each in range(LARGE + 1)))


class Watcher:
    """Keeps what it receives."""

    def __init__(self, backend: StoreBackend, selector: str = "", *, held: bool = False) -> None:
        self.received: list[Any] = []
        self.metadata: list[Any] = []
        """The metadata of each set that was received."""
        self.quiet: list[bool] = []
        self.threads: set[int] = set()
        self.hold = threading.Event()
        """Set, unless it is to be set by the test: encoding goes on."""
        if not held:
            self.hold.set()
        self.making = threading.Event()
        self.cancel: Callable[[], None] = backend.watch(
            backend.topic(selector, call()), self.make, self.receive
        )

    def make(self, document: bytes, context: Mapping[str, Any]) -> Payload:
        self.making.set()
        assert self.hold.wait(10)
        self.threads.add(threading.get_ident())
        return Payload(document, json.dumps(dict(context)).encode())

    def receive(self, payload: Payload | Missing) -> None:
        self.quiet.append(isinstance(payload, Payload) and payload.quiet)
        document = {} if isinstance(payload, Missing) else json.loads(payload.message)
        self.metadata.append(document.get("metadata"))
        self.received.append(payload if isinstance(payload, Missing) else document["flags"])

    @property
    def keys(self) -> list[list[str] | Missing]:
        return [each if isinstance(each, Missing) else sorted(each) for each in self.received]

    @property
    def numbers(self) -> list[int]:
        return [each["f-0"]["variants"]["n"] for each in self.received]


async def settle() -> None:
    """Until no task is left but the test's own."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


async def start_encoding() -> tuple[Store, StoreBackend, Watcher]:
    """A large set that is being encoded for its watcher, until `hold` is set."""
    store = Store()
    swap(store, many(0), now=NOW)
    backend = StoreBackend(store, {})
    watcher = Watcher(backend, held=True)
    await asyncio.to_thread(watcher.making.wait, 10)
    return store, backend, watcher


def test_only_that_is_sent_until_a_first_set_is_served() -> None:
    store = Store()
    watcher = Watcher(StoreBackend(store, {}))
    assert watcher.received == [NOT_YET]
    swap(store, flag_set(flag("a", {"on": 1})), now=NOW)
    assert watcher.keys == [NOT_YET, ["a"]]


def test_an_empty_set_that_was_delivered_is_sent() -> None:
    store = Store()
    swap(store, flag_set(flag("a", {"on": 1})), now=NOW)
    watcher = Watcher(StoreBackend(store, {}))
    swap(store, FlagSet(), now=NOW)
    assert watcher.keys == [["a"], []]


@pytest.fixture
def two() -> Store:
    """Both sources have delivered."""
    store = Store(sources=("one", "two"))
    swap(store, flag_set(flag("a", {"on": 1}), flagSetId="shop"), now=NOW, source="one")
    swap(store, flag_set(flag("b", {"on": 1})), now=NOW, source="two")
    return store


@pytest.mark.parametrize(
    ("selector", "keys"),
    [
        ("", ["a", "b"]), ("one", ["a"]), ("source=two", ["b"]), ("flagSetId=shop", ["a"]),
        ("flagSetId=", ["b"]), ("source=three", []), ("flagSetId=none", []),
    ],
)  # fmt: skip
def test_a_selector_gets_what_it_finds_and_else_an_empty_set(
    two: Store, selector: str, keys: list[str]
) -> None:
    assert Watcher(StoreBackend(two, {}), selector).keys == [keys]


def test_an_invalid_selector_is_refused_in_flagds_words() -> None:
    with pytest.raises(RpcError, match='invalid selector key "x", valid keys') as refused:
        StoreBackend(Store(), {}).topic("x=y", call())
    assert refused.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("selector", ["source=two", "flagSetId=later"])
def test_what_may_be_on_its_way_is_waited_for(selector: str) -> None:
    store = Store(sources=("one", "two"))
    swap(store, flag_set(flag("a", {"on": 1})), now=NOW, source="one")
    watcher = Watcher(StoreBackend(store, {}), selector)
    assert watcher.received == [NOT_YET]
    swap(store, flag_set(flag("b", {"on": 1}), flagSetId="later"), now=NOW, source="two")
    assert watcher.keys == [NOT_YET, ["b"]]


def test_flags_that_a_selector_no_longer_finds_are_deleted_even_while_a_source_is_awaited() -> None:
    store = Store(sources=("one", "two"))
    swap(store, flag_set(flag("a", {"on": 1}), flagSetId="shop"), now=NOW, source="one")
    backend = StoreBackend(store, {})
    backend.stop_waiting()
    watcher = Watcher(backend, "flagSetId=shop")
    swap(store, flag_set(flag("a", {"on": 1}), flagSetId="other"), now=NOW, source="one")
    assert watcher.keys == [["a"], []]


@pytest.fixture
def first() -> tuple[Store, StoreBackend, Watcher]:
    """The first of two sources has delivered, the second has not answered yet."""
    store = Store(sources=("one", "two"))
    swap(store, flag_set(flag("a", {"on": 1})), now=NOW, source="one")
    backend = StoreBackend(store, {})
    return store, backend, Watcher(backend)


def test_no_partial_set_is_sent_while_a_source_may_still_deliver(
    first: tuple[Store, StoreBackend, Watcher],
) -> None:
    store, backend, watcher = first
    late = Watcher(backend)
    swap(store, flag_set(flag("b", {"on": 1})), now=NOW, source="two")
    assert [watcher.keys, late.keys] == [[NOT_YET, NOT_YET, ["a", "b"]], [NOT_YET, ["a", "b"]]]


def test_a_source_that_fails_at_the_start_is_not_waited_for(
    first: tuple[Store, StoreBackend, Watcher],
) -> None:
    store, _, watcher = first
    fail(store, "it is down", NOW, "two")
    assert (watcher.keys, watcher.quiet) == ([NOT_YET, ["a"]], [False, False])


def test_a_source_that_stays_silent_at_the_start_is_waited_for_no_longer_than_that(
    first: tuple[Store, StoreBackend, Watcher],
) -> None:
    store, backend, watcher = first
    backend.stop_waiting()
    backend.stop_waiting()
    swap(store, flag_set(flag("b", {"on": 1})), now=NOW, source="two")
    assert watcher.keys == [NOT_YET, ["a"], ["a", "b"]]


async def test_a_large_set_is_encoded_in_a_thread() -> None:
    store = Store()
    swap(store, many(1), now=NOW)
    backend = StoreBackend(store, {"region": "eu"})
    watcher = Watcher(backend)
    assert watcher.received == []
    await settle()
    assert watcher.numbers == [1]
    assert threading.get_ident() not in watcher.threads


async def test_a_change_during_the_encoding_is_sent_last() -> None:
    store, _, watcher = await start_encoding()
    for number in range(1, 100):
        swap(store, many(number), now=NOW)
    watcher.hold.set()
    await settle()
    assert watcher.numbers[-1] == 99
    assert watcher.numbers == sorted(watcher.numbers)
    assert len(watcher.numbers) <= 2


async def test_a_small_set_that_overtakes_a_large_one_is_the_last_word() -> None:
    store, _, watcher = await start_encoding()
    watcher.hold.set()
    swap(store, flag_set(flag("small", {"on": 1})), now=NOW)
    await settle()
    assert watcher.keys == [["small"]]


async def test_a_watcher_that_leaves_during_the_encoding_is_sent_nothing() -> None:
    store = Store()
    swap(store, many(0), now=NOW)
    backend = StoreBackend(store, {})
    leaving, staying = Watcher(backend, held=True), Watcher(backend)
    await asyncio.to_thread(leaving.making.wait, 10)
    leaving.cancel()
    leaving.cancel()
    leaving.hold.set()
    await settle()
    assert (leaving.received, staying.numbers[-1]) == ([], 0)


async def test_a_watcher_that_comes_during_the_encoding_is_notified_too() -> None:
    _, backend, early = await start_encoding()
    late = Watcher(backend)
    early.hold.set()
    await settle()
    assert (early.numbers[0], late.numbers) == (0, [0])


def test_nothing_is_encoded_while_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    encodings: list[FlagSet] = []

    def count_and_encode(flags: FlagSet) -> bytes:
        encodings.append(flags)
        return encode(flags)

    monkeypatch.setattr("evaluator.server.syncing.encode", count_and_encode)
    store = Store()
    backend = StoreBackend(store, {})
    watcher = Watcher(backend)
    swap(store, flag_set(flag("a", {"on": 1})), now=NOW)
    watcher.cancel()
    swap(store, flag_set(flag("b", {"on": 1})), now=NOW)
    assert (len(encodings), watcher.keys) == (1, [NOT_YET, ["a"]])


async def test_nothing_is_sent_after_closing() -> None:
    store, backend, watcher = await start_encoding()
    backend.close()
    watcher.hold.set()
    swap(store, many(1), now=NOW)
    await settle()
    assert watcher.received == []


def test_the_context_goes_with_each_set_as_it_is_then() -> None:
    store, context = Store(), {"region": "eu"}
    swap(store, flag_set(flag("a", {"on": 1})), now=NOW)
    backend = StoreBackend(store, context)
    payloads: list[Any] = []
    topic = backend.topic("", call())
    backend.watch(topic, lambda flags, now: Payload(flags, json.dumps(dict(now)).encode()), payloads.append)
    context["region"] = "us"
    swap(store, flag_set(flag("b", {"on": 1})), now=NOW)
    assert [each.digest for each in payloads] == [b'{"region": "eu"}', b'{"region": "us"}']
    assert backend.context() == {"region": "us"}


def test_a_set_that_cannot_be_encoded_is_an_error_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    backend = StoreBackend(store, {})
    watcher = Watcher(backend)
    swap(store, flag_set(flag("a", {"on": float("nan")})), now=NOW, content="sha256:0")
    assert watcher.received == [NOT_YET, syncing.UNENCODABLE]
    assert "cannot be encoded" in caplog.text


@pytest.mark.parametrize("flags", [flag_set(flag("a", {"on": 1})), many(1)], ids=["few", "many"])
@pytest.mark.parametrize("names", [("",), ("", "other")], ids=["alone", "merged"])
async def test_that_a_source_is_stale_is_no_reason_to_send_and_that_it_is_fresh_is(
    flags: FlagSet, names: tuple[str, ...]
) -> None:
    store = Store(sources=names)
    swap(store, flags, now=NOW, source="")
    backend = StoreBackend(store, {})
    backend.stop_waiting()
    watcher = Watcher(backend)
    await settle()
    fail(store, "gone", NOW, "")
    await settle()
    confirm(store, NOW, "")
    await settle()
    assert watcher.quiet == [False, True, False]
    sent = list(zip(watcher.received, watcher.metadata, strict=True))
    assert sent[0] == sent[2] != sent[1]


@pytest.mark.parametrize("flags", [flag_set(flag("a", {"on": 1})), many(1)], ids=["few", "many"])
async def test_a_client_that_came_while_two_were_stale_is_sent_the_rest_when_one_is_not(
    flags: FlagSet,
) -> None:
    store = Store(sources=("one", "two"))
    swap(store, flags, now=NOW, source="one")
    swap(store, flag_set(flag("b", {"on": 1})), now=NOW, source="two")
    for name in ("one", "two"):
        fail(store, "gone", NOW, name)
    watcher = Watcher(StoreBackend(store, {}))
    await settle()
    confirm(store, NOW, "two")
    await settle()
    assert watcher.quiet == [False, False]
    assert ["metadata" in flags["b"] for flags in watcher.received] == [True, False]


async def test_a_change_that_waits_is_not_silenced_by_staleness() -> None:
    store, _, watcher = await start_encoding()
    swap(store, many(1), now=NOW)
    fail(store, "gone", NOW)
    watcher.hold.set()
    await settle()
    assert (watcher.numbers[-1], watcher.quiet[-1]) == (1, False)
