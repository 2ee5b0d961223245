"""One comment on a pull request for each flag set made of it: what became of its commit, and what it would
change. Pure.

GitHub: https://docs.github.com/rest/issues/comments
GitLab: https://docs.gitlab.com/api/notes/#merge-requests
Gitea: https://docs.gitea.com/api/ (issueGetComments, issueCreateComment, issueEditComment)
Bitbucket: https://developer.atlassian.com/cloud/bitbucket/rest/api-group-pullrequests/
Azure DevOps: https://learn.microsoft.com/rest/api/azure/devops/git/pull-request-threads
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagset, shard
from controller.api.conditions import READY
from controller.api.configuration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.api.flagset import FlagSetStatus
from controller.api.meta import COMPARED_WITH, ObjectKey
from controller.api.provenance import CHANGES
from controller.delivery.changed_flags import changed_flags
from controller.delivery.delivered import delivered
from controller.notifications import messages
from controller.notifications.forms import commits
from controller.notifications.forms.posts import Post, changes, posted, title
from controller.notifications.forms.repositories import api_of
from evaluator.flags.diff import diff
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from controller.api.alert import FlagAlertSpec
    from controller.api.meta import Resource
    from controller.api.provider import Message
    from controller.notifications.forms.posts import Target
    from controller.notifications.forms.repositories import Api
    from controller.runtime.objects.cache import Cache
    from evaluator.flags.model import FlagSet

_AZURE: Final = "azuredevopspullrequestcomment"
_BITBUCKET: Final = "bitbucketpullrequestcomment"
TYPES: Final = frozenset(
    {
        _AZURE,
        _BITBUCKET,
        "giteapullrequestcomment",
        "githubpullrequestcomment",
        "gitlabmergerequestcomment",
    }
)
STANDING: Final = commits.TYPES | TYPES
"""Types that follow the status of flag sets and not Events."""
CHANGE_REQUEST: Final = "event.toolkit.fluxcd.io/change_request"
"""Flux's annotation: the number of a pull request."""
PAGE: Final = 20
"""Comments of one answer: one may have 64 KiB."""
MOST_PAGES: Final = 50
MOST_LINES: Final = 100
UNKNOWN: Final = "unknown: not both are whole"
_REQUEST: Final = re.compile(r"^refs/(?:pull|merge-requests)/([0-9]{1,12})/(?:head|merge)@")
_NUMBER: Final = re.compile(r"^[0-9]{1,12}$")
_LONG: Final = 2_000
_LISTS: Final = {_AZURE: "value", _BITBUCKET: "values"}
"""The field of an answer that has the comments, where that is not the list itself."""
_NONE: Final = "0"
"""The pull request of a message that names none: there is none of this number."""


@dataclass(frozen=True, slots=True)
class Thread:
    """Where the comments of one pull request are."""

    api: Api
    comments: str
    edits: str
    """What a comment's id is added to for its own URL."""
    size: str = "per_page"
    """The parameter for how many comments a page has; empty where there are no pages."""
    edit: str = "PATCH"
    order: str = ""
    """Has the oldest come first, where they do not by themselves."""

    def listed(self, page: int) -> Post:
        """Asks for a page of the comments, the oldest first."""
        query = f"?{self.size}={PAGE}&page={page}{self.order}" if self.size else self.api.query
        headers = {"Accept-Encoding": "identity", **self.api.headers}
        return Post(self.comments + query, b"", headers, "GET", whole=True)


def number_of(thing: Resource) -> str:
    """The pull request that a flag set is made of: by its annotation, else by its revision; empty where it is
    of none.
    """
    found = thing.annotations.get(CHANGE_REQUEST)
    if found is not None:
        return found if _NUMBER.match(found) else ""
    match = _REQUEST.match(FlagSetStatus.of(thing).content[0])
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
    """(the message about a flag set, what is remembered of it); None where it belongs to no pull request, or
    is under way.
    """
    number, status = number_of(thing), FlagSetStatus.of(thing)
    failing, words = status.failure, status.condition(READY).message
    if thing.key.kind != flagset.KIND or not number or not (failing or status.is_ready):
        return None
    other = ("", "") if base is None else (base.resource_version, str(FlagSetStatus.of(base).digest))
    facts = (number, failing, words, *status.content, str(status.digest), other[1])
    kept = f"{number} {hashlib.sha256(chr(10).join(facts).encode()).hexdigest()[:12]}"
    identity = f"{kept} {thing.resource_version} {other[0]}"
    given = {"reason": failing or "Applied", "message": words[:_LONG]}
    given |= {"state": "failing", "severity": "error"} if failing else {}
    message = messages.of_state(thing, alert, spec, identity, now, **given)
    return message.model_copy(update={"metadata": message.metadata | {CHANGE_REQUEST: number}}), kept


def compared(objects: Cache, message: Message, namespace: str) -> Message:
    """The message of a FlagSet that is compared with another, with a line for each flag that evaluates
    otherwise; any other message as it is. Takes long for large sets.
    """
    thing = objects.get(ObjectKey(message.kind, namespace, message.name))
    base = None if thing is None else base_of(objects, thing)
    if thing is None or base is None:
        return message
    old, new = (_flags(objects, each) for each in (base, thing))
    lines = UNKNOWN
    if old is not None and new is not None:
        lines = "\n".join(changed_flags(old, new, diff(old, new), MOST_LINES))
    more = {COMPARED_WITH: base.name, CHANGES: lines}
    return message.model_copy(update={"metadata": message.metadata | more})


