"""Tells which build of Flagstaff this is: its version, and the commit and date that the build wrote beside
this module, and how to install more of it. A checkout that was never built asks Git.
"""

from __future__ import annotations

import json
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any, Final

_BUILD: Final = Path(__file__).with_name("build.json")
_CHECKOUT: Final = Path(__file__).parents[2]
_DIGITS: Final = 12
_EXTRAS: Final = {
    "cryptography": "signatures",
    "grpc": "grpc",
    "lsprotocol": "lsp",
    "obstore": "buckets",
    "opentelemetry": "otel",
    "pygls": "lsp",
    "pysequoia": "signatures",
}
"""The extra that brings a package; `controller` brings all others."""
_GIT_SECONDS: Final = 5.0
_OURS: Final = ("controller", "evaluator")


def describe_build() -> str:
    """Return `flagstaff VERSION (commit COMMIT, built DATE)`. The commit has 12 digits or is `unknown`; the
    date is in UTC; for a checkout it says `not built` in its place.
    """
    if build := _build():
        commit, date = build["commit"], f"built {build['date']}"
    else:
        commit, date = _commit_of_checkout(), "not built"
    return f"flagstaff {version('flagstaff')} (commit {commit[:_DIGITS] or 'unknown'}, {date})"


def install_command(extra: str) -> str:
    """Return the command that installs this build with an extra. It names a package on the index only if the
    build says that it is published: any other package of that name there is somebody else's.
    """
    if _build().get("published"):
        return f"pip install 'flagstaff[{extra}]'"
    # PEP 610: pip and uv write where they installed a wheel, a folder or a repository from.
    origin = json.loads(distribution("flagstaff").read_text("direct_url.json") or "{}")
    url = origin.get("url", "file:///PATH/OF/THE/WHEEL")
    if origin.get("dir_info", {}).get("editable"):
        return f"pip install -e '{url.removeprefix('file://')}[{extra}]'"
    if vcs := origin.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return f"pip install 'flagstaff[{extra}] @ {url}'"


def missing_package(error: ModuleNotFoundError) -> str:
    """Say which package is missing, and how to install it. Raises `error` if it is a module of ours."""
    package = (error.name or "").partition(".")[0]
    if package in _OURS:
        raise error
    command = install_command(_EXTRAS.get(package, "controller"))
    return f"the package {error.name} is not installed; install all that this needs: {command}"


def _build() -> dict[str, Any]:
    try:
        build: dict[str, Any] = json.loads(_BUILD.read_bytes())
    except FileNotFoundError:
        return {}
    return build


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
