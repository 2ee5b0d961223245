"""Repositories that are small to fetch and large to read cost a controller neither its memory nor the sources
beside them, and their statuses name the limits.
"""

from __future__ import annotations

import re
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.bombs import BOMBS, objects
from tests.clients.attacks import peak_megabytes, resident_megabytes
from tests.cluster.objects import REQUESTED_AT
from tests.cluster.patience import within
from tests.cluster.replica import run_replica
from tests.cluster.stubbed import Controller
from tests.git_http import git_server
from tests.repositories import Repository
from tests.stub_api import stub_api
from tests.worlds.flags import flags
from tests.worlds.objects import condition, flag_set, flag_source

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stub_api import StubApi

MOST_MEGABYTES: Final = 64
LOOPBACK: Final = ("--denied-source-hosts", "169.254.0.0/16", "--artifact-hosts", "127.0.0.1")
PATIENCE: Final = 180.0
_PATH: Final = "/apis/flagstaff.dev/v1beta1/namespaces/shop/{}s/{}"


def put(stub: StubApi, manifest: dict[str, Any]) -> None:
    metadata = {**manifest["metadata"], "namespace": "shop"}
    stub.put(_PATH.format(manifest["kind"].lower(), metadata["name"]), {**manifest, "metadata": metadata})


def poke(stub: StubApi) -> None:
    """Ask for a look at the sound source."""
    known = stub.get(_PATH.format("flagsource", "flags"))
    put(
        stub, {**known, "metadata": {**known["metadata"], "annotations": {REQUESTED_AT: str(time.time_ns())}}}
    )


def reaches(stub: StubApi, commit: str) -> bool:
    """Whether the sound flag set is built of that commit."""
    status = stub.get(_PATH.format("flagset", "flags")).get("status") or {}
    return commit in str(status.get("lastAppliedRevision"))


def unreported_limits(stub: StubApi) -> dict[str, object]:
    """Repositories whose status does not name their limit, with what it says."""
    found: dict[str, object] = {}
    for name, (_, kind, limit) in BOMBS.items():
        ready = condition(stub.get(_PATH.format(kind, name)), "Ready")
        if not re.search(limit, str(ready.get("message"))):
            found[name] = ready
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_bombs_cost_neither_memory_nor_the_source_beside_them(tmp_path: Path) -> None:
    root = tmp_path / "git"
    sound = Repository(root / "flags")
    first = sound.commit("first", flags__json=flags(hello="on"))
    for name, (make, _, _) in BOMBS.items():
        make(Repository(root / name))
    with (
        git_server(root) as server,
        stub_api(tmp_path / "stub") as stub,
        run_replica(Controller(tmp_path, stub, *LOOPBACK)) as controller,
    ):
        put(stub, flag_source(f"{server.url}/flags/.git"))
        put(stub, flag_set())
        within(partial(reaches, stub, first), controller.log_text)
        resident = resident_megabytes(controller.pid)
        for each in objects(server.url):
            put(stub, each)
        until = time.monotonic() + PATIENCE
        while missing := unreported_limits(stub):
            assert time.monotonic() < until, missing
            commit = sound.commit("next", flags__json=flags(**{f"at-{time.time_ns()}": "on"}))
            poke(stub)
            within(partial(reaches, stub, commit), controller.log_text)
        assert peak_megabytes(controller.pid) - resident < MOST_MEGABYTES
