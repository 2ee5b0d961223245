"""`make docs`: the pages of docs/ as a site in site/, by Zensical.

Links that lead out of docs/, and to the project's own pages in it, lead to the repository, whose URL is the
variable FLAGSTAFF_REPOSITORY; without it they become plain text. The exit code is Zensical's: a link that
leads nowhere is an error.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PROJECTS: Final = ("adr", "architecture.md", "project")
"""Below docs/, and about Flagstaff's development: no user reads them on the site."""
LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\((?!#)([^):\s]+)\)")


def link_repository(text: str, page: str, repository: str) -> str:
    """The text of a page, given by its path below docs/, with links to files of the repository."""

    def replace(link: re.Match[str]) -> str:
        label, target = link.groups()
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        first, _, below = path.partition("/")
        if first == "docs" and below.partition("/")[0].partition("#")[0] not in PROJECTS:
            return link[0]
        return f"[{label}]({repository}/blob/main/{path})" if repository else label

    return LINK.sub(replace, text)


def main() -> int:
    """Build the site; return Zensical's exit code."""
    repository = os.environ.get("FLAGSTAFF_REPOSITORY", "").rstrip("/")
    with tempfile.TemporaryDirectory(prefix="flagstaff-site-") as name:
        folder = Path(name)
        shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns(*PROJECTS))
        for page in (folder / "docs").rglob("*.md"):
            path = page.relative_to(folder / "docs").as_posix()
            page.write_text(link_repository(page.read_text(), path, repository))
        shutil.copy(ROOT / "mkdocs.yml", folder)
        command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "-f", "mkdocs.yml"]
        ended = subprocess.run(command, cwd=folder, check=False, env={**os.environ, "NO_COLOR": "1"})
        if ended.returncode == 0:
            shutil.rmtree(ROOT / "site", ignore_errors=True)
            shutil.copytree(folder / "site", ROOT / "site")
            print("open site/index.html")
        return ended.returncode


if __name__ == "__main__":
    sys.exit(main())
