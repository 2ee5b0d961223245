"""Two proxies, one of which receives changes late: each serves what it knows, the object tells of the lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.clients.asking import served_value as value
from tests.cluster.fleets import followed_source, wait, wait_served
from tests.cluster.patience import within
from tests.cluster.pods import PodProcess, pods
from tests.cluster.proxies import ProxyProcess, proxy
from tests.cluster.relay import relay
from tests.cluster.views import View, view
from tests.worlds.flags import flags
from tests.worlds.objects import condition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane
    from tests.cluster.spines import Spine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


class Pair(NamedTuple):
    """A proxy that sees the cluster at once, one that sees it through `view`, and two evaluators
    behind each.
    """

    view: View
    ahead: list[PodProcess]
    behind: list[PodProcess]

    def values(self) -> list[bool]:
        """What each serves now."""
        return [value(each.port("ofrep")) for each in (*self.ahead, *self.behind)]


@pytest.fixture
def late(cluster: Plane, tmp_path: Path) -> Iterator[tuple[ProxyProcess, View]]:
    with view(cluster) as held, proxy(cluster, tmp_path, name="late", via=held.url) as made:
        yield made, held


@pytest.fixture
def pair(
    cluster: Plane, spine: Spine, delivering: ProxyProcess, late: tuple[ProxyProcess, View], tmp_path: Path
) -> Iterator[Pair]:  # fmt: skip
    process, held = late
    sources = [followed_source(each.target, spine.name) for each in (delivering, process)]
    with (
        pods(cluster, spine.name, sources[0], tmp_path / "pods", "a1", "a2") as ahead,
        pods(cluster, spine.name, sources[1], tmp_path / "pods", "b1", "b2") as behind,
    ):
        wait_served(spine, "4/4")
        yield Pair(held, ahead, behind)


@pytest.mark.parametrize("reason", ["Progressing", "Lagging"])
def test_an_evaluator_behind_a_late_proxy_is_named_until_the_proxy_receives_the_change(
    spine: Spine, pair: Pair, reason: str
) -> None:
    first = spine.get("flagset")["status"]["lastAppliedRevision"]
    pair.view.hold()
    commit = spine.push(flags__json=flags(banner="off"))
    within(lambda: pair.values() == [False, False, True, True])
    wait_served(spine, "2/4")
    found = spine.wait("ffc", lambda it: condition(it, "Propagated")["reason"] == reason)
    assert (found["status"]["served"], found["status"]["total"]) == ("2/4", 4)
    assert condition(found, "Propagated")["status"] == "False"
    named = {(each["name"], each["serves"]) for each in found["status"]["laggards"]}
    assert named == {(f"{spine.name}/{each.name}", first) for each in pair.behind}
    code, text = wait(spine, "ffc/flags", commit, "--timeout", "1s")
    assert (code, f"{spine.name}/b1" in text) == (1, True)
    assert pair.values() == [False, False, True, True]

    pair.view.release()
    within(lambda: pair.values() == [False] * 4)
    wait_settled(spine, "4/4")
    assert wait(spine, "ffc/flags", commit)[0] == 0


def wait_settled(spine: Spine, count: str) -> None:
    """So many serve it, and nobody is named any more."""
    found = wait_served(spine, count)
    assert "laggards" not in found["status"]
    assert condition(found, "Propagated")["reason"] == "Served"


def test_a_member_that_moves_to_a_late_proxy_counts_once_and_where_it_is(
    cluster: Plane, spine: Spine, delivering: ProxyProcess, late: tuple[ProxyProcess, View], tmp_path: Path
) -> None:  # fmt: skip
    process, held = late
    with relay(delivering.sync) as service:
        source = followed_source(f"127.0.0.1:{service.port}", spine.name)
        with pods(cluster, spine.name, source, tmp_path / "pods", "mover") as [mover]:
            wait_served(spine, "1/1")
            held.hold()
            spine.push(flags__json=flags(banner="off"))
            within(lambda: value(mover.port("ofrep")) is False)
            wait_settled(spine, "1/1")

            service.target = process.sync
            service.cut()
            service.mend()
            found = wait_served(spine, "0/1")
            assert [each["name"] for each in found["status"]["laggards"]] == [f"{spine.name}/mover"]
            # What its proxy knows is what it serves, also where it has seen newer.
            within(lambda: value(mover.port("ofrep")) is True)
            held.release()
            wait_settled(spine, "1/1")
            assert value(mover.port("ofrep")) is False
