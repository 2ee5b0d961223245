"""Files that are written from the program."""

from __future__ import annotations

from controller.cli.published.files import ROOT, published_files


def test_published_files_are_those_that_the_program_writes() -> None:
    stale = [name for name, content in published_files().items() if (ROOT / name).read_text() != content]
    assert stale == [], "make reference writes them anew"
