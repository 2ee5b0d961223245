"""Repositories in the APIs of Git servers, by their addresses. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, get_args
from urllib.parse import quote, urlsplit

from controller.api.provider import ProviderType
from controller.notifications.addresses import AddressRefused
from controller.notifications.forms.posts import Post, basic
from controller.notifications.links import parts_of

if TYPE_CHECKING:
    from controller.notifications.forms.posts import Target

API_HOSTS: Final = {"bitbucket.org": "api.bitbucket.org", "github.com": "api.github.com"}
"""Where requests go, by the host of the repository's address; elsewhere they go to that host."""
GITHUB: Final = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
"""Headers that its API asks for."""
_PARTS: Final = {"azuredevops": 4, "bitbucket": 2, "gitea": 2, "github": 2, "gitlab": 20}
"""Parts of a repository's path at most, by server. Groups of GitLab may be nested."""
TYPES: Final = frozenset(each for each in get_args(ProviderType) if each.startswith(tuple(_PARTS)))
"""Types whose address is a repository's."""


class Api(NamedTuple):
    """A repository in the API of its server."""

    url: str
    headers: dict[str, str]
    """Show the token."""
    query: str = ""
    """Of each request."""


def server_of(type_: str) -> str:
    """The server of a type of providers: a key of `_PARTS`."""
    return next(each for each in _PARTS if type_.startswith(each))


def require_repository(type_: str, address: str) -> None:
    """Raises AddressRefused for one that is not a repository's, as providers on Git servers need it."""
    server, parts = server_of(type_), parts_of(address)
    if server == "azuredevops" and (len(parts) != 4 or parts[2] != "_git"):
        place = "dev.azure.com/ORGANISATION/PROJECT/_git/REPOSITORY"
        raise AddressRefused(f"it must be a repository's, such as https://{place}")
    if not 2 <= len(parts) <= _PARTS[server]:
        raise AddressRefused("it must be a repository's, such as https://HOST/OWNER/REPOSITORY")


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
            login = {"Authorization": basic(token)} if ":" in token else target.bearer
            return Api(f"{_api_host(target) or origin}/2.0/repositories/{path}", login)
        case "gitea":
            return Api(f"{origin}/api/v1/repos/{path}", {"Authorization": f"token {token}"})
        case "gitlab":
            # A project is named by its whole path.
            project = quote("/".join(parts), safe="")
            return Api(f"{origin}/api/v4/projects/{project}", {"PRIVATE-TOKEN": token})
    return Api(f"{github_api(target)}/repos/{path}", target.bearer | GITHUB)


def look(target: Target) -> Post:
    """Asks whether the repository is there."""
    api = api_of(target)
    return Post(api.url + api.query, b"", {"Accept-Encoding": "identity", **api.headers}, "GET")


def github_api(target: Target) -> str:
    """The API of github.com, or of a GitHub server of one's own."""
    if target.app is not None and target.app.base:
        return target.app.base
    return _api_host(target) or f"{_origin(target)}/api/v3"


def _api_host(target: Target) -> str:
    """Scheme and host of the API, where it is not on the host of the address; empty elsewhere."""
    api = API_HOSTS.get(urlsplit(target.address).hostname or "")
    return f"https://{api}" if api else ""


def _origin(target: Target) -> str:
    """Scheme and host of its address."""
    parts = urlsplit(target.address)
    return f"{parts.scheme}://{parts.netloc}"
