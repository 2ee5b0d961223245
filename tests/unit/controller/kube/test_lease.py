"""The Lease on a small server that speaks the API server's Leases, and notes what it is asked."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import time_machine
from aiohttp import web

from controller.api.kinds import POD
from controller.api.meta import ObjectKey, Resource
from controller.kube.lease import Lease, LeaseTiming
from controller.runtime.clock import now
from controller.runtime.process import Role
from controller.runtime.setbacks import Failed
from tests.unit.controller.kube.servers import open_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from controller.kube.client import Cluster


@dataclass
class Leases:
    """One Lease at most."""

    lease: dict[str, Any] | None = None
    asked: list[str] = field(default_factory=list)
    """Verbs, in order."""
    forbids: bool = False
    """None may be made."""
    page: str = ""
    """What somebody in between answers instead."""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.method)
        if self.page:
            return web.Response(text=self.page, content_type="application/json")
        if request.method == "POST" and self.forbids:
            return web.json_response({"kind": "Status", "code": 403}, status=403)
        if request.method == "POST" and self.lease is None:
            self.lease = await request.json()
        elif self.lease is None:
            body = {"kind": "Status", "status": "Failure", "code": 404}
            return web.json_response(body, status=404)
        elif request.method == "PUT":
            written = await request.json()
            if version(written) != version(self.lease):
                body = {"kind": "Status", "status": "Failure", "code": 409}
                return web.json_response(body, status=409)
            self.lease = written
            self.lease["metadata"]["resourceVersion"] = str(int(version(written)) + 1)
        return web.json_response(self.lease)

    def take_requests(self) -> list[str]:
        """What was asked since this was asked last."""
        asked, self.asked = self.asked, []
        return asked


@dataclass
class Periods:
    """Work of a leader that lasts until it is cancelled."""

    began: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def work(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


def version(lease: dict[str, Any]) -> str:
    """How often it was replaced."""
    return str(lease["metadata"].get("resourceVersion", "0"))


@pytest.fixture
async def leases() -> Leases:
    return Leases()


@pytest.fixture
async def cluster(leases: Leases, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with open_client(leases.answer, tmp_path) as found:
        yield found


def lease(cluster: Cluster, identity: str = "a") -> Lease:
    return Lease(cluster, "flagstaff-system", "controller", identity)


async def ours(lease: Lease) -> bool:
    """Whether it is, after one look."""
    return await lease.take(lease.timing.renew_within) == lease.identity


async def test_a_lease_that_is_not_there_is_made_and_taken(cluster: Cluster, leases: Leases) -> None:
    assert await ours(lease(cluster))
    assert leases.lease is not None
    assert leases.lease["spec"]["holderIdentity"] == "a"


async def test_to_renew_it_costs_one_write(cluster: Cluster, leases: Leases) -> None:
    mine = lease(cluster)
    assert await ours(mine)
    leases.take_requests()
    assert await ours(mine)
    assert await ours(mine)
    assert leases.take_requests() == ["PUT", "PUT"]


async def test_a_renewal_changes_its_time_alone(cluster: Cluster, leases: Leases) -> None:
    mine = replace(lease(cluster), now=lambda: datetime(2026, 1, 31, 12, tzinfo=UTC))
    assert await ours(mine)
    assert leases.lease is not None
    before = leases.lease["spec"]
    assert await ours(mine)
    assert leases.lease["spec"] == {**before, "renewTime": "2026-01-31T12:00:00.000000Z"}


async def test_each_renewal_says_again_what_the_leader_says_of_itself(
    cluster: Cluster, leases: Leases
) -> None:
    mine = replace(lease(cluster), labels={"part": "x"}, annotations={"selects": "a=1"})
    assert await ours(mine)
    assert leases.lease is not None
    leases.lease["metadata"] |= {"resourceVersion": "7", "labels": {"of": "another"}, "annotations": None}
    assert await ours(mine)
    said = leases.lease["metadata"]
    assert (said["labels"], said["annotations"]) == ({"of": "another", "part": "x"}, {"selects": "a=1"})


async def test_one_that_another_took_since_is_not_renewed(cluster: Cluster, leases: Leases) -> None:
    mine = lease(cluster)
    for _ in range(2):
        assert await ours(mine)
    assert leases.lease is not None
    taken = {**leases.lease["spec"], "holderIdentity": "b", "renewTime": "2026-01-31T12:00:00.000000Z"}
    leases.lease = {"metadata": {"name": "controller", "resourceVersion": "7"}, "spec": taken}
    assert not await ours(mine)
    assert leases.lease["spec"] == taken


async def test_one_that_others_wrote_to_is_renewed_all_the_same(cluster: Cluster, leases: Leases) -> None:
    mine = lease(cluster)
    for _ in range(2):
        assert await ours(mine)
    assert leases.lease is not None
    leases.lease["metadata"] |= {"resourceVersion": "7", "labels": {"a": "b"}}
    assert await ours(mine)
    assert leases.lease["metadata"]["labels"] == {"a": "b"}
    assert leases.lease["spec"]["holderIdentity"] == "a"


async def test_a_standby_reads_it_once_a_look(cluster: Cluster, leases: Leases) -> None:
    assert await ours(lease(cluster))
    standby = lease(cluster, "b")
    leases.take_requests()
    assert not await ours(standby)
    assert not await ours(standby)
    assert leases.take_requests() == ["GET", "GET"]


async def test_one_that_is_anothers_is_not_taken(cluster: Cluster, leases: Leases) -> None:
    assert await ours(lease(cluster))
    assert not await ours(lease(cluster, "b"))
    assert leases.lease is not None
    assert leases.lease["spec"]["holderIdentity"] == "a"


async def test_one_whose_holder_is_silent_is_taken_after_its_duration(
    cluster: Cluster, leases: Leases
) -> None:
    assert await ours(lease(cluster))
    assert leases.lease is not None
    leases.lease["spec"]["leaseDurationSeconds"] = 1
    standby = lease(cluster, "b")
    assert not await ours(standby)
    await asyncio.sleep(1)
    assert await ours(standby)
    assert leases.lease["spec"]["holderIdentity"] == "b"
    assert leases.lease["spec"]["leaseTransitions"] == 1


@pytest.mark.parametrize("jump", [timedelta(days=100), timedelta(days=-100)])
async def test_a_wall_clock_that_jumps_takes_no_lease(
    cluster: Cluster, leases: Leases, jump: timedelta
) -> None:
    assert await ours(lease(cluster))
    standby = lease(cluster, "b")
    assert not await ours(standby)
    with time_machine.travel(now() + jump, tick=True):
        assert not await ours(standby)
    assert not await ours(standby)
    assert leases.lease is not None
    assert leases.lease["spec"]["holderIdentity"] == "a"


async def test_a_leader_stops_as_soon_as_it_sees_another_hold_the_lease(
    cluster: Cluster, leases: Leases
) -> None:
    working = Periods()
    mine = replace(lease(cluster), timing=LeaseTiming(renew=0.1))
    leading = asyncio.create_task(mine.lead(working.work))
    await working.began.wait()
    assert leases.lease is not None
    taken = {**leases.lease["spec"], "holderIdentity": "b"}
    leases.lease = {"metadata": {"name": "controller", "resourceVersion": "7"}, "spec": taken}
    async with asyncio.timeout(mine.timing.renew_within / 2):
        await working.ended.wait()
    assert not mine.holds()
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)


async def test_one_that_was_deleted_is_made_again(cluster: Cluster, leases: Leases) -> None:
    mine = lease(cluster)
    assert await ours(mine)
    leases.lease = None
    assert await ours(mine)
    assert leases.take_requests()[-2:] == ["GET", "POST"]


async def test_one_that_may_not_be_made_is_not_ours(
    cluster: Cluster, leases: Leases, caplog: pytest.LogCaptureFixture
) -> None:
    leases.forbids = True
    assert not await ours(lease(cluster))
    assert "the API server answers 403" in caplog.text


@pytest.mark.parametrize("page", ["<html>Sign in</html>", "[]", '{"spec": 7}'])
async def test_a_page_of_a_middlebox_is_no_lease_and_ends_no_leadership(
    cluster: Cluster, leases: Leases, page: str
) -> None:
    mine = lease(cluster)
    leases.page = page
    assert not await ours(mine)
    leases.page = ""
    assert await ours(mine)


async def test_a_leader_whose_loop_was_blocked_knows_at_once_that_it_may_lead_no_longer(
    cluster: Cluster, leases: Leases
) -> None:
    mine = replace(lease(cluster), timing=LeaseTiming(renew_within=0.3, renew=0.1))
    held: list[bool] = []

    async def work() -> None:
        held.append(mine.holds())
        time.sleep(mine.timing.renew_within)  # noqa: ASYNC251 - what no code of ours does
        held.append(mine.holds())

    await mine.lead(work)
    assert held == [True, False]
    assert leases.lease is not None


async def test_a_client_of_a_leader_writes_nothing_once_another_may_lead(
    cluster: Cluster, leases: Leases
) -> None:
    role = Role(leading=True)
    writer = cluster.with_leadership(role).impersonate("shop", "till")
    role.leading = False
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}
    key = ObjectKey("Pod", "b", "a")
    for write in (
        writer.apply(manifest, manager="us"),
        writer.delete("v1", "ConfigMap", "b", "a"),
        writer.patch_metadata(POD, key, labels={"a": "b"}),
        writer.write_status(Resource(key, "u", 1, "1"), {"phase": "Running"}),
    ):
        with pytest.raises(Failed) as refused:
            await write
        assert refused.value.reason == "NotLeading"
    assert leases.take_requests() == []
