"""The pages of commits on Git servers, and links to our page, for people who read a message. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from controller.api import flagrollout, flagset, flagsource
from controller.api.addresses import parts_of
from controller.api.meta import PAGE, ObjectKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.runtime.cache import Cache
    from controller.runtime.event import Event, EventSink


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
_FILES: Final = {
    "bitbucket": ("src/{commit}/{file}", "#lines-{line}"),
    "gitea": ("src/commit/{commit}/{file}", "#L{line}"),
    "github": ("blob/{commit}/{file}", "#L{line}"),
    "gitlab": ("-/blob/{commit}/{file}", "#L{line}"),
    "azuredevops": (
        "?path=/{file}&version=GC{commit}",
        "&line={line}&lineEnd={line}&lineStartColumn=1&lineEndColumn=99",
    ),
}
_REQUEST: Final = re.compile(r"\((?:#|!|pull request #)(\d+)\)|^Merge pull request #(\d+)|^Merged PR (\d+)")
"""The number of a change request, as servers write it into the subject of its commit."""
_REQUEST_PAGES: Final = (
    (re.compile(r"/-/commit/\w+$"), "/-/merge_requests/"),
    (re.compile(r"/commits/\w+$"), "/pull-requests/"),
    (re.compile(r"(?<=/_git/)([^/]+)/commit/\w+$"), r"\1/pullrequest/"),
)


def commit_in(revision: str) -> str:
    """Return the hexadecimal commit of a revision such as `main@sha1:…`; empty for one that is not of Git."""
    match = re.search(r"@sha1:([0-9a-f]{40})$", revision)
    return match[1] if match else ""


def commit_page(server: str, address: str, commit: str) -> str:
    """Return the URL of a commit's page in the repository at `address`; empty if the server has none."""
    page, repository = _PAGES.get(server), _repository_page(address)
    return f"{repository}/{page}/{commit}" if page and repository else ""


def link(url: str, revision: str) -> str:
    """Return the URL of a revision's page in the repository at `url`, HTTP or SSH; empty if unknown."""
    server, address = _server_of(url)
    commit = commit_in(revision)
    return commit_page(server, address, commit) if commit else ""


def file_link(url: str, commit: str, file: str, line: int) -> str:
    """Return the URL of a line (from 1) of a file in a commit of the repository at `url`; empty if
    unknown.
    """
    server, address = _server_of(url)
    form, repository = _FILES.get(server), _repository_page(address)
    if form is None or not repository:
        return ""
    page = "".join(form).format(commit=commit, file=quote(file), line=line)
    return f"{repository}{'' if page.startswith('?') else '/'}{page}"


def change_request_page(commit_page: str, subject: str) -> str:
    """The page of the change request that a commit's subject names, beside the commit's own page; empty where
    it names none.
    """
    match = _REQUEST.search(subject)
    if match is None or not commit_page:
        return ""
    number = next(group for group in match.groups() if group)
    for pattern, page in _REQUEST_PAGES:
        if pattern.search(commit_page):
            return f"{pattern.sub(page, commit_page)}{number}"
    github = re.match(r"https?://[^/]*github", commit_page)
    return f"{re.sub(r'/commit/[0-9a-f]+$', '', commit_page)}/{'pull' if github else 'pulls'}/{number}"


def _server_of(url: str) -> tuple[str, str]:
    """The kind of server, and the address as a URL; the kind is empty if unknown."""
    short = re.match(r"^(?:[^@/:]+@)?([^@/:]+):(?!//)(.+)$", url)  # `git@host:path`
    address = f"ssh://{short[1]}/{short[2]}" if short else url
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:
        host = ""
    return _HOSTS.get(host) or _NAMES.get(host.partition(".")[0], ""), address


def _repository_page(address: str) -> str:
    """The URL of a repository's own page; empty where the address is none."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    path, web = parts_of(address), parts.scheme in {"http", "https"}
    if not host or len(path) < 2:
        return ""
    if host == "ssh.dev.azure.com" and len(path) == 4:
        host, path = "dev.azure.com", [path[1], path[2], "_git", path[3]]
    origin = f"{parts.scheme if web else 'https'}://{host}{f':{port}' if port and web else ''}"
    return f"{origin}/{'/'.join(quote(part, safe='') for part in path)}"


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


@dataclass(frozen=True, slots=True)
class PageLinks:
    """Implements `EventSink`: passes Events on, those of FlagRollouts with the address of what waits."""

    sinks: Sequence[EventSink]
    page: str
    """URL of the page, without a path."""

    def accept(self, event: Event) -> None:
        """Pass an Event on."""
        if event.object.kind == flagrollout.KIND:
            event = replace(event, metadata={**event.metadata, PAGE: f"{self.page.rstrip('/')}/ui/pending"})
        for sink in self.sinks:
            sink.accept(event)
