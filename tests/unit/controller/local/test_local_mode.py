from __future__ import annotations

import asyncio
import io
import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from controller.cli.up import TextReport
from controller.local.local_mode import evaluator_settings, open_local
from controller.local.local_options import LocalOptions
from controller.local.local_stages import build_once, open_stages
from controller.local.state import AppliedFile
from tests.clients.asking import served_value
from tests.clients.up import banner
from tests.git_http import command_lines
from tests.repositories import Repository
from tests.worlds.flagsets import flag

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_pass_that_is_cancelled_while_a_remote_is_silent_leaves_no_program_behind(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        asked = asyncio.create_task(build_once(LocalOptions(url, state_dir=tmp_path)))
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
        assert await asyncio.to_thread(served_value, ports.ofrep) == "Hooray"


async def test_a_reader_of_the_report_that_is_gone_ends_the_run_with_that_error(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(flags__json=banner("party"))
    free = dict.fromkeys(("port", "sync_port", "ofrep_port", "management_port"), 0)
    settings = evaluator_settings(host="127.0.0.1", **free)

    def ignore(_: object) -> None:
        raise BrokenPipeError

    async with open_local(LocalOptions(str(repository.path)), settings, ignore) as (local, _):
        with pytest.raises(BrokenPipeError):
            await local.run()


async def test_what_was_kept_and_is_not_what_was_applied_is_not_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(flags__json=banner("party"))
    options = LocalOptions(str(repository.path), state_dir=tmp_path / "state")
    await build_once(options)
    file = AppliedFile(tmp_path / "state")
    kept = file.load()
    assert kept is not None
    kept.objects[0]["spec"]["flagSpec"]["flags"]["banner"]["defaultVariant"] = "plain"
    file.save(kept.objects, kept.saved_at)
    async with open_stages(options) as stages:
        assert await stages.restore() is None
        assert list(stages.objects) == []
    assert "it is not served" in caplog.text


async def test_a_set_of_shards_is_kept_and_read_back_whole(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    flags = {f"f{number}": flag(metadata={"text": "x" * 20_000}) for number in range(60)}
    repository.commit(flags__json=json.dumps({"flags": flags}))
    options = LocalOptions(str(repository.path), state_dir=tmp_path / "state")
    built = await build_once(options)
    async with open_stages(options) as stages:
        saved = await stages.restore()
        assert len(stages.objects.of_kind("FlagShard")) > 1
    assert saved is not None
    assert saved.flag_set == built.composition.flag_set


def test_local_mode_loads_no_client_of_a_cluster(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(flags__json=banner("party"))
    script = f"""
import sys
from controller.cli import main
assert main(["up", {str(repository.path)!r}, "--once"]) == 0
print(sorted({{"aiohttp", "kopf", "kubernetes"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


async def test_a_set_that_is_too_large_to_deliver_is_refused_and_reported(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    large = flag(metadata={"text": "x" * 1_100_000})
    repository.commit(flags__json=json.dumps({"flags": {"large": large}}))
    built = await build_once(LocalOptions(str(repository.path)))
    assert not built.composition.accepted
    assert [each.code for each in built.composition.problems] == ["too-large"]


async def test_a_problem_names_the_author_of_its_line_not_of_the_last_commit(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    culprit = repository.commit("break it", flags__json='{"flags": {\n"a": {"state": "ON"}\n}}')
    repository.commit("change another file", readme__md="x")
    built = await build_once(LocalOptions(str(repository.path)))
    said = io.StringIO()
    TextReport(said).revision(built)
    line = f"    last changed in {culprit[:12]} 'break it' by Ada <ada@example.com>"
    assert line in said.getvalue().splitlines()


async def test_files_that_are_not_committed_are_named_where_a_path_means_them(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(flags__json=banner("party"))
    repository.write("flags.json", banner("plain"))
    repository.write("folder/other.json", banner("plain"))
    built = await build_once(LocalOptions(str(repository.path)))
    assert built.uncommitted == ("flags.json",)
    printed = io.StringIO()
    TextReport(printed).revision(built)
    assert "\n  not committed, so not served: flags.json\n" in printed.getvalue()
