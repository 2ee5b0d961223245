"""The pages of commits on Git servers, for people who read a message. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from controller.api import flagset, flagsource
from controller.api.parsing.addresses import parts_of

if TYPE_CHECKING:
    from controller.api.objects.meta import ObjectKey
    from controller.runtime.objects.cache import Cache

_HOSTS: Final = {
    "bitbucket.org": "bitbucket",
    "codeberg.org": "gitea",
    "dev.azure.com": "azuredevops",
    "gitea.com": "gitea",
    "github.com": "github",
    "gitlab.com": "gitlab",
    "ssh.dev.azure.com": "azuredevops",
}
_NAMES: Final = {"forgejo": "gitea", "gitea": "gitea", "github": "github", "gitlab": "gitlab"}
"""Self-hosted servers are recognised by the first label of the host: `gitlab.example.com`."""
_PAGES: Final = {
    "azuredevops": "commit",
    "bitbucket": "commits",
    "gitea": "commit",
    "github": "commit",
    "gitlab": "-/commit",
}


def commit_in(revision: str) -> str:
    """Return the hexadecimal commit of a revision such as `main@sha1:…`; empty for one that is not of Git."""
    match = re.search(r"@sha1:([0-9a-f]{40})$", revision)
    return match[1] if match else ""


def commit_page(server: str, address: str, commit: str) -> str:
    """Return the URL of a commit's page in the repository at `address`; empty if the server has none."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    path, page, web = parts_of(address), _PAGES.get(server), parts.scheme in {"http", "https"}
    if page is None or not host or len(path) < 2:
        return ""
    if host == "ssh.dev.azure.com" and len(path) == 4:
        host, path = "dev.azure.com", [path[1], path[2], "_git", path[3]]
    origin = f"{parts.scheme if web else 'https'}://{host}{f':{port}' if port and web else ''}"
    return f"{origin}/{'/'.join(quote(part, safe='') for part in path)}/{page}/{commit}"


def link(url: str, revision: str) -> str:
    """Return the URL of a revision's page in the repository at `url`, HTTP or SSH; empty if unknown."""
    short = re.match(r"^(?:[^@/:]+@)?([^@/:]+):(?!//)(.+)$", url)  # `git@host:path`
    address, commit = (f"ssh://{short[1]}/{short[2]}" if short else url), commit_in(revision)
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:
        return ""
    server = _HOSTS.get(host) or _NAMES.get(host.partition(".")[0], "")
    return commit_page(server, address, commit) if commit else ""


def source_of(objects: Cache, key: ObjectKey) -> ObjectKey | None:
    """Return the source of a FlagSet, or `key` for other kinds; None for a source of another namespace."""
    if key.kind != flagset.KIND:
        return key
    thing = objects.get(key)
    source = None if thing is None else flagset.source_key(thing)
    return source if source is not None and source.namespace == key.namespace else None


def link_of(objects: Cache, key: ObjectKey, revision: str) -> str:
    """Return the URL of the page of a FlagSet's or a source's revision; empty if unknown."""
    place = source_of(objects, key)
    source = None if place is None else objects.get(place)
    spec = {} if source is None else source.spec
    if place is not None and place.kind == flagsource.KIND:
        git = spec.get("git")
        spec = git if isinstance(git, dict) else {}
    elif place is None or place.kind != "GitRepository":
        return ""
    return link(str(spec.get("url") or ""), revision)
