"""Repositories on Git servers, as the addresses of providers name them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

from controller.notifications.forms.posts import basic, bearer

if TYPE_CHECKING:
    from controller.notifications.forms.posts import Target

API_HOSTS: Final = {"bitbucket.org": "api.bitbucket.org", "github.com": "api.github.com"}
"""Where requests go, by the host of the repository's address; elsewhere they go to that host."""
GITHUB: Final = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
"""Headers that its API asks for."""
AZURE_VERSION: Final = "?api-version=7.1"
"""The query that each request to Azure DevOps has."""
_PARTS: Final = {
    "azuredevops": 4,
    "azuredevopspullrequestcomment": 4,
    "bitbucket": 2,
    "bitbucketpullrequestcomment": 2,
    "gitea": 2,
    "giteapullrequestcomment": 2,
    "github": 2,
    "githubdispatch": 2,
    "githubpullrequestcomment": 2,
}
"""Of a repository's path; GitLab's groups may be in each other."""
TYPES: Final = frozenset({*_PARTS, "gitlab", "gitlabmergerequestcomment"})
"""Types whose address is a repository's."""


def problem_of_address(type_: str, address: str) -> str:
    """Why an address is not that of a repository; empty where it is one."""
    parts = parts_of(address)
    if type_.startswith("azuredevops") and (len(parts) != 4 or parts[2] != "_git"):
        return "it must be a repository's, such as https://dev.azure.com/ORGANISATION/PROJECT/_git/REPOSITORY"
    if len(parts) < 2 or len(parts) > _PARTS.get(type_, 20):
        return "it must be a repository's, such as https://HOST/OWNER/REPOSITORY"
    return ""


def github_api(target: Target) -> str:
    """The API of github.com, or of a server of one's own."""
    if target.app is not None and target.app.base:
        return target.app.base
    api = API_HOSTS.get(host(target))
    return f"https://{api}" if api else f"{origin(target)}/api/v3"


def gitea_repository(target: Target) -> str:
    """The API of a repository on Gitea or Forgejo."""
    return f"{origin(target)}/api/v1/repos/{quoted(target)}"


def gitea_login(target: Target) -> dict[str, str]:
    """The header that shows the token."""
    return {"Authorization": f"token {target.token}"}


def bitbucket_repository(target: Target) -> str:
    """The API of a repository on Bitbucket Cloud."""
    api = API_HOSTS.get(host(target))
    return f"{f'https://{api}' if api else origin(target)}/2.0/repositories/{quoted(target)}"


def bitbucket_login(target: Target) -> dict[str, str]:
    """The header that shows an access token, or `user:password` of an app."""
    return {"Authorization": basic(target.token)} if ":" in target.token else bearer(target)


def azure_repository(target: Target) -> str:
    """The API of a repository on Azure DevOps."""
    organisation, project, _, repository = (quote(each, safe="") for each in parts_of(target.address))
    return f"{origin(target)}/{organisation}/{project}/_apis/git/repositories/{repository}"


def azure_login(target: Target) -> dict[str, str]:
    """The header that shows a personal access token."""
    return {"Authorization": basic(f":{target.token}")}


def gitlab_project(target: Target) -> str:
    """The API of a project, which is named by its whole path."""
    project = quote("/".join(parts_of(target.address)), safe="")
    return f"{origin(target)}/api/v4/projects/{project}"


def host(target: Target) -> str:
    """The host of its address."""
    return (urlsplit(target.address).hostname or "").lower()


def origin(target: Target) -> str:
    """Scheme and host of its address."""
    parts = urlsplit(target.address)
    return f"{parts.scheme}://{parts.netloc}"


def parts_of(address: str) -> list[str]:
    """The parts of a repository's path."""
    path = urlsplit(address).path.strip("/").removesuffix(".git")
    return [unquote(each) for each in path.split("/") if unquote(each) not in {"", ".", ".."}]


def quoted(target: Target) -> str:
    """The path, as a part of another URL."""
    return "/".join(quote(each, safe="") for each in parts_of(target.address))
