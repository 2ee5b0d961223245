"""`flagstaff up --worktree`: files as they are on disk, followed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from controller.cli import main
from controller.local.local_mode import evaluator_settings, open_local
from controller.local.local_options import LocalOptions
from controller.local.local_stages import build_once
from controller.runtime.setbacks import Setback
from tests.clients.asking import served_value
from tests.clients.up import banner
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path


async def test_uncommitted_change_is_served_at_once_and_marked(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(flags__json=banner("plain"))
    free = dict.fromkeys(("port", "sync_port", "ofrep_port", "management_port"), 0)
    settings = evaluator_settings(host="127.0.0.1", **free)
    options = LocalOptions(str(repository.path), worktree=True, interval=3600.0)
    revisions: asyncio.Queue[str] = asyncio.Queue()

    def report(event: object) -> None:
        revisions.put_nowait(str(getattr(event, "revision", event)))

    async with open_local(options, settings, report) as (local, ports), asyncio.timeout(30):
        running = asyncio.create_task(local.run())
        try:
            first = await revisions.get()
            assert first.startswith("worktree@sha256:")
            repository.write("flags.json", banner("party"))
            while (second := await revisions.get()) == first:
                pass
            assert second.startswith("worktree@sha256:")
            assert await asyncio.to_thread(served_value, ports.ofrep) == "Hooray"
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_folder_that_is_no_repository_is_read_with_its_layers(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "flags.json").write_text(banner("party"))
    options = LocalOptions(str(tmp_path), paths=("base",), worktree=True)
    built = await build_once(options)
    assert built.composition.accepted
    assert (await build_once(options)).revision == built.revision


@pytest.mark.parametrize("source", ["https://git.example.com/flags.git", "."])
async def test_worktree_is_refused_for_what_is_not_on_disk_or_has_a_reference(source: str) -> None:
    options = LocalOptions(source, worktree=True, reference="main")
    with pytest.raises(Setback, match="--worktree reads the files of a folder on disk"):
        await build_once(options)


def test_bad_definition_on_disk_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "flags.json").write_text('{"flags": {"a": 1}}')
    assert main(["up", str(tmp_path), "--worktree", "--once"]) == 1
    assert "flags.json:1:17: error" in capsys.readouterr().out
