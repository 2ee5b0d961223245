"""The pages of commits on Git servers, for people who read a message. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

from controller.api import flagset, flagsource

if TYPE_CHECKING:
    from controller.api.meta import ObjectKey
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
"""Servers of one's own are known by the first word of the host: `gitlab.example.com`."""
_PAGES: Final = {
    "azuredevops": "commit",
    "bitbucket": "commits",
    "gitea": "commit",
    "github": "commit",
    "gitlab": "-/commit",
}


def parts_of(address: str) -> list[str]:
    """The parts of a repository's path."""
    path = urlsplit(address).path.strip("/").removesuffix(".git")
    return [unquote(each) for each in path.split("/") if unquote(each) not in {"", ".", ".."}]


def commit_in(revision: str) -> str:
    """The commit of a revision such as `main@sha1:…`, in hexadecimal; empty where it is none of Git's."""
    found = re.search(r"@sha1:([0-9a-f]{40})$", revision)
    return found[1] if found else ""


def commit_page(server: str, address: str, commit: str) -> str:
    """The page of a commit in the repository at `address`; empty where the server has no such page."""
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
    return f"{origin}/{'/'.join(quote(each, safe='') for each in path)}/{page}/{commit}"


def link(url: str, revision: str) -> str:
    """The page of a revision of the repository at `url`, over HTTP or SSH; empty where none is known."""
    short = re.match(r"^(?:[^@/:]+@)?([^@/:]+):(?!//)(.+)$", url)  # `git@host:path`
    address, commit = (f"ssh://{short[1]}/{short[2]}" if short else url), commit_in(revision)
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:
        return ""
    server = _HOSTS.get(host) or _NAMES.get(host.partition(".")[0], "")
    return commit_page(server, address, commit) if commit else ""


def source_of(objects: Cache, key: ObjectKey) -> ObjectKey | None:
    """The source of a FlagSet, or `key` itself for others; None for a source of another namespace."""
    if key.kind != flagset.KIND:
        return key
    thing = objects.get(key)
    found = None if thing is None else flagset.source_key(thing)
    return found if found is not None and found.namespace == key.namespace else None


def link_of(objects: Cache, key: ObjectKey, revision: str) -> str:
    """The page of a revision that a FlagSet, or a source, is made of; empty where none is known."""
    place = source_of(objects, key)
    source = None if place is None else objects.get(place)
    spec = {} if source is None else source.spec
    if place is not None and place.kind == flagsource.KIND:
        git = spec.get("git")
        spec = git if isinstance(git, dict) else {}
    elif place is None or place.kind != "GitRepository":
        return ""
    return link(str(spec.get("url") or ""), revision)
