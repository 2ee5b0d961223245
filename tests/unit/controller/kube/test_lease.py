"""The Lease on a small server that speaks the API server's Leases, and notes what it is asked."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from controller.kube.client import Cluster
from controller.kube.lease import RENEW_WITHIN, Lease

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


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
            self.lease = await request.json()
        return web.json_response(self.lease)

    def taken(self) -> list[str]:
        """What was asked since this was asked last."""
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
async def leases() -> Leases:
    return Leases()


@pytest.fixture
async def cluster(leases: Leases, tmp_path: Path) -> AsyncIterator[Cluster]:
    application = web.Application()
    application.router.add_route("*", "/{tail:.*}", leases.answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}], "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    (tmp_path / "config").write_text(json.dumps(config))
    made = await Cluster.connect(
        str(tmp_path / "config"),
        wrote=lambda *_: None,
    )
    yield made
    await made.close()
    await runner.cleanup()


def lease(cluster: Cluster, identity: str = "a") -> Lease:
    return Lease(cluster, "flagstaff-system", "controller", identity)


async def test_a_lease_that_is_not_there_is_made_and_taken(cluster: Cluster, leases: Leases) -> None:
    assert await lease(cluster)._ours(RENEW_WITHIN)
    assert leases.lease is not None
    assert leases.lease["spec"]["holderIdentity"] == "a"


async def test_to_renew_it_costs_one_read_and_one_write(cluster: Cluster, leases: Leases) -> None:
    mine = lease(cluster)
    assert await mine._ours(RENEW_WITHIN)
    leases.taken()
    assert await mine._ours(RENEW_WITHIN)
    assert leases.taken() == ["GET", "PUT"]


async def test_one_that_is_anothers_is_not_taken(cluster: Cluster, leases: Leases) -> None:
    assert await lease(cluster)._ours(RENEW_WITHIN)
    assert not await lease(cluster, "b")._ours(RENEW_WITHIN)
    assert leases.lease is not None
    assert leases.lease["spec"]["holderIdentity"] == "a"


async def test_one_that_was_deleted_is_made_again(cluster: Cluster, leases: Leases) -> None:
    mine = lease(cluster)
    assert await mine._ours(RENEW_WITHIN)
    leases.lease = None
    assert await mine._ours(RENEW_WITHIN)
    assert leases.taken()[-2:] == ["GET", "POST"]


async def test_one_that_may_not_be_made_is_not_ours(
    cluster: Cluster, leases: Leases, caplog: pytest.LogCaptureFixture
) -> None:
    leases.forbids = True
    assert not await lease(cluster)._ours(RENEW_WITHIN)
    assert "the API server answers 403" in caplog.text


@pytest.mark.parametrize("page", ["<html>Sign in</html>", "[]", '{"spec": 7}'])
async def test_a_page_of_a_middlebox_is_no_lease_and_ends_no_leadership(
    cluster: Cluster, leases: Leases, page: str
) -> None:
    mine = lease(cluster)
    leases.page = page
    assert not await mine._ours(RENEW_WITHIN)
    leases.page = ""
    assert await mine._ours(RENEW_WITHIN)
