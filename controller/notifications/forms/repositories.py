"""Repositories on Git servers, by their addresses: their APIs, and the pages of their commits. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, get_args
from urllib.parse import quote, urlsplit

from controller.api import flagset, flagsource
from controller.api.parsing.addresses import parts_of, server_of
from controller.api.provider import ProviderType
from controller.notifications.forms.posts import Post, basic, bearer

if TYPE_CHECKING:
    from controller.api.meta import ObjectKey
    from controller.notifications.forms.posts import Target
    from controller.runtime.objects.cache import Cache

API_HOSTS: Final = {"bitbucket.org": "api.bitbucket.org", "github.com": "api.github.com"}
"""Where requests go, by the host of the repository's address; elsewhere they go to that host."""
GITHUB: Final = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
"""Headers that its API asks for."""
TYPES: Final = frozenset(each for each in get_args(ProviderType) if server_of(each))
"""Types whose address is a repository's."""
_COMMIT: Final = re.compile(r"@sha1:([0-9a-f]{40})$")
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
_SHORT: Final = re.compile(r"^(?:[^@/:]+@)?([^@/:]+):(?!//)(.+)$")
"""`git@host:path`."""
_WEB: Final = frozenset({"http", "https"})


class Api(NamedTuple):
    """A repository in the API of its server."""

    url: str
    headers: dict[str, str]
    """Show the token."""
    query: str = ""
    """Of each request."""


def api_of(target: Target) -> Api:
    """The API of the target's repository."""
    parts, token, origin = parts_of(target.address), target.token, _origin(target)
    names = [quote(each, safe="") for each in parts]
    path = "/".join(names)
    match server_of(target.spec.type):
        case "azuredevops":
            organisation, project, _, repository = names
            url = f"{origin}/{organisation}/{project}/_apis/git/repositories/{repository}"
            return Api(url, {"Authorization": basic(f":{token}")}, "?api-version=7.1")
        case "bitbucket":
            # An access token, or `user:password` of an app.
            login = {"Authorization": basic(token)} if ":" in token else bearer(target)
            return Api(f"{_api_host(target) or origin}/2.0/repositories/{path}", login)
        case "gitea":
            return Api(f"{origin}/api/v1/repos/{path}", {"Authorization": f"token {token}"})
        case "gitlab":
            # A project is named by its whole path.
            project = quote("/".join(parts), safe="")
            return Api(f"{origin}/api/v4/projects/{project}", {"PRIVATE-TOKEN": token})
    return Api(f"{github_api(target)}/repos/{path}", bearer(target) | GITHUB)


def look(target: Target) -> Post:
    """Asks whether the repository is there."""
    api = api_of(target)
    return Post(api.url + api.query, b"", {"Accept-Encoding": "identity", **api.headers}, "GET")


def github_api(target: Target) -> str:
    """The API of github.com, or of a GitHub server of one's own."""
    if target.app is not None and target.app.base:
        return target.app.base
    return _api_host(target) or f"{_origin(target)}/api/v3"


def commit_in(revision: str) -> str:
    """The commit of a revision such as `main@sha1:…`, in hexadecimal; empty where it is none of Git's."""
    found = _COMMIT.search(revision)
    return found[1] if found else ""


def commit_page(type_: str, address: str, commit: str) -> str:
    """The page of a commit in the repository at `address`, on a server of this type; user and password of the
    address are left out. Empty where the type has no such page.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    path, page = parts_of(address), _PAGES.get(type_)
    if page is None or not host or len(path) < 2:
        return ""
    if host == "ssh.dev.azure.com" and len(path) == 4:
        host, path = "dev.azure.com", [path[1], path[2], "_git", path[3]]
    scheme = parts.scheme if parts.scheme in _WEB else "https"
    place = f"{host}:{port}" if port and parts.scheme in _WEB else host
    return f"{scheme}://{place}/{'/'.join(quote(each, safe='') for each in path)}/{page}/{commit}"


def link(url: str, revision: str) -> str:
    """The page of a revision of the repository that a source names, over HTTP or SSH; empty where no page is
    known.
    """
    short = _SHORT.match(url)
    address, commit = (f"ssh://{short[1]}/{short[2]}" if short else url), commit_in(revision)
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:
        return ""
    type_ = _HOSTS.get(host) or _NAMES.get(host.partition(".")[0], "")
    return commit_page(type_, address, commit) if commit else ""


def source_of(objects: Cache, key: ObjectKey) -> ObjectKey | None:
    """The source of a FlagSet, or `key` itself for others. None for a source of another namespace, which is
    not for everybody's eyes.
    """
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


def _api_host(target: Target) -> str:
    """Scheme and host of the API, where it is not on the host of the address; empty elsewhere."""
    api = API_HOSTS.get(urlsplit(target.address).hostname or "")
    return f"https://{api}" if api else ""


def _origin(target: Target) -> str:
    """Scheme and host of its address."""
    parts = urlsplit(target.address)
    return f"{parts.scheme}://{parts.netloc}"
