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
from controller.api.parsing.addresses import server_of
from controller.notifications import messages
from controller.notifications.forms.posts import posted, title
from controller.notifications.forms.repositories import api_of, commit_in, commit_page
from controller.runtime.events import content
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from datetime import datetime

    from controller.api.alert import FlagAlertSpec
    from controller.api.meta import Resource
    from controller.api.provider import Message
    from controller.notifications.forms.posts import Post, Target

TYPES: Final = frozenset({"azuredevops", "bitbucket", "gitea", "github", "gitlab"})
ASKED: Final = frozenset({"azuredevops", "bitbucket", "gitea"})
"""Types whose test looks at the repository, too: the answer to a status does not say what is missing."""
_NOWHERE: Final = "0" * 40
"""The commit of a test: a server that answers that there is no such commit has accepted address and token."""
_STATES: Final = {
    "azuredevops": {"success": "succeeded", "failure": "failed"},
    "bitbucket": {"pending": "INPROGRESS", "success": "SUCCESSFUL", "failure": "FAILED"},
    "gitlab": {"failure": "failed"},
}
"""By server: its words for our states, where they differ."""
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
    words, reason = str(ready.get("message") or ""), failure(thing.status) or "Applied"
    failing = bool(failure(thing.status))
    if not failing and ready.get("status") == TRUE and propagated.get("status") in {TRUE, UNKNOWN}:
        reason, words = PROPAGATED, str(propagated.get("message"))
    identity = f"{content(thing.status)[0]} {reason} {words} {ready.get('lastTransitionTime')}"
    given = {"reason": reason, "message": words[:_LONG]}
    given |= {"state": "failing", "severity": "error"} if failing else {}
    message = messages.of_state(thing, alert, spec, identity, now, **given)
    return (message, _remembered(message, before)) if commit_of(message) else None


def _remembered(message: Message, before: str) -> str:
    """What is remembered of a status that was reported; `before` where it says nothing new to the commit: a
    revision that all served stays so while others subscribe.
    """
    commit = commit_of(message)[:12]
    now = f"{commit} {_state(message)}"
    return before if before == f"{commit} success" and now == f"{commit} pending" else now


def status(message: Message, target: Target) -> Post:
    """The status of the message's commit, as the target's server takes it."""
    server, api, commit = server_of(target.spec.type), api_of(target), commit_of(message) or _NOWHERE
    state = _state(message)
    # Those of one object replace each other.
    context = f"flagstaff/{message.kind}/{message.name}/{message.uid[:8]}"[:255]
    page, url = commit_page(server, target.address, commit), f"{api.url}/statuses/{commit}"
    content: dict[str, Any] = {
        "state": _STATES.get(server, {}).get(state, state),
        "description": _description(message),
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
    return posted(url + api.query, message, content, **api.headers)


def githubdispatch(message: Message, target: Target) -> Post:
    """A repository_dispatch event, named as Flux names it, which starts workflows; not a status."""
    event = messages.event_json(message, target.namespace, target.instance)
    content = {"event_type": title(message, target)[:100], "client_payload": event}
    api = api_of(target)
    return posted(f"{api.url}/dispatches", message, content, **api.headers)


def _state(message: Message) -> str:
    """A flag set is applied before it is served."""
    if message.state == "failing":
        return "failure"
    return "success" if message.reason == PROPAGATED else "pending"


def _description(message: Message) -> str:
    text = message.message.replace("\n", " ")
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"
