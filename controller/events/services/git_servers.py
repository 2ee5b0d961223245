"""Repositories in the APIs of Git servers, and the statuses of their commits: pending once applied, success
once served, failure with the first problem. Pure.

GitHub: https://docs.github.com/rest/commits/statuses
GitLab: https://docs.gitlab.com/api/commits/#set-commit-pipeline-status
Gitea: https://docs.gitea.com/api/ (repoCreateStatus)
Bitbucket: https://developer.atlassian.com/cloud/bitbucket/rest/api-group-commit-statuses/
Azure DevOps: https://learn.microsoft.com/rest/api/azure/devops/git/statuses/create
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args
from urllib.parse import quote, urlsplit

from controller.api.flagprovider import ProviderType
from controller.api.parsing.addresses import parts_of, server_of
from controller.events.alerts.commit_pages import commit_in, commit_page
from controller.events.alerts.flag_set_progress import state_name
from controller.events.services.notice import Post, basic
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from controller.events.services.notice import Notice, ProviderTarget

API_HOSTS: Final = {"bitbucket.org": "api.bitbucket.org", "github.com": "api.github.com"}
"""API host by the host of the repository's address; by default the same host."""
GITHUB: Final = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
"""Headers of requests to GitHub's API."""
TYPES: Final = frozenset(type_ for type_ in get_args(ProviderType) if server_of(type_))
"""Types whose address is a repository's."""


CHECKED_BY_REPOSITORY: Final = frozenset({"azuredevops", "bitbucket", "gitea"})
"""Types whose test also reads the repository: the answer to a status does not say what is missing."""
_STATES: Final = {
    "azuredevops": {"success": "succeeded", "failure": "failed"},
    "bitbucket": {"pending": "INPROGRESS", "success": "SUCCESSFUL", "failure": "FAILED"},
    "gitlab": {"failure": "failed"},
}
"""A server's names of our states, where they differ."""


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
    names = [quote(part, safe="") for part in parts]
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


def repository_request(target: ProviderTarget) -> Post:
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


def commit_status(notice: Notice) -> Post:
    """Return the status of the message's commit in the format of the target's server."""
    message, target = notice.message, notice.target
    # A server that reports commit 0000… as missing has accepted address and token.
    commit = commit_in(message.metadata.get(REVISION_KEY, "")) or "0" * 40
    server, api, state = server_of(target.spec.type), api_of(target), state_name(message)
    # Statuses of one object replace each other.
    context = f"flagstaff/{message.kind}/{message.name}/{message.uid[:8]}"[:255]
    page, url = commit_page(server, target.address, commit), f"{api.url}/statuses/{commit}"
    text = message.message.replace("\n", " ")
    content: dict[str, Any] = {
        "state": _STATES.get(server, {}).get(state, state),
        # Most characters that GitHub accepts.
        "description": text if len(text) <= 140 else f"{text[:139]}…",
    }
    if server == "azuredevops":
        url = f"{api.url}/commits/{commit}/statuses"
        content |= {"context": {"genre": "flagstaff", "name": context}, "targetUrl": page}
    elif server == "bitbucket":
        url = f"{api.url}/commit/{commit}/statuses/build"
        key = hashlib.sha256(context.encode()).hexdigest()[:40]
        content |= {"key": key, "name": context, "url": page}
    else:
        content |= {"context": context, "target_url": page}
    return notice.post(content, url + api.query, **api.headers)
