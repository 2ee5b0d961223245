"""The file of tokens, while it changes under a controller that runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from controller.app.reconcilers import MOST_BYTES, TokenFile
from controller.app.settings import InvalidOptionError
from tests.waiting import run_beside, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text("new\n\n  old \n")
    return path


BAD: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_text(" \n\n"),
    "no text": lambda path: path.write_bytes(b"s3cret-\xff"),
    "too large": lambda path: path.write_text("s3cret\n" * MOST_BYTES),
}


def test_tokens_keep_their_order_and_the_first_is_ours(path: Path) -> None:
    found = TokenFile(str(path))
    assert (found.tokens, found.first()) == (("new", "old"), "new")


def test_without_a_file_there_are_none() -> None:
    found = TokenFile("")
    assert (found.tokens, found.first()) == ((), None)


@pytest.mark.parametrize("spoil", BAD.values(), ids=BAD)
def test_a_file_without_tokens_is_refused_at_the_start(path: Path, spoil: Callable[[Path], object]) -> None:
    spoil(path)
    with pytest.raises(InvalidOptionError, match=str(path)) as refused:
        TokenFile(str(path))
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("spoil", BAD.values(), ids=BAD)
def test_one_that_goes_bad_later_keeps_the_tokens_and_says_so_once(
    path: Path, spoil: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    found = TokenFile(str(path))
    spoil(path)
    for _ in range(3):
        found.refresh()
    assert found.tokens == ("new", "old")
    assert caplog.text.count("the tokens read before stay in use") == 1
    assert "s3cret" not in caplog.text


def test_a_fault_that_comes_back_is_reported_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = TokenFile(str(path))
    for content in ("", "newest", ""):
        path.write_text(content)
        found.refresh()
    assert found.tokens == ("newest",)
    assert caplog.text.count("stay in use") == 2


async def test_a_file_that_changes_is_followed(path: Path) -> None:
    found = TokenFile(str(path))
    async with run_beside(found.follow(0.001)):
        await asyncio.to_thread(path.write_text, "newest")
        await until(lambda: found.tokens == ("newest",))


async def test_where_no_tokens_are_asked_for_nothing_is_followed() -> None:
    await asyncio.wait_for(TokenFile("").follow(), 10)
