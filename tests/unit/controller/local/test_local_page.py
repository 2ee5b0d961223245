"""The page of `flagstaff up`, and what it does while nobody reads it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from controller.local.local_objects import NAME
from controller.local.local_options import LocalOptions
from controller.local.local_page import LocalPage
from evaluator.flags.merge import parse
from evaluator.resolving.resolve import compile_flag_set
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path


def document(default: str) -> str:
    flag = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": default}
    return json.dumps({"flags": {"pay": flag}})


async def test_the_history_is_read_only_once_the_page_is_opened(tmp_path: Path) -> None:
    repository = await asyncio.to_thread(Repository, tmp_path / "flags")
    await asyncio.to_thread(repository.commit, "first", flags__json=document("off"))
    flag_set = parse(document("off").encode(), file="flags.json").flag_set
    page = LocalPage(LocalOptions(str(repository.path)), repository.path)
    page.define(flag_set, ())
    page.serve(compile_flag_set(flag_set))
    running = asyncio.create_task(page.run())
    await asyncio.sleep(0)
    # A history that was read before this commit, and read once, would not have it.
    await asyncio.to_thread(repository.commit, "second", flags__json=document("on"))
    assert page.history(NAME, "pay").changes == ()
    changed = asyncio.Event()
    page.notify = changed.set
    page.open()
    while len(page.history(NAME, "pay").changes) < 2:
        await changed.wait()
        changed.clear()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [change.subject for change in page.history(NAME, "pay").changes] == ["second", "first"]