def thread_of(message: Message, target: Target) -> Thread:
    """The comments of the pull request that a message is about."""
    api, type_, number = api_of(target), target.spec.type, message.metadata.get(CHANGE_REQUEST, _NONE)
    if type_ == "gitlabmergerequestcomment":
        notes = f"{api.url}/merge_requests/{number}/notes"
        return Thread(api, notes, notes, edit="PUT", order="&sort=asc&order_by=created_at")
    if type_ == _BITBUCKET:
        notes = f"{api.url}/pullrequests/{number}/comments"
        return Thread(api, notes, notes, "pagelen", edit="PUT")
    if type_ == _AZURE:
        threads = f"{api.url}/pullRequests/{number}/threads"
        return Thread(api, threads, threads, "")
    issues = f"{api.url}/issues"
    size = "" if type_ == "giteapullrequestcomment" else "per_page"
    return Thread(api, f"{issues}/{number}/comments", f"{issues}/comments", size)


def created(message: Message, target: Target) -> Post:
    """Adds the comment."""
    thread = thread_of(message, target)
    content = _content(message, target)
    if target.spec.type == _AZURE:
        # Closed: one that is active may keep the pull request from being completed.
        content = {"comments": [content | {"parentCommentId": 0, "commentType": 1}], "status": 4}
    return posted(thread.comments + thread.api.query, message, content, **thread.api.headers)


def edited(message: Message, target: Target, comment: str) -> Post:
    """Writes the comment with this id anew."""
    thread = thread_of(message, target)
    url = f"{thread.edits}/{comment}{thread.api.query}"
    post = posted(url, message, _content(message, target), **thread.api.headers)
    return replace(post, method=thread.edit)


def read(answer: bytes, type_: str) -> list[tuple[str, str]]:
    """Id, as `edited` takes it, and text of the comments in an answer to a provider of this type. Raises
    ValueError.
    """
    found: Any = json.loads(answer)
    if type_ in _LISTS and isinstance(found, dict):
        found = found.get(_LISTS[type_])
    if not isinstance(found, list):
        raise ValueError("not a list")  # noqa: TRY004 - as json has it
    whole = [each for each in found if isinstance(each, dict) and isinstance(each.get("id"), int)]
    return [_read_one(each, type_) for each in whole]


def _read_one(found: dict[str, Any], type_: str) -> tuple[str, str]:
    """One that was deleted cannot be edited, and has no text therefore."""
    number, text = str(found["id"]), found.get("body")
    gone: object = False
    match found:
        case {"comments": [{"id": int() as first, "content": text, **more}, *_]} if type_ == _AZURE:
            number, gone = f"{number}/comments/{first}", more.get("isDeleted") or found.get("isDeleted")
        case {"content": {"raw": text}} if type_ == _BITBUCKET:
            gone = found.get("deleted")
    return number, "" if gone else str(text)


def marker(message: Message, target: Target) -> str:
    """The beginning of the comment, which readers of the repository cannot guess before it is posted."""
    words = f"flagstaff:{hashlib.sha256(message.uid.encode()).hexdigest()[:32]}"
    # Bitbucket shows comments of HTML, and no definition of a link that nothing refers to.
    return f"[//]: # ({words})" if target.spec.type == _BITBUCKET else f"<!-- {words} -->"


def _content(message: Message, target: Target) -> dict[str, Any]:
    body = _body(message, target)
    if target.spec.type == _BITBUCKET:
        return {"content": {"raw": body}}
    return {"content" if target.spec.type == _AZURE else "body": body}


def _body(message: Message, target: Target) -> str:
    revision = message.metadata.get(REVISION_KEY, "")
    parts = [
        marker(message, target),
        f"**{title(message, target)}**: {message.reason}",
        _block("text", f"{revision}\n{message.message}".strip()),
    ]
    if base := message.metadata.get(COMPARED_WITH):
        parts.append(f"Compared with FlagSet {base}:")
        parts.append(_block("diff", changes(message) or "no flag differs"))
    return "\n\n".join(parts)


def _block(language: str, text: str) -> str:
    """Text that the server shows as it is: content of a repository makes no mentions and no links."""
    return f"```{language}\n{text.replace('```', chr(39) * 3)}\n```"


def _flags(objects: Cache, flag_set: Resource) -> FlagSet | None:
    """As the first object that the FlagSet writes has them; None where they are not whole."""
    namespace = flag_set.namespace
    for each in FlagSetStatus.of(flag_set).target:
        found = objects.get(ObjectKey(each.kind or "", namespace, each.name or ""))
        if found is not None:
            return _delivered(found, shard.finder(objects.get, namespace))
    return None


def _delivered(resource: Resource, part: Callable[[str], Resource | None]) -> FlagSet | None:
    try:
        found = delivered(resource, part).flag_set
    except (InvalidSpecError, MissingShardsError):
        return None
    # Both sets have an id of their own, and no flag answers otherwise for that.
    metadata = {name: value for name, value in found.metadata.items() if name != "flagSetId"}
    return replace(found, metadata=metadata)
