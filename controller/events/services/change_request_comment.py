"""One comment on a pull request per flag set made of it: its commit's state, and changed flags. Pure.

GitHub: https://docs.github.com/rest/issues/comments
GitLab: https://docs.gitlab.com/api/notes/#merge-requests
Gitea: https://docs.gitea.com/api/ (issueGetComments, issueCreateComment, issueEditComment)
Bitbucket: https://developer.atlassian.com/cloud/bitbucket/rest/api-group-pullrequests/
Azure DevOps: https://learn.microsoft.com/rest/api/azure/devops/git/pull-request-threads
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from controller.api.objects.meta import COMPARED_WITH
from controller.events.alerts.flag_set_progress import CHANGE_REQUEST
from controller.events.services.git_servers import api_of
from controller.events.services.notice import Post
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from controller.events.services.git_servers import Api
    from controller.events.services.notice import Notice

_AZURE: Final = "azuredevopspullrequestcomment"
_BITBUCKET: Final = "bitbucketpullrequestcomment"
PAGE: Final = 20
"""Comments per page; each may have 64 KiB."""
MOST_PAGES: Final = 50


@dataclass(frozen=True, slots=True)
class _Paths:
    """Paths of the comments of a pull request, below the repository's API."""

    comments: str
    one: str = ""
    """Path before a comment's id; empty: the same as of the list."""
    size: str = "per_page"
    """Query parameter of the page size; empty if there are no pages."""
    edit: str = "PATCH"
    order: str = ""
    """Query that sorts the oldest first, if that is not the default."""


_ISSUE: Final = ("issues/{}/comments", "issues/comments")
_PATHS: Final = {
    _AZURE: _Paths("pullRequests/{}/threads", size=""),
    _BITBUCKET: _Paths("pullrequests/{}/comments", size="pagelen", edit="PUT"),
    "giteapullrequestcomment": _Paths(*_ISSUE, size=""),
    "githubpullrequestcomment": _Paths(*_ISSUE),
    "gitlabmergerequestcomment": _Paths(
        "merge_requests/{}/notes", edit="PUT", order="&sort=asc&order_by=created_at"
    ),
}


class CommentThread:
    """The comments of the pull request that a message is about."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice
        self._type = notice.target.spec.type
        self._paths = _PATHS[self._type]
        self._api: Api = api_of(notice.target)
        # A test is sent to a pull request that does not exist.
        self._number = notice.message.metadata.get(CHANGE_REQUEST, "0")
        words = f"flagstaff:{hashlib.sha256(notice.message.uid.encode()).hexdigest()[:32]}"
        # Bitbucket shows HTML comments, but hides unused link definitions.
        self.marker = f"[//]: # ({words})" if self._type == _BITBUCKET else f"<!-- {words} -->"
        """The beginning of the comment, which readers of the repository cannot guess before it is posted."""

    def list_request(self, page: int) -> Post:
        """Return the request for a page of the comments, the oldest first."""
        size, order = self._paths.size, self._paths.order
        query = f"?{size}={PAGE}&page={page}{order}" if size else self._api.query
        headers = {"Accept-Encoding": "identity", **self._api.headers}
        return Post(self._url(self._paths.comments) + query, b"", headers, "GET", whole=True)

    def is_last(self, count: int) -> bool:
        """Whether a page with `count` comments is the last."""
        return not self._paths.size or count < PAGE

    def create_request(self) -> Post:
        """Return the request that adds the comment."""
        content = self._content()
        if self._type == _AZURE:
            # Closed: an active thread may block the pull request.
            content = {"comments": [content | {"parentCommentId": 0, "commentType": 1}], "status": 4}
        return self._post(content, self._url(self._paths.comments))

    def edit_request(self, comment: str) -> Post:
        """Return the request that replaces the comment with this id."""
        url = f"{self._url(self._paths.one or self._paths.comments)}/{comment}"
        return replace(self._post(self._content(), url), method=self._paths.edit)

    def _url(self, path: str) -> str:
        return f"{self._api.url}/{path.format(self._number)}"

    def _post(self, content: dict[str, Any], url: str) -> Post:
        return self._notice.post(content, url + self._api.query, **self._api.headers)

    def _content(self) -> dict[str, Any]:
        message = self._notice.message
        revision = message.metadata.get(REVISION_KEY, "")
        parts = [
            self.marker,
            f"**{self._notice.title}**: {message.reason}",
            _block("text", f"{revision}\n{message.message}".strip()),
        ]
        if base := message.metadata.get(COMPARED_WITH):
            parts.append(f"Compared with FlagSet {base}:")
            parts.append(_block("diff", self._notice.changes or "no flag differs"))
        body = "\n\n".join(parts)
        if self._type == _BITBUCKET:
            return {"content": {"raw": body}}
        return {"content" if self._type == _AZURE else "body": body}


def read_comments(answer: bytes, type_: str) -> list[tuple[str, str]]:
    """Return (id for `edited`, text) of each comment in an answer. Raises ValueError."""
    comments: Any = json.loads(answer)
    if isinstance(comments, dict) and type_ in {_AZURE, _BITBUCKET}:
        comments = comments.get("value" if type_ == _AZURE else "values")
    if not isinstance(comments, list):
        raise ValueError("not a list")  # noqa: TRY004 - as json has it
    whole = [
        comment for comment in comments if isinstance(comment, dict) and isinstance(comment.get("id"), int)
    ]
    return [_read_comment(comment, type_) for comment in whole]


def _read_comment(comment: dict[str, Any], type_: str) -> tuple[str, str]:
    """Return a comment's id and text; no text for a deleted one, which cannot be edited."""
    number, text = str(comment["id"]), comment.get("body")
    gone: object = False
    match comment:
        case {"comments": [{"id": int() as first, "content": text, **more}, *_]} if type_ == _AZURE:
            number, gone = f"{number}/comments/{first}", more.get("isDeleted") or comment.get("isDeleted")
        case {"content": {"raw": text}} if type_ == _BITBUCKET:
            gone = comment.get("deleted")
    return number, "" if gone else str(text)


def _block(language: str, text: str) -> str:
    """Return a code block, in which content of a repository makes no mentions and no links."""
    return f"```{language}\n{text.replace('```', chr(39) * 3)}\n```"
