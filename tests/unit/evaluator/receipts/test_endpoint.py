from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

from evaluator.flags.canonical import digest
from evaluator.flags.model import FlagSet
from evaluator.receipts.endpoint import ReceiptEndpoint
from evaluator.receipts.reporter import StoreReceipts
from evaluator.store.store import Store
from evaluator.sync.config import Provider, SourceConfig
from evaluator.sync.follower import Followers
from evaluator.sync.opening import open_sources
from tests.clients.evaluator import FLAGSTAFF, LEADING
from tests.programs import DIES_WITH_US
from tests.unit.evaluator.receipts.test_reporter import MEMBER, Proxy, document, run_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@contextlib.asynccontextmanager
async def evaluator(proxy: Proxy, file: Path, token: Path) -> AsyncIterator[Store]:
    """Follows a file, and reports to the proxy what it serves."""
    async with run_server(proxy) as port:
        receipts = StoreReceipts(MEMBER, random=lambda: 0.0)
        (source,) = open_sources([SourceConfig(str(file), Provider.FILE)], clock=lambda: 1000.0)
        store = Store(sources=[source.name])
        receipts.follow(store)
        uri = f"127.0.0.1:{port}"
        config = SourceConfig(uri, Provider.GRPC, selector="shop/flags", bearer_token_file=str(token))
        endpoint = ReceiptEndpoint(config, receipts.of(source.name, config.selector))
        tasks = [
            asyncio.create_task(each.run())
            for each in (Followers([source], store, clock=lambda: 1000.0), endpoint)
        ]
        try:
            yield store
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_is_served_of_a_file_is_reported_to_an_endpoint_with_a_goodbye(tmp_path: Path) -> None:
    proxy, file, token = Proxy(), tmp_path / "flags.json", tmp_path / "token"
    file.write_bytes(document("on", "sha256:first"))
    token.write_text("mine")
    async with evaluator(proxy, file, token):
        await proxy.until("sha256:first")
        fresh = tmp_path / "fresh"
        fresh.write_bytes(document("off", "sha256:next"))
        fresh.replace(file)
        await proxy.until("sha256:next")
    assert (proxy.reports[-1].selector, proxy.reports[-1].revision) == ("shop/flags", "main@sha1:off")
    assert proxy.reports[-1].replaced
    assert [each.selector for each in proxy.goodbyes] == ["shop/flags"]
    assert dict(proxy.headers[-1].headers)["authorization"] == "Bearer mine"


async def test_a_file_that_names_no_digest_is_reported_with_the_digest_of_its_flags(tmp_path: Path) -> None:
    proxy, file, token = Proxy(), tmp_path / "flags.json", tmp_path / "token"
    file.write_bytes(b'{"flags": {}}')
    token.write_text("mine")
    async with evaluator(proxy, file, token):
        await proxy.until(digest(FlagSet()))


async def test_a_server_that_takes_no_receipts_changes_nothing(tmp_path: Path) -> None:
    proxy, file, token = Proxy(offers=False), tmp_path / "flags.json", tmp_path / "token"
    file.write_bytes(document("on"))
    token.write_text("mine")
    async with evaluator(proxy, file, token) as store, asyncio.timeout(60):
        revisions = asyncio.Queue[str | None]()
        store.subscribe(lambda snapshot: revisions.put_nowait(snapshot.revision))
        assert await revisions.get() == "main@sha1:on"
    assert not proxy.goodbyes


async def test_each_of_several_files_is_reported_under_its_own_selector(tmp_path: Path) -> None:
    proxy, words = Proxy(), [*LEADING]
    async with run_server(proxy) as port:
        for name in ("a", "b"):
            (tmp_path / f"{name}.json").write_bytes(document("on", f"sha256:{name}"))
            server = {"uri": f"127.0.0.1:{port}", "provider": "grpc", "selector": f"shop/{name}"}
            words += ["--uri", f"file:{name}.json", "--receipts-to", json.dumps(server)]
        process = await asyncio.create_subprocess_exec(
            *DIES_WITH_US,
            FLAGSTAFF,
            "evaluator",
            "start",
            *words,
            cwd=tmp_path,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(60):
                while {each.selector: each.digest for each in proxy.reports} != {
                    "shop/a": "sha256:a",
                    "shop/b": "sha256:b",
                }:
                    proxy.reported.clear()
                    await proxy.reported.wait()
        finally:
            process.terminate()
            await process.wait()
