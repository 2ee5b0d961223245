"""Requests to Git servers: statuses of commits, comments on pull requests, and tokens of GitHub Apps. Pure.

The status of a commit is pending once applied, success once served, failure with the first problem. Its name
is the same after the object was made again, so that branch protection can require it.

GitHub: https://docs.github.com/rest/commits/statuses
GitLab: https://docs.gitlab.com/api/commits/#set-commit-pipeline-status
Gitea: https://docs.gitea.com/api/ (repoCreateStatus)
Bitbucket: https://developer.atlassian.com/cloud/bitbucket/rest/api-group-commit-statuses/
Azure DevOps: https://learn.microsoft.com/rest/api/azure/devops/git/statuses/create

Short-lived tokens (one hour) of a GitHub App stand in place of personal tokens.

https://docs.github.com/apps/creating-github-apps/authenticating-with-a-github-app

A pull request has one comment per flag set made of it: its commit's state, and changed flags.

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
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args
from urllib.parse import quote, urlsplit

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from controller.api.addresses import parts_of, server_of
from controller.api.flagprovider import APP_ID, ProviderType
from controller.api.meta import COMPARED_WITH
from controller.events.commit_pages import commit_in, commit_page
from controller.events.flag_set_progress import CHANGE_REQUEST, state_name
from controller.events.notice import App, Notice, Post, ProviderTarget, basic, json_post
from controller.runtime.private_keys import read_private_key
from evaluator.flags.model import REVISION_KEY
from evaluator.host.texts import cut
from evaluator.host.times import parse_time

if TYPE_CHECKING:
    from controller.api.flagprovider import Message
    from controller.runtime.secret_texts import SecretTexts


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
    context = status_name(target, message)
    page, url = commit_page(server, target.address, commit), f"{api.url}/statuses/{commit}"
    text = message.message.replace("\n", " ")
    content: dict[str, Any] = {
        "state": _STATES.get(server, {}).get(state, state),
        # Most characters that GitHub accepts.
        "description": cut(text, 140),
    }
    if server == "azuredevops":
        url = f"{api.url}/commits/{commit}/statuses"
        content |= {
            "context": {"genre": _GENRE, "name": context.removeprefix(f"{_GENRE}/")},
            "targetUrl": page,
        }
    elif server == "bitbucket":
        url = f"{api.url}/commit/{commit}/statuses/build"
        key = hashlib.sha256(context.encode()).hexdigest()[:40]
        content |= {"key": key, "name": context, "url": page}
    else:
        content |= {"context": context, "target_url": page}
    return notice.post(content, url + api.query, **api.headers)


_GENRE: Final = "flagstaff"
_LONGEST_NAME: Final = 255
"""Most characters that GitLab, Gitea and Bitbucket keep of a status' name."""


def status_name(target: ProviderTarget, message: Message) -> str:
    """Return `flagstaff/CLUSTER/NAMESPACE/KIND/NAME`, without CLUSTER where ours has no name. The end of one
    that is too long is replaced by a digest.
    """
    name = "/".join(filter(None, (_GENRE, target.cluster, target.namespace, message.kind, message.name)))
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 13]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


INSTALLATION: Final = "githubAppInstallationID"
"""The Secret's keys are Flux's."""
KEY: Final = "githubAppPrivateKey"
BASE: Final = "githubAppBaseURL"


@dataclass(frozen=True, slots=True)
class Grant:
    """A token from the server."""

    token: str = field(repr=False)
    until: datetime
    """The time at which a new token is requested."""


def app_of(secret: SecretTexts) -> App | None:
    """Return the App of a Secret; None without one. Raises Stalled. Blocks for milliseconds."""
    if not any(secret.text(key) for key in (APP_ID, INSTALLATION, KEY)):
        return None
    app_id, installation = (secret.require(key, "for a GitHub App") for key in (APP_ID, INSTALLATION))
    secret.require(KEY, "for a GitHub App")
    key = secret.pem(KEY, "PRIVATE KEY")
    if not re.fullmatch(r"[A-Za-z0-9.]{1,64}", app_id):
        raise secret.invalid(f"{APP_ID!r} is neither an App's number nor its client id")
    if not re.fullmatch(r"[0-9]{1,20}", installation):
        raise secret.invalid(f"{INSTALLATION!r} is not a number")
    try:
        _load_key(key)
    except ValueError:
        raise secret.invalid(f"{KEY!r} is not an RSA key of at most 4096 bits without a password") from None
    return App(app_id, installation, key, secret.line(BASE).rstrip("/"))


