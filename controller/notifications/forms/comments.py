"""One comment on a pull request for each flag set made of it: what became of its commit, and what it would
change. Pure.

GitHub: https://docs.github.com/rest/issues/comments
GitLab: https://docs.gitlab.com/api/notes/#merge-requests
Gitea: https://docs.gitea.com/api/ (issueGetComments, issueCreateComment, issueEditComment)
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagset
from controller.api.conditions import READY, TRUE, failure, find
from controller.api.meta import COMPARED_WITH, ObjectKey
from controller.notifications import messages
from controller.notifications.forms import commits
from controller.notifications.forms.posts import Post, bearer, changes, posted, title
from controller.notifications.forms.repositories import GITHUB, github_api, gitlab_project, origin, quoted
from controller.runtime.events import content
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from datetime import datetime

    from controller.api.alert import FlagAlertSpec
    from controller.api.meta import Resource
    from controller.api.provider import Message
    from controller.notifications.forms.posts import Target
    from controller.runtime.cache import Cache

TYPES: Final = frozenset({"giteapullrequestcomment", "githubpullrequestcomment", "gitlabmergerequestcomment"})
STANDING: Final = commits.TYPES | TYPES
"""Types that follow the status of flag sets and not Events."""
CHANGE_REQUEST: Final = "event.toolkit.fluxcd.io/change_request"
"""Flux's annotation: the number of a pull request."""
PAGE: Final = 20
"""Comments of one answer: one may have 64 KiB."""
MOST_PAGES: Final = 50
_REQUEST: Final = re.compile(r"^refs/(?:pull|merge-requests)/([0-9]{1,12})/(?:head|merge)@")
_NUMBER: Final = re.compile(r"^[0-9]{1,12}$")
_LONG: Final = 2_000
_NONE: Final = "0"
"""The pull request of a test: there is none of this number."""


@dataclass(frozen=True, slots=True)
class Thread:
    """Where the comments of one pull request are."""

    repository: str
    """The URL of the repository in the API."""
    comments: str
    edits: str
    """What a comment's number is added to for its own URL."""
    headers: dict[str, str]
    paged: bool = True
    edit: str = "PATCH"
    query: str = ""
    """Has the oldest come first, where they do not by themselves."""

    def listed(self, page: int) -> Post:
        """Asks for a page of the comments, the oldest first."""
        url = f"{self.comments}?per_page={PAGE}&page={page}{self.query}" if self.paged else self.comments
        return self._asked(url)

    def exists(self) -> Post:
        """Asks whether the repository is there."""
        return self._asked(self.repository)

    def _asked(self, url: str) -> Post:
        return Post(url, b"", {"Accept-Encoding": "identity", **self.headers}, "GET", whole=True)


def number_of(thing: Resource) -> str:
    """The pull request that a flag set is made of: by its annotation, else by its revision; empty where it is
    of none.
    """
    found = thing.annotations.get(CHANGE_REQUEST)
    if found is not None:
        return found if _NUMBER.match(found) else ""
    match = _REQUEST.match(content(thing.status)[0])
    return match[1] if match else ""


def base_of(objects: Cache, thing: Resource) -> Resource | None:
    """What a flag set is compared with."""
    name = thing.annotations.get(COMPARED_WITH, "")
    return objects.get(ObjectKey(flagset.KIND, thing.namespace, name))


def compared_with(objects: Cache, base: Resource) -> list[Resource]:
    """The flag sets that are compared with one."""
    beside = objects.of_kind(flagset.KIND, base.namespace)
    return [each for each in beside if each.annotations.get(COMPARED_WITH) == base.name]


def standing_of(
    thing: Resource, base: Resource | None, alert: Resource, spec: FlagAlertSpec, now: datetime
) -> tuple[Message, str] | None:
    """What is told of a flag set, and what is kept of that; None: it is of no pull request, or under way."""
    number, failing = number_of(thing), failure(thing.status)
    ready = find(thing.status.get("conditions") or (), READY) or {}
    if thing.key.kind != flagset.KIND or not number or not (failing or ready.get("status") == TRUE):
        return None
    words = str(ready.get("message") or "")
    other = ("", "") if base is None else (base.resource_version, str(base.status.get("digest")))
    facts = (number, failing, words, *content(thing.status), str(thing.status.get("digest")), other[1])
    kept = f"{number} {hashlib.sha256(chr(10).join(facts).encode()).hexdigest()[:12]}"
    message = messages.of_state(thing, alert, spec, f"{kept} {thing.resource_version} {other[0]}", now)
    given = {
        "reason": failing or "Applied",
        "message": words[:_LONG],
        "state": "failing" if failing else None,
        "severity": "error" if failing else "info",
        "metadata": message.metadata | {CHANGE_REQUEST: number},
    }
    return message.model_copy(update=given), kept


def thread_of(message: Message, target: Target) -> Thread:
    """Of the pull request that a message is about."""
    number = message.metadata.get(CHANGE_REQUEST, _NONE)
    if target.spec.type == "gitlabmergerequestcomment":
        base, headers = gitlab_project(target), {"PRIVATE-TOKEN": target.token}
        notes = f"{base}/merge_requests/{number}/notes"
        return Thread(base, notes, notes, headers, edit="PUT", query="&sort=asc&order_by=created_at")
    if target.spec.type == "giteapullrequestcomment":
        base = f"{origin(target)}/api/v1/repos/{quoted(target)}"
        headers, paged = {"Authorization": f"token {target.token}"}, False
    else:
        base, headers, paged = f"{github_api(target)}/repos/{quoted(target)}", bearer(target) | GITHUB, True
    issues = f"{base}/issues"
    return Thread(base, f"{issues}/{number}/comments", f"{issues}/comments", headers, paged)


def created(message: Message, target: Target) -> Post:
    """Adds the comment."""
    thread = thread_of(message, target)
    return posted(thread.comments, message, {"body": _body(message, target)}, **thread.headers)


def edited(message: Message, target: Target, comment: int) -> Post:
    """Writes the comment with this number anew."""
    thread = thread_of(message, target)
    post = posted(f"{thread.edits}/{comment}", message, {"body": _body(message, target)}, **thread.headers)
    return Post(post.url, post.body, post.headers, thread.edit)


def read(answer: bytes) -> list[tuple[int, str]]:
    """Number and text of the comments in an answer. Raises ValueError."""
    found: Any = json.loads(answer)
    if not isinstance(found, list):
        raise ValueError("not a list")  # noqa: TRY004 - as json has it
    whole = [each for each in found if isinstance(each, dict) and isinstance(each.get("id"), int)]
    return [(each["id"], str(each.get("body"))) for each in whole]


def marker(message: Message) -> str:
    """How the comment begins: nobody who only reads the repository can guess it before it is there."""
    return f"<!-- flagstaff:{hashlib.sha256(message.uid.encode()).hexdigest()[:32]} -->"


def _body(message: Message, target: Target) -> str:
    revision = message.metadata.get(REVISION_KEY, "")
    parts = [
        marker(message),
        f"**{title(message, target)}**: {message.reason}",
        _block("text", f"{revision}\n{message.message}".strip()),
    ]
    if base := message.metadata.get(COMPARED_WITH):
        parts.append(f"Compared with FlagSet {base}:")
        parts.append(_block("diff", changes(message) or "no flag differs"))
    return "\n\n".join(parts)


def _block(language: str, text: str) -> str:
    """Text that the server shows as it is: what stands in a repository mentions nobody, and links nowhere."""
    return f"```{language}\n{text.replace('```', chr(39) * 3)}\n```"
