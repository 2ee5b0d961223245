"""Tells which build of Flagstaff this is: its version, and the commit and date that the build wrote beside
this module. A checkout that was never built asks Git.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Final

_BUILD: Final = Path(__file__).with_name("build.json")
_CHECKOUT: Final = Path(__file__).parents[2]
_DIGITS: Final = 12
_GIT_SECONDS: Final = 5.0


def describe_build() -> str:
    """Return `flagstaff VERSION (commit COMMIT, built DATE)`. The commit has 12 digits or is `unknown`; the
    date is in UTC; for a checkout it says `not built` in its place.
    """
    try:
        build = json.loads(_BUILD.read_bytes())
    except FileNotFoundError:
        commit, date = _commit_of_checkout(), "not built"
    else:
        commit, date = build["commit"], f"built {build['date']}"
    return f"flagstaff {version('flagstaff')} (commit {commit[:_DIGITS] or 'unknown'}, {date})"


def _commit_of_checkout() -> str:
    # Any other folder may be part of somebody else's repository.
    if not (_CHECKOUT / ".git").exists() or not (_CHECKOUT / "pyproject.toml").is_file():
        return ""
    import subprocess  # noqa: PLC0415 - only checkouts need it

    command = ["git", "-C", str(_CHECKOUT), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(  # noqa: S603 - the words are ours
            command, capture_output=True, text=True, check=True, timeout=_GIT_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
