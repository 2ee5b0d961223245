"""The page of `flagstaff up` in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.clients.up import banner, up
from tests.page.browser import opened, window
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path


def test_the_page_opens_on_the_flags(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit("first", flags__json=banner("plain"))
    with up(repository) as running, window() as context:
        page, _ = opened(context, f"http://localhost:{running.ready()['management']}/ui")
        assert "banner" in page.inner_text("main")
