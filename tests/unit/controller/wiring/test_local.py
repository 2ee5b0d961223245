from __future__ import annotations

import asyncio
import io
import socket
from typing import TYPE_CHECKING

import pytest

from controller.cli.report import TextReport
from controller.wiring.local import evaluator_settings, open_local
from controller.wiring.pipeline import LocalOptions, build_once, open_pipeline
from tests.clients.asking import served
from tests.clients.up import banner
from tests.git_http import command_lines
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_pass_that_is_cancelled_while_a_remote_is_silent_leaves_no_program_behind(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        async with open_pipeline(LocalOptions(url, state_dir=tmp_path)) as pipeline:
            asked = asyncio.create_task(pipeline.advance())
            connection, _ = await asyncio.to_thread(silent.accept)
            asked.cancel()
            with connection, pytest.raises(asyncio.CancelledError):
                await asked
    assert not [line for line in await asyncio.to_thread(lambda: [*command_lines()]) if url in line]


async def test_the_last_good_flags_are_served_as_soon_as_the_ports_are_open(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(flags__json=banner("party"))
    options = LocalOptions(str(repository.path), state_dir=tmp_path / "state")
    await build_once(options)
    free = dict.fromkeys(("port", "sync_port", "ofrep_port", "management_port"), 0)
    settings = evaluator_settings(host="127.0.0.1", **free)
    async with open_local(options, settings, lambda _: None) as (_, ports):
        assert await asyncio.to_thread(served, ports.ofrep) == "Hooray"


async def test_a_problem_names_who_last_changed_its_line_not_who_committed_last(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    culprit = repository.commit("break it", flags__json='{"flags": {\n"a": {"state": "ON"}\n}}')
    repository.commit("change another file", readme__md="x")
    async with open_pipeline(LocalOptions(str(repository.path))) as pipeline:
        built = await pipeline.advance()
        assert built is not None
        built = await pipeline.blamed(built)
    said = io.StringIO()
    TextReport(said).revision(built)
    line = f"    last changed in {culprit[:12]} 'break it' by Ada <ada@example.com>"
    assert line in said.getvalue().splitlines()
