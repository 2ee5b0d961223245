"""Repositories in the APIs of Git servers, by their addresses. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, get_args
from urllib.parse import quote, urlsplit

from controller.api.flagprovider import ProviderType
from controller.api.parsing.addresses import parts_of, server_of
from controller.events.notifications.notice import Post, basic

if TYPE_CHECKING:
    from controller.events.notifications.notice import ProviderTarget

API_HOSTS: Final = {"bitbucket.org": "api.bitbucket.org", "github.com": "api.github.com"}
"""API host by the host of the repository's address; by default the same host."""
GITHUB: Final = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
"""Headers of requests to GitHub's API."""
TYPES: Final = frozenset(each for each in get_args(ProviderType) if server_of(each))
"""Types whose address is a repository's."""


class Api(NamedTuple):
    """A repository in the API of its server."""

    url: str
    headers: dict[str, str]
    """Headers with the token."""
    query: str = ""
    """Query of each request."""


def api_of(target: ProviderTarget) -> Api:
    """Return the API of the target's repository."""
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
            login = {"Authorization": basic(token)} if ":" in token else target.bearer
            return Api(f"{_api_host(target) or origin}/2.0/repositories/{path}", login)
        case "gitea":
            return Api(f"{origin}/api/v1/repos/{path}", {"Authorization": f"token {token}"})
        case "gitlab":
            # GitLab identifies a project by its whole path.
            project = quote("/".join(parts), safe="")
            return Api(f"{origin}/api/v4/projects/{project}", {"PRIVATE-TOKEN": token})
    return Api(f"{github_api(target)}/repos/{path}", target.bearer | GITHUB)


def look(target: ProviderTarget) -> Post:
    """Return a request that fails if the repository is missing."""
    api = api_of(target)
    return Post(api.url + api.query, b"", {"Accept-Encoding": "identity", **api.headers}, "GET")


def github_api(target: ProviderTarget) -> str:
    """Return the API of github.com, or of a self-hosted GitHub server."""
    if target.app is not None and target.app.base:
        return target.app.base
    return _api_host(target) or f"{_origin(target)}/api/v3"


def _api_host(target: ProviderTarget) -> str:
    """Return scheme and host of the API if its host differs from the address's; else empty."""
    api = API_HOSTS.get(urlsplit(target.address).hostname or "")
    return f"https://{api}" if api else ""


def _origin(target: ProviderTarget) -> str:
    """Return scheme and host of the address."""
    parts = urlsplit(target.address)
    return f"{parts.scheme}://{parts.netloc}"
