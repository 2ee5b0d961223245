"""Finds the sources that a push concerns. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from controller.api.parsing.reference_names import HEADS, TAGS
from controller.api.sources.git_source import DEFAULT_BRANCH

if TYPE_CHECKING:
    from controller.api.sources.git_source import GitReference
    from controller.events.receiver.push_payload import Push

_SCP: Final = re.compile(r"(?:[^@/\s]+@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^@:/\s]+):(?P<path>[^\s]+)")


def repositories(push: Push) -> set[str]:
    """Return the pushed repository in the normal form of each address in the push."""
    return {place for url in push.repositories if (place := normalise_url(url)) is not None}


def follows(wanted: GitReference, push: Push) -> bool:
    """Whether a source with this reference follows the pushed one: its most exact field decides."""
    pushed = push.reference
    if pushed is None:
        return True
    if wanted.commit is not None:
        return wanted.commit == push.commit
    if wanted.name is not None:
        return wanted.name == pushed
    if wanted.tag is not None:
        return pushed == f"{TAGS}{wanted.tag}"
    if wanted.semver is not None:
        return pushed.startswith(TAGS)
    return pushed == f"{HEADS}{wanted.branch or DEFAULT_BRANCH}"


def normalise_url(url: str) -> str | None:
    """Return `host/path`, the same for all addresses of a repository; None for an invalid address.

    Scheme, user, port, case and `.git` are ignored: a push may contain the https address, and a source the
    ssh one. Waking a source needlessly costs one poll; missing one costs an interval.
    """
    try:
        if "://" in url:
            parts = urlsplit(url)
            host, path = parts.hostname or "", parts.path if parts.scheme else ""
        elif (scp := _SCP.fullmatch(url)) is not None:
            host, path = scp["host"].strip("[]"), scp["path"]
        else:
            return None
    except ValueError:
        return None
    # Where these servers take ssh on port 443.
    https = {"ssh.github.com": "github.com", "altssh.gitlab.com": "gitlab.com"}
    host = host.lower().rstrip(".")
    path = unquote(path).strip("/").casefold().removesuffix(".git").rstrip("/")
    return f"{https.get(host, host)}/{path}" if path else None
