"""Where the client asks, how long it waits to ask again, and how it reads answers."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.kinds import FLAG_SET
from controller.kube import requests
from controller.kube.answers import (
    ApiResponse,
    date,
    path_of,
    paths_of_all,
    require_good,
    retry_after,
    service_account_user,
)
from controller.kube.client import Cluster
from controller.kube.reflector import Reflector, WatchScope
from controller.kube.requests import MANY, Requests, decode_values
from controller.runtime.cache import Cache
from controller.runtime.informer import Informer, transforms_of
from controller.runtime.setbacks import Stalled
from tests.stub_api import stub_api
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

PATH = "/apis/flagstaff.dev/v1beta1/flagsets"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def test_retry_after_is_obeyed_by_a_request(tmp_path: Path) -> None:
    clock = asyncio.get_running_loop().time
    with stub_api(tmp_path, "429") as stub:
        cluster = await Cluster.connect(str(stub.kubeconfig))
        asking = asyncio.create_task(cluster.everywhere("flagstaff.dev/v1beta1", "flagsets", ()))
        await until(lambda: stub.count("GET", PATH, 429) == 1)
        refused = clock()
        # The answer is on its way.
        await asyncio.sleep(0.3)
        await asyncio.to_thread(stub.refuse, "")
        assert await asking == []
        assert clock() - refused > 0.9
        assert stub.count("GET", PATH, 429) == 1
        await cluster.close()


async def test_retry_after_is_obeyed_by_a_watch(tmp_path: Path) -> None:
    clock = asyncio.get_running_loop().time
    with stub_api(tmp_path, "429") as stub:
        cluster = await Cluster.connect(str(stub.kubeconfig))
        informer = Informer(Cache(), transforms_of([FLAG_SET]))
        reflector = Reflector(cluster.api, WatchScope(FLAG_SET), informer, clock=clock, random=lambda: 0.0)
        watching = asyncio.create_task(reflector.run())
        await until(lambda: stub.count("GET", PATH, 429) == 1)
        first = clock()
        await until(lambda: stub.count("GET", PATH, 429) == 2)
        assert clock() - first > 0.9
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await cluster.close()


@pytest.mark.parametrize("drawn", [0.0, 1.0])
async def test_requests_refused_at_once_are_repeated_at_different_times(
    monkeypatch: pytest.MonkeyPatch, drawn: float
) -> None:
    paused: list[float] = []

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    async def once(*_: Any) -> ApiResponse:
        return ApiResponse(503, {}, 2.0 if len(paused) == 1 else 0.0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asking = Requests(None, lambda: drawn)  # type: ignore[arg-type]  # `once` alone would need it
    monkeypatch.setattr(asking, "once", once)
    await asking.ask("GET", PATH)
    assert paused == pytest.approx([seconds * (1 + requests.JITTER * drawn) for seconds in (0.25, 2.0, 1.0)])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3", 3.0), (" 3 ", 3.0), ("86400", 30.0), ("", 0.0), ("-1", 0.0), ("1.5", 0.0),
     ("Sun, 06 Nov 1994", 0.0)],
)  # fmt: skip
def test_the_seconds_that_are_asked_for_are_bounded(text: str, seconds: float) -> None:
    assert retry_after({"Retry-After": text}) == seconds


@pytest.mark.parametrize(
    "message",
    [
        "etcdserver: request is too large",
        "rpc error: code = ResourceExhausted desc = trying to send message larger than max (3 vs. 2)",
    ],
)
def test_an_object_that_is_too_large_for_etcd_waits_for_a_change(message: str) -> None:
    with pytest.raises(Stalled, match="FlagShard a is too large for the cluster to store") as raised:
        require_good(ApiResponse(500, {"message": message}), "FlagShard", "a")
    assert raised.value.reason == "InvalidObject"


def test_a_date_of_numbers_without_bound_is_none() -> None:
    assert date({"Date": f"Thu, {10**20} Jan 2026 00:00:00 GMT"}) is None


@pytest.mark.parametrize(("keys", "in_a_thread"), [(MANY - 1, False), (MANY, True)])
async def test_the_values_of_many_keys_are_decoded_beside_the_event_loop(
    keys: int, *, in_a_thread: bool
) -> None:
    threads = set()

    def decode(text: str) -> bytes:
        threads.add(threading.get_ident())
        return text.encode()

    data = {f"key-{number}": "value" for number in range(keys)}
    assert await decode_values(data, decode) == dict.fromkeys(data, b"value")
    assert (threading.get_ident() not in threads) is in_a_thread


@pytest.mark.parametrize(
    "name", [".", "..", "a/b", "../../other/secrets/x", "a?b", "a%2fb", "A", "-a", "a\n", "a" * 254]
)
def test_what_is_no_name_leads_nowhere(name: str) -> None:
    with pytest.raises(Stalled, match="not a valid object name"):
        path_of("v1", "Secret", "shop", name)
    with pytest.raises(Stalled):
        path_of("v1", "Secret", name)


def test_all_of_a_kind_are_in_each_namespace_or_everywhere() -> None:
    assert paths_of_all("v1", "secrets", ()) == ["/api/v1/secrets"]
    assert len(paths_of_all("a.dev/v1", "things", ("a", "b"))) == 2


def test_a_service_account_is_a_user() -> None:
    assert service_account_user("shop", "flags") == "system:serviceaccount:shop:flags"


@pytest.mark.parametrize(
    ("namespace", "name"), [("shop", "a:b"), ("a:b", "c"), ("shop", ""), ("shop", "a\r\nX: y")]
)
def test_what_is_no_service_account_is_no_user(namespace: str, name: str) -> None:
    with pytest.raises(Stalled, match="no service account can have this name"):
        service_account_user(namespace, name)
