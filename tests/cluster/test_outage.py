"""A minute without an API server, in which flags change: what clients are answered all the while, and how all
of it ends.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import CacheType, ResolverType

from tests.cluster.controllers import controller
from tests.cluster.fleets import followed_source, wait, wait_served
from tests.cluster.patience import within
from tests.cluster.pods import PodProcess, pods
from tests.cluster.proxies import ProxyProcess, proxy
from tests.cluster.spines import Spine, spine_in
from tests.worlds.objects import condition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from openfeature.client import OpenFeatureClient

    from tests.cluster.plane import Plane

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COMMITS, PAUSE = 6, 10.0
MINUTE = COMMITS * PAUSE
NOTHING = -1
WATCHED = 'flagstaff_watch_connected{kind="featureflagconfigurations"}'
AGE = 'flagstaff_watch_age_seconds{kind="featureflagconfigurations"}'


def numbered_flags(number: int) -> str:
    """Flags of which one is that number."""
    flag = {"state": "ENABLED", "variants": {"now": number}, "defaultVariant": "now"}
    return json.dumps({"flags": {"number": flag}})


class Outage:
    """A spine whose source looks by itself, a proxy, evaluators, and a stock client of each that writes down
    what it is answered.
    """

    def __init__(self, spine: Spine, delivering: ProxyProcess, clients: list[OpenFeatureClient]) -> None:
        self.spine, self.delivering = spine, delivering
        self._clients = clients
        self.answers: list[list[int]] = [[] for _ in clients]

    def ask(self) -> list[int]:
        """Every client once."""
        for client, answers in zip(self._clients, self.answers, strict=True):
            answers.append(client.get_integer_value("number", NOTHING))
        return [each[-1] for each in self.answers]

    def ask_for(self, seconds: float) -> None:
        """Again and again."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.ask()
            time.sleep(0.02)


@contextlib.contextmanager
def stock(pod: PodProcess) -> Iterator[OpenFeatureClient]:
    """A client that asks the evaluator each time."""
    provider = FlagdProvider(
        host="127.0.0.1",
        port=pod.port("grpc"),
        resolver_type=ResolverType.RPC,
        cache=CacheType.DISABLED,
        # By default half a second, which a busy machine may take.
        deadline_ms=10_000,
    )
    domain = f"{pod.namespace}-{pod.name}"
    api.set_provider_and_wait(provider, domain=domain)
    try:
        yield api.get_client(domain=domain)
    finally:
        provider.shutdown()


@pytest.fixture
def world(spare: Plane, spare_namespace: str, tmp_path: Path) -> Iterator[Outage]:
    # Without it there are no Pods, and after an outage the controller-manager takes a minute to make it.
    spare.kubectl("create", "serviceaccount", "default", "-n", spare_namespace, check=False)
    with contextlib.ExitStack() as stack:
        spine = stack.enter_context(spine_in(spare, spare_namespace, tmp_path))
        spine.patch("flagsource", {"spec": {"interval": "2s"}})
        spine.repository.commit("number 0", flags__json=numbered_flags(0))
        stack.enter_context(controller(spare, tmp_path / "a"))
        delivering = stack.enter_context(proxy(spare, tmp_path / "proxy"))
        source = followed_source(delivering.target, spine.name)
        fleet = stack.enter_context(pods(spare, spine.name, source, tmp_path / "pods", "a", "b"))
        clients = [stack.enter_context(stock(each)) for each in fleet]
        found = Outage(spine, delivering, clients)
        within(lambda: found.ask() == [0, 0])
        wait_served(spine, "2/2")
        found.answers = [[] for _ in clients]
        yield found


@contextlib.contextmanager
def freeze(plane: Plane) -> Iterator[None]:
    """Nothing is answered, and nothing is cut."""
    plane.send("kube-apiserver", signal.SIGSTOP)
    try:
        yield
    finally:
        plane.send("kube-apiserver", signal.SIGCONT)
        plane.wait_ready()


@contextlib.contextmanager
def kill(plane: Plane) -> Iterator[None]:
    """Everything is cut, and nobody listens."""
    plane.end("kube-apiserver", signal.SIGKILL)
    try:
        yield
    finally:
        plane.run("kube-apiserver")
        plane.wait_ready()


@pytest.mark.parametrize("without", [freeze, kill], ids=["frozen", "killed"])
def test_a_minute_without_the_api_server_costs_no_right_answer_and_no_newest_value(
    spare: Plane, world: Outage, without: Callable[[Plane], AbstractContextManager[None]]
) -> None:
    commit = ""
    with without(spare):
        for number in range(1, COMMITS + 1):
            commit = world.spine.repository.commit(f"number {number}", flags__json=numbered_flags(number))
            world.ask_for(PAUSE)
        assert {*world.answers[0], *world.answers[1]} == {0}
        serves_and_gives_its_age(world.delivering)
    within(lambda: world.ask() == [COMMITS] * 2, world.ask)
    for answers in world.answers:
        assert all(before <= after for before, after in pairwise(answers)), answers
    assert wait(world.spine, "flagset/flags", commit)[0] == 0
    found = wait_served(world.spine, "2/2")
    assert condition(found, "Propagated")["reason"] == "Served"
    assert "laggards" not in found["status"]
    within(lambda: world.delivering.metric(WATCHED) == 1 and world.delivering.metric(AGE) < MINUTE)


def serves_and_gives_its_age(delivering: ProxyProcess) -> None:
    """It serves, and says since when it has received no change."""
    status, page = delivering.readyz()
    assert (status, page["ready"]) == (200, True)
    assert page["ageSeconds"] >= MINUTE - 1
    assert not any(each["connected"] for each in page["watches"])
    assert (delivering.metric(WATCHED), delivering.metric(AGE) >= MINUTE - 1) == (0, True)
