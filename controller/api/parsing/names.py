"""Names of objects, and of files within a tree. Pure."""

from __future__ import annotations

import re
from typing import Final

from controller.api.parsing import InvalidTextError

OBJECT_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""The name of an object (RFC 1123, subdomain). Any other name could change the path of a request: clients
resolve `..`, and proxies may decode an escaped slash.
"""


def require_object_name(name: str) -> None:
    """Raise InvalidTextError for what can be no object's name."""
    if not OBJECT_NAME.fullmatch(name):
        raise InvalidTextError("must be an object's name: lower-case letters, digits, - and .")


def normalise(path: str) -> str:
    """The path without `./`, doubled or trailing `/`; `` is the root. Raises InvalidTextError."""
    if path.startswith("/"):
        raise InvalidTextError("absolute path; write it from the root of the repository")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." in parts or "\0" in path:
        raise InvalidTextError("leads out of the repository; remove the `..`")
    return "/".join(parts)


def is_within_source(path: str) -> bool:
    """Whether a folder's path leads out of its source neither by a `/` at its start nor by `..`."""
    return not path.startswith("/") and ".." not in path.split("/")
