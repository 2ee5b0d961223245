"""Git repositories for tests, made by the stock `git`, free of the user's own configuration."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    # A commit starts no housekeeping, and waits for no disk.
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "maintenance.auto",
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_CONFIG_KEY_1": "core.fsync",
    "GIT_CONFIG_VALUE_1": "none",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
}


class Repository:
    """A repository with a work tree, on branch `main`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str, given: str | None = None) -> str:
        """Run git, `given` on its standard input; its standard output."""
        return subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            env=ENVIRONMENT,
            input=given,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    def write(self, name: str, text: str) -> None:
        """Write a file of the work tree."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def commit(self, message: str = "a change", **files: str) -> str:
        """Commit the work tree, with `files` (`flags__json="…"` is `flags.json`); the new commit's id."""
        for name, text in files.items():
            self.write(name.replace("__", "."), text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")
