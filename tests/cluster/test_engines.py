"""What every engine reports of a real API server, in the same words: kopf's watches and a Reflector."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from controller.api.kinds import FLAG_SET
from controller.kube.client import Cluster
from controller.kube.kopf_watches import KindLists, KopfEngine
from controller.kube.reflector import WatchScope, reflectors_of
from controller.runtime.cache import Cache
from controller.runtime.informer import Informer, transforms_of
from controller.runtime.watch_health import WatchHealth
from tests.cluster.api import Api, path_of
from tests.waiting import until
from tests.worlds.objects import flag_set

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from controller.runtime.informer import Engine
    from tests.cluster.plane import Plane

    Make = Callable[[Cluster, Informer, WatchHealth, str], Engine]


def kopf(cluster: Cluster, informer: Informer, health: WatchHealth, namespace: str) -> Engine:
    lists = KindLists(informer, cluster, (FLAG_SET,), (namespace,))
    return KopfEngine(informer, lists, health, lambda _type: None)


def reflector(cluster: Cluster, informer: Informer, health: WatchHealth, namespace: str) -> Engine:
    (one,) = reflectors_of(cluster.api, informer, [WatchScope(FLAG_SET, namespace)], health)
    return one


@contextlib.asynccontextmanager
async def running(engine: Engine) -> AsyncIterator[None]:
    task = asyncio.create_task(engine.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@dataclass
class FlagSets:
    """Those of a namespace, as users write them."""

    api: Api
    namespace: str

    def put(self, name: str, target: str) -> None:
        self.api.apply(self.namespace, flag_set(name=name, target={"name": target}))

    def delete(self, name: str) -> None:
        self.api.ask("DELETE", path_of("flagset", self.namespace, name))


# kopf leaves the connections of a loop that it stopped to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("make", [kopf, reflector], ids=lambda make: make.__name__)
async def test_an_engine_reports_what_is_there_what_changes_and_what_is_deleted_also_while_it_is_cut_off(
    cluster: Plane, namespace: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    written, health = FlagSets(Api(cluster), namespace), WatchHealth(time.monotonic)
    informer = Informer(Cache(), transforms_of([FLAG_SET]))
    client = await Cluster.connect(str(cluster.kubeconfig))
    engine = make(client, informer, health, namespace)

    def known() -> dict[str, str]:
        return {one.name: one.spec["target"]["name"] for one in informer.store}

    written.put("before", "a")
    written.put("lost", "a")
    async with running(engine):
        await informer.wait_listed(("FlagSet",), (namespace,))
        assert known() == {"before": "a", "lost": "a"}
        written.put("later", "a")
        await until(lambda: known() == {"before": "a", "lost": "a", "later": "a"})
        written.put("later", "b")
        written.delete("before")
        await until(lambda: known() == {"lost": "a", "later": "b"})
        report = health.of("flagsets")
        assert report is not None
        assert (report.connected, report.is_stale) == (True, False)
    written.delete("lost")
    async with running(engine):
        await until(lambda: known() == {"later": "b"})
    await client.close()
