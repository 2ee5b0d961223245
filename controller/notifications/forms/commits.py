"""Statuses of commits, as Git servers show them beside a commit: pending once it is applied, success once it
is served, failure with the first problem. Pure.

GitHub: https://docs.github.com/rest/commits/statuses
GitLab: https://docs.gitlab.com/api/commits/#set-commit-pipeline-status
Gitea: https://docs.gitea.com/api/ (repoCreateStatus)
Bitbucket: https://developer.atlassian.com/cloud/bitbucket/rest/api-group-commit-statuses/
Azure DevOps: https://learn.microsoft.com/rest/api/azure/devops/git/statuses/create
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagset
from controller.api.conditions import PROPAGATED, READY, TRUE, UNKNOWN, failure, find
from controller.notifications import messages
from controller.notifications.forms.links import commit_in, commit_page
from controller.notifications.forms.posts import Post, bearer, posted, title
from controller.notifications.forms.repositories import (
    AZURE_VERSION,
    GITHUB,
    azure_login,
    azure_repository,
    bitbucket_login,
    bitbucket_repository,
    gitea_login,
    gitea_repository,
    github_api,
    gitlab_project,
    quoted,
)
from controller.runtime.events import content
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from datetime import datetime

    from controller.api.alert import FlagAlertSpec
    from controller.api.meta import Resource
    from controller.api.provider import Message
    from controller.notifications.forms.posts import Target

TYPES: Final = frozenset({"azuredevops", "bitbucket", "gitea", "github", "gitlab"})
ASKED: Final = frozenset({"azuredevops", "bitbucket", "gitea"})
"""Types whose test looks at the repository, too: the answer to a status does not say what is missing."""
_NOWHERE: Final = "0" * 40
"""The commit of a test: a server that answers that there is no such commit has accepted address and token."""
_LONG: Final = 2_000
_TEXT: Final = 140
"""Characters of a description: GitHub takes no more."""


def commit_of(message: Message) -> str:
    """The commit that a message is about, in hexadecimal; empty where it is about none."""
    return commit_in(message.metadata.get(REVISION_KEY, ""))


def standing_of(
    thing: Resource, before: str, alert: Resource, spec: FlagAlertSpec, now: datetime
) -> tuple[Message, str] | None:
    """(the status for the commit that a flag set was last made of, what is remembered of it); None where
    there is no commit. `before`: what is remembered of the last status.
    """
    if thing.key.kind != flagset.KIND:
        return None
    ready, propagated = (find(thing.status, each) or {} for each in (READY, PROPAGATED))
    words, reason, state = str(ready.get("message") or ""), "Applied", None
    if failure(thing.status):
        reason, state = failure(thing.status), "failing"
    elif ready.get("status") == TRUE and propagated.get("status") in {TRUE, UNKNOWN}:
        reason, words = PROPAGATED, str(propagated.get("message"))
    identity = f"{content(thing.status)[0]} {reason} {words} {ready.get('lastTransitionTime')}"
    message = messages.of_state(thing, alert, spec, identity, now)
    severity = "error" if state else "info"
    given = {"reason": reason, "message": words[:_LONG], "state": state, "severity": severity}
    message = message.model_copy(update=given)
    return (message, _remembered(message, before)) if commit_of(message) else None


def _remembered(message: Message, before: str) -> str:
    """What is remembered of a status that was reported; `before` where it says nothing new to the commit: a
    revision that all served stays so while others subscribe.
    """
    commit = commit_of(message)[:12]
    now = f"{commit} {_state(message)}"
    return before if before == f"{commit} success" and now == f"{commit} pending" else now


def github(message: Message, target: Target) -> Post:
    """A commit status on github.com, or on a GitHub server of one's own."""
    states = {"pending": "pending", "success": "success", "failure": "failure"}
    url = f"{github_api(target)}/repos/{quoted(target)}/statuses/{_commit(message)}"
    return posted(url, message, _flat(message, target, states), **bearer(target), **GITHUB)


def githubdispatch(message: Message, target: Target) -> Post:
    """A repository_dispatch event, named as Flux names it, which starts workflows; not a status."""
    event = messages.event_json(message, target.namespace, target.instance)
    content = {"event_type": title(message, target)[:100], "client_payload": event}
    url = f"{github_api(target)}/repos/{quoted(target)}/dispatches"
    return posted(url, message, content, **bearer(target), **GITHUB)


def gitea(message: Message, target: Target) -> Post:
    """A commit status on Gitea or Forgejo."""
    url = f"{gitea_repository(target)}/statuses/{_commit(message)}"
    states = {"pending": "pending", "success": "success", "failure": "failure"}
    return posted(url, message, _flat(message, target, states), **gitea_login(target))


def gitlab(message: Message, target: Target) -> Post:
    """A commit status on gitlab.com, or on a GitLab server of one's own; a project is named by its whole
    path.
    """
    url = f"{gitlab_project(target)}/statuses/{_commit(message)}"
    states = {"pending": "pending", "success": "success", "failure": "failed"}
    return posted(url, message, _flat(message, target, states), **{"PRIVATE-TOKEN": target.token})


def bitbucket(message: Message, target: Target) -> Post:
    """A build status on Bitbucket Cloud: by an access token, or by `user:password` of an app."""
    url = f"{bitbucket_repository(target)}/commit/{_commit(message)}/statuses/build"
    states = {"pending": "INPROGRESS", "success": "SUCCESSFUL", "failure": "FAILED"}
    content = {
        "key": hashlib.sha256(_context(message).encode()).hexdigest()[:40],
        "state": states[_state(message)],
        "name": _context(message),
        "description": _description(message),
        "url": _page(message, target),
    }
    return posted(url, message, content, **bitbucket_login(target))


def azuredevops(message: Message, target: Target) -> Post:
    """By a personal access token."""
    states = {"pending": "pending", "success": "succeeded", "failure": "failed"}
    content = {
        "state": states[_state(message)],
        "description": _description(message),
        "context": {"genre": "flagstaff", "name": _context(message)},
        "targetUrl": _page(message, target),
    }
    url = f"{azure_repository(target)}/commits/{_commit(message)}/statuses{AZURE_VERSION}"
    return posted(url, message, content, **azure_login(target))


def repository(target: Target) -> Post:
    """Asks whether the repository is there, on one of the servers in `ASKED`."""
    url, login, query = {
        "azuredevops": (azure_repository, azure_login, AZURE_VERSION),
        "bitbucket": (bitbucket_repository, bitbucket_login, ""),
        "gitea": (gitea_repository, gitea_login, ""),
    }[target.spec.type]
    return Post(url(target) + query, b"", {"Accept-Encoding": "identity", **login(target)}, "GET")


def _flat(message: Message, target: Target, states: dict[str, str]) -> dict[str, Any]:
    return {
        "state": states[_state(message)],
        "context": _context(message),
        "description": _description(message),
        "target_url": _page(message, target),
    }


def _page(message: Message, target: Target) -> str:
    """Where the status leads."""
    return commit_page(target.spec.type, target.address, _commit(message))


def _state(message: Message) -> str:
    """A flag set is applied before it is served."""
    if message.state == "failing":
        return "failure"
    return "success" if message.reason == PROPAGATED else "pending"


def _context(message: Message) -> str:
    """What keeps the statuses of a commit apart: those of one object replace each other."""
    return f"flagstaff/{message.kind}/{message.name}/{message.uid[:8]}"[:255]


def _description(message: Message) -> str:
    text = message.message.replace("\n", " ")
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"


def _commit(message: Message) -> str:
    return commit_of(message) or _NOWHERE
