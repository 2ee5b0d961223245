"""What an API server answers while it starts, restarts or is overloaded ends neither a controller nor a
proxy, and leaves neither of them working without watches.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cluster.patience import within
from tests.cluster.replica import run_replica
from tests.cluster.stubbed import Controller, Proxy
from tests.stub_api import stub_api
from tests.worlds.objects import configuration, flag_set

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.replica import Replica
    from tests.stub_api import StubApi

pytestmark = [pytest.mark.timeout(300)]

FAULTS: Final = ("503", "500", "403", "429", "401", "404", "reset", "tls", "page", "odd", "event")
SECONDS: Final = 2.0
"""Longer than a round of tries. Of kopf's own it was ten seconds: the statuses are what matters here."""
_FLAG_SETS: Final = "/apis/flagstaff.dev/v1beta1/namespaces/shop/flagsets"
_CONFIGURATIONS: Final = "/apis/core.openfeature.dev/v1beta1/namespaces/shop/featureflagconfigurations"


_NUMBERS = itertools.count()


def change_is_seen_by_the_controller(stub: StubApi) -> None:
    """A FlagSet that comes now has a status soon."""
    path = put(stub, _FLAG_SETS, flag_set(name=f"flags-{next(_NUMBERS)}", source="nowhere"))
    within(lambda: (stub.get(path).get("status") or {}).get("conditions"))


def change_is_seen_by_the_proxy(stub: StubApi, proxy: Proxy) -> None:
    """Each configuration that comes is one more object that it knows."""
    before = objects_known(proxy)
    put(stub, _CONFIGURATIONS, configuration(f"flags-{next(_NUMBERS)}", flagSpec={"flags": {}}))
    within(lambda: objects_known(proxy) == before + 1, proxy.log_text)


def put(stub: StubApi, kind: str, found: dict[str, Any]) -> str:
    """Write an object; its path."""
    found["metadata"]["namespace"] = "shop"
    path = f"{kind}/{found['metadata']['name']}"
    stub.put(path, found)
    return path


def objects_known(proxy: Proxy) -> float:
    found = re.search(r"^flagstaff_proxy_objects (\S+)$", proxy.metrics(), re.MULTILINE)
    return float(found[1]) if found else -1.0


def disconnected_kinds(replica: Replica) -> list[str]:
    """Kinds of which `/readyz` says that no changes are received."""
    page = json.loads(replica.ask("/readyz")[1])
    return [each["kind"] for each in page["watches"] if not each["connected"]]


def lasts(replica: Replica, seconds: float) -> None:
    """It is still there after so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert not replica.has_ended(), replica.log_text()[-5000:]
        time.sleep(0.1)


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[StubApi]:
    with stub_api(tmp_path / "stub") as found:
        yield found


@pytest.mark.long
@pytest.mark.parametrize("fault", ["403", "401", "odd"])
def test_a_controller_that_starts_before_its_api_server_works_once_that_answers(
    tmp_path: Path, stub: StubApi, fault: str
) -> None:
    stub.refuse(fault)
    with run_replica(Controller(tmp_path, stub)) as replica:
        lasts(replica, SECONDS)
        stub.refuse("")
        change_is_seen_by_the_controller(stub)
        assert replica.end() == 0


@pytest.mark.slow
def test_a_controller_outlives_every_refusal_of_its_api_server(tmp_path: Path, stub: StubApi) -> None:
    with run_replica(Controller(tmp_path, stub)) as replica:
        change_is_seen_by_the_controller(stub)
        for fault in FAULTS:
            stub.refuse(fault)
            lasts(replica, SECONDS)
            stub.refuse("")
            change_is_seen_by_the_controller(stub)
            within(lambda: not disconnected_kinds(replica), replica.log_text)
        assert replica.end() == 0


@pytest.mark.long
@pytest.mark.parametrize("fault", ["404", "tls"])
def test_a_proxy_that_starts_before_its_api_server_works_once_that_answers(
    tmp_path: Path, stub: StubApi, fault: str
) -> None:
    stub.refuse(fault)
    with run_replica(Proxy(tmp_path, stub)) as replica:
        lasts(replica, SECONDS)
        stub.refuse("")
        within(lambda: objects_known(replica) >= 0)
        change_is_seen_by_the_proxy(stub, replica)
        assert replica.end() == 0


@pytest.mark.slow
def test_a_proxy_outlives_every_refusal_of_its_api_server(tmp_path: Path, stub: StubApi) -> None:
    with run_replica(Proxy(tmp_path, stub)) as replica:
        within(lambda: not disconnected_kinds(replica), replica.log_text)
        for fault in FAULTS:
            stub.refuse(fault)
            lasts(replica, SECONDS)
            stub.refuse("")
            within(lambda: not disconnected_kinds(replica), replica.log_text)
            change_is_seen_by_the_proxy(stub, replica)
        assert replica.end() == 0


def test_a_watch_that_is_cut_shows_in_readyz_and_in_metrics(tmp_path: Path, stub: StubApi) -> None:
    with run_replica(Controller(tmp_path, stub)) as replica:
        change_is_seen_by_the_controller(stub)
        # A first list may show the change before the watch begins, which then has no age yet.
        within(
            lambda: 'flagstaff_watch_connected{kind="flagsets"} 1.0' in replica.metrics(), replica.log_text
        )
        stub.refuse("503")
        within(lambda: "flagsets" in disconnected_kinds(replica), replica.log_text)
        assert 'flagstaff_watch_connected{kind="flagsets"} 0.0' in replica.metrics()
        assert 'flagstaff_watch_age_seconds{kind="flagsets"}' in replica.metrics()
        stub.refuse("")
        within(lambda: not disconnected_kinds(replica), replica.log_text)
        assert 'flagstaff_watch_connected{kind="flagsets"} 1.0' in replica.metrics()


@pytest.mark.long
def test_an_outage_is_one_line_of_the_log_and_not_one_a_kind_and_try(tmp_path: Path, stub: StubApi) -> None:
    with run_replica(Controller(tmp_path, stub)) as replica:
        change_is_seen_by_the_controller(stub)
        stub.refuse("503")
        lasts(replica, SECONDS)
        stub.refuse("")
        within(lambda: not disconnected_kinds(replica), replica.log_text)
        lines = [
            line
            for line in replica.log_text().splitlines()
            if "no changes arrive from the API server" in line
        ]
        assert len([line for line in lines if "answers 503" in line]) == 1
        assert "Request attempt" not in replica.log_text()
