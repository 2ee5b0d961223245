"""Paths within a tree of files. Pure."""

from __future__ import annotations

from controller.api.parsing.invalid import InvalidTextError


def normalise(path: str) -> str:
    """The path without `./`, doubled or trailing `/`; `` is the root. Raises InvalidTextError."""
    if path.startswith("/"):
        raise InvalidTextError("absolute path; write it from the root of the repository")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." in parts or "\0" in path:
        raise InvalidTextError("leads out of the repository; remove the `..`")
    return "/".join(parts)
