"""Commit statuses: pending once applied, success once served, failure with the first problem. Pure.

GitHub: https://docs.github.com/rest/commits/statuses
GitLab: https://docs.gitlab.com/api/commits/#set-commit-pipeline-status
Gitea: https://docs.gitea.com/api/ (repoCreateStatus)
Bitbucket: https://developer.atlassian.com/cloud/bitbucket/rest/api-group-commit-statuses/
Azure DevOps: https://learn.microsoft.com/rest/api/azure/devops/git/statuses/create
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from controller.api.parsing.addresses import server_of
from controller.events.notifications.commit_pages import commit_in, commit_page
from controller.events.notifications.flag_set_progress import state_name
from controller.events.notifications.git_servers import api_of
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from controller.events.notifications.notice import Notice, Post

ASKED: Final = frozenset({"azuredevops", "bitbucket", "gitea"})
"""Types whose test also reads the repository: the answer to a status does not tell what is missing."""
_STATES: Final = {
    "azuredevops": {"success": "succeeded", "failure": "failed"},
    "bitbucket": {"pending": "INPROGRESS", "success": "SUCCESSFUL", "failure": "FAILED"},
    "gitlab": {"failure": "failed"},
}
"""A server's names of our states, where they differ."""


def status(notice: Notice) -> Post:
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
