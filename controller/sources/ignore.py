"""Files that are no part of an artifact: patterns as in .gitignore, with Flux's defaults (github.com/fluxcd/pkg, sourceignore)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from pathspec import GitIgnoreSpec

if TYPE_CHECKING:
    from pathlib import Path

ALWAYS: Final = (".git/", ".gitignore", ".gitmodules", ".gitattributes")
DEFAULT: Final = (
    "*.jpg", "*.jpeg", "*.gif", "*.png", "*.wmv", "*.flv", "*.tar.gz", "*.zip",
    ".github/", ".circleci/", ".travis.yml", ".gitlab-ci.yml", "appveyor.yml", ".drone.yml", "cloudbuild.yaml",
    "codeship-services.yml", "codeship-steps.yml",
    "**/.goreleaser.yml", "**/.sops.yaml", "**/.flux.yaml",
)  # fmt: skip
"""In force where the source has no patterns of its own."""


def remove_ignored(folder: Path, patterns: str | None) -> None:
    """Remove from `folder` what `patterns`, or the default ones, say is to be ignored. Raises OSError."""
    own = DEFAULT if patterns is None else patterns.splitlines()
    ignored = GitIgnoreSpec.from_lines((*ALWAYS, *own))
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = os.path.join(parent, name)
            if ignored.match_file(os.path.relpath(path, folder)):
                os.unlink(path)
        if parent != str(folder) and not os.listdir(parent):
            os.rmdir(parent)