def token_request(app: App, target: ProviderTarget, now: datetime) -> Post:
    """Return the request for a token. Blocks for milliseconds."""
    url = f"{github_api(target)}/app/installations/{app.installation}/access_tokens"
    return Post(url, b"", {"Authorization": f"Bearer {_json_web_token(app, now)}", **GITHUB}, whole=True)


def grant_of(answer: bytes, now: datetime) -> Grant:
    """Return the token in an answer. Raises ValueError."""
    answer_: Any = json.loads(answer)
    token, until = (
        answer_.get(name) if isinstance(answer_, dict) else None for name in ("token", "expires_at")
    )
    if not isinstance(token, str) or not re.fullmatch(r"[!-~]{1,2048}", token) or not isinstance(until, str):
        raise ValueError("no token")
    end = parse_time(until)
    return Grant(token, now if end is None else end - timedelta(minutes=5))


def _json_web_token(app: App, now: datetime) -> str:
    """Return a JSON Web Token that identifies the App."""
    import jwt  # noqa: PLC0415 - 3 MB, for Apps alone

    # Our clock may be ahead; the server accepts tokens that expire within ten minutes.
    times = {"iat": now - timedelta(minutes=1), "exp": now + timedelta(minutes=9)}
    return jwt.encode({**times, "iss": app.id}, _load_key(app.key), "RS256")


def _load_key(key: str) -> RSAPrivateKey:
    """Raises ValueError."""
    if len(key) > 4_096:
        raise ValueError("longer than any key of GitHub's")
    private_key, _ = read_private_key(key)
    if not isinstance(private_key, RSAPrivateKey):
        raise ValueError("not an RSA key")  # noqa: TRY004 - as cryptography has it
    return private_key


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


@dataclass(frozen=True, slots=True)
class CommentThread:
    """One comment of ours among those of a pull request."""

    target: ProviderTarget
    number: str
    """Of the pull request."""
    identity: str
    """What it is about; it replaces the comment of the same identity."""
    text: str
    """What it says, in Markdown; empty: that there is no comment."""
    key: str = ""
    """The key of the message that it delivers."""

    @classmethod
    def of_notice(cls, notice: Notice) -> CommentThread:
        """The comment that delivers a message."""
        message = notice.message
        # A test is sent to a pull request that does not exist.
        number = message.metadata.get(CHANGE_REQUEST, "0")
        return cls(notice.target, number, message.uid, _words(notice), message.key)

    @property
    def marker(self) -> str:
        """The beginning of the comment, which readers of the repository cannot guess before it is posted."""
        words = f"flagstaff:{hashlib.sha256(self.identity.encode()).hexdigest()[:32]}"
        # Bitbucket shows HTML comments, but hides unused link definitions.
        return f"[//]: # ({words})" if self._type == _BITBUCKET else f"<!-- {words} -->"

    @property
    def body(self) -> str:
        """The whole comment."""
        return f"{self.marker}\n\n{self.text}"

    @property
    def _type(self) -> str:
        return self.target.spec.type

    @property
    def _paths(self) -> _Paths:
        return _PATHS[self._type]

    @property
    def _api(self) -> Api:
        return api_of(self.target)

    def list_request(self, page: int) -> Post:
        """Return the request for a page of the comments, the oldest first."""
        size, order, api = self._paths.size, self._paths.order, self._api
        query = f"?{size}={PAGE}&page={page}{order}" if size else api.query
        headers = {"Accept-Encoding": "identity", **api.headers}
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
        return replace(self._post(self._content(), self._one(comment)), method=self._paths.edit)

    def delete_request(self, comment: str) -> Post:
        """Return the request that removes the comment with this id."""
        return Post(self._one(comment) + self._api.query, b"", self._api.headers, "DELETE")

    def _one(self, comment: str) -> str:
        return f"{self._url(self._paths.one or self._paths.comments)}/{comment}"

    def _url(self, path: str) -> str:
        return f"{self._api.url}/{path.format(self.number)}"

    def _post(self, content: dict[str, Any], url: str) -> Post:
        return json_post(content, url + self._api.query, self.key, self._api.headers)

    def _content(self) -> dict[str, Any]:
        if self._type == _BITBUCKET:
            return {"content": {"raw": self.body}}
        return {"content" if self._type == _AZURE else "body": self.body}


def _words(notice: Notice) -> str:
    """What a message says, in Markdown."""
    message = notice.message
    revision = message.metadata.get(REVISION_KEY, "")
    parts = [
        f"**{notice.title}**: {message.reason}",
        _block("text", f"{revision}\n{message.message}".strip()),
    ]
    if base := message.metadata.get(COMPARED_WITH):
        parts += [f"Compared with FlagSet {base}:", notice.changes or "no flag differs"]
    return "\n\n".join(parts)


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
