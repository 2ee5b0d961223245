"""Links to the pages of Git servers."""

from __future__ import annotations

import pytest

from controller.page.page_source import FlagChange, LayerPlace
from controller.page.rendering import commit_link, place_link, request_link

COMMIT = "1" * 40
PLACE = LayerPlace("flags/a b.yaml", 7)


@pytest.mark.parametrize(
    ("address", "page"),
    [
        ("git@github.com:shop/flags.git", f"https://github.com/shop/flags/blob/{COMMIT}/flags/a%20b.yaml#L7"),
        ("https://gitlab.com/a/b/c", f"https://gitlab.com/a/b/c/-/blob/{COMMIT}/flags/a%20b.yaml#L7"),
        ("https://codeberg.org/a/b", f"https://codeberg.org/a/b/src/commit/{COMMIT}/flags/a%20b.yaml#L7"),
        ("https://bitbucket.org/a/b", f"https://bitbucket.org/a/b/src/{COMMIT}/flags/a%20b.yaml#lines-7"),
        ("https://dev.azure.com/o/p/_git/r", f"https://dev.azure.com/o/p/_git/r?path=/flags/a%20b.yaml&version=GC{COMMIT}&line=7&lineEnd=7&lineStartColumn=1&lineEndColumn=99"),
        ("https://git.example.com/a/b", ""),
        ("/home/ada/flags", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_a_line_of_a_file_has_its_page(address: str, page: str) -> None:
    assert place_link(address, f"main@sha1:{COMMIT}", PLACE) == page


def test_what_is_no_commit_has_no_page() -> None:
    assert place_link("https://github.com/a/b", "worktree@sha256:" + "2" * 64, PLACE) == ""
    assert commit_link("https://github.com/a/b", FlagChange("")) == ""


def test_a_commit_leads_to_its_pull_request() -> None:
    change = FlagChange(COMMIT, subject="Banner (#33)")
    assert request_link("https://github.com/a/b", change) == "https://github.com/a/b/pull/33"
