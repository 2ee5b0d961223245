"""Requests to Git servers about open pull requests: their list, and the comments of one. Pure.

GitHub: https://docs.github.com/rest/pulls/pulls
GitLab: https://docs.gitlab.com/api/merge_requests/
Gitea: https://docs.gitea.com/api/ (repoListPullRequests)
Bitbucket: https://developer.atlassian.com/cloud/bitbucket/rest/api-group-pullrequests/
Azure DevOps: https://learn.microsoft.com/rest/api/azure/devops/git/pull-requests/get-pull-requests
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.events.git_servers import api_of
from controller.events.notice import Post

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.events.notice import ProviderTarget

PAGE: Final = 10
"""Pull requests per page; each may have a text of 64 KiB."""
_COMMIT: Final = re.compile(r"[0-9a-f]{12,64}")
_BRANCH: Final = re.compile(r"[A-Za-z0-9][\w./+@#-]{0,254}", re.ASCII)
_MOST_LABELS: Final = 100


class PullRequest(NamedTuple):
    """One that is open."""

    number: int
    commit: str
    """Hexadecimal; of some servers the first digits alone."""
    reference: str
    """The full name under which the repository has the commit."""
    is_fork: bool
    """Whether the commit comes from another repository, and so from anybody."""
    labels: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Listing:
    """How a server lists them, the last that changed first, or of Azure DevOps the newest."""

    path: str
    read: Callable[[dict[str, Any]], PullRequest | None]
    page: str = "page={}"
    """What names a page in the query."""
    first: int = 1
    """What the first page is called; how much the next one is more by is `step`."""
    step: int = 1


def list_request(target: ProviderTarget, page: int, etag: str) -> Post:
    """Return the request for a page of the open pull requests, from 1. `etag`: of the last answer; empty:
    none.
    """
    api = api_of(target)
    headers = {**api.headers, **({"If-None-Match": etag} if etag else {})}
    listing = _LISTINGS[target.spec.type]
    place = listing.page.format(listing.first + listing.step * (page - 1))
    url = f"{api.url}/{listing.path}&{place}"
    return Post(url, b"", headers, "GET", whole=True)


def read_pull_requests(answer: bytes, type_: str) -> list[PullRequest]:
    """Return those of an answer that can be read. Raises ValueError."""
    found: Any = json.loads(answer)
    if isinstance(found, dict):
        # Azure DevOps has the second.
        found = found.get("values", found.get("value"))
    if not isinstance(found, list):
        raise ValueError("not a list")  # noqa: TRY004 - as json has it
    read = _LISTINGS[type_].read
    return [pull for entry in found if isinstance(entry, dict) and (pull := read(entry)) is not None]


def _of_github(entry: dict[str, Any]) -> PullRequest | None:
    head, base = _object(entry, "head"), _object(entry, "base")
    same = _id(head) is not None and _id(head) == _id(base)
    return _pull(entry.get("number"), head.get("sha"), "refs/pull/{}/head", entry.get("labels"), same=same)


def _of_gitlab(entry: dict[str, Any]) -> PullRequest | None:
    source, target = entry.get("source_project_id"), entry.get("target_project_id")
    return _pull(
        entry.get("iid"), entry.get("sha"), "refs/merge-requests/{}/head", entry.get("labels"),
        same=source is not None and source == target,
    )  # fmt: skip


def _of_bitbucket(entry: dict[str, Any]) -> PullRequest | None:
    source, destination = _object(entry, "source"), _object(entry, "destination")
    names = [_object(side, "repository").get("full_name") for side in (source, destination)]
    branch = _object(source, "branch").get("name")
    if not isinstance(branch, str) or not _BRANCH.fullmatch(branch):
        return None
    commit = _object(source, "commit").get("hash")
    same = names[0] is not None and names[0] == names[1]
    # The repository has no reference to the commit of a fork, and a pull request no label.
    return _pull(entry.get("id"), commit, f"refs/heads/{branch}", (), same=same)


def _of_azure(entry: dict[str, Any]) -> PullRequest | None:
    if entry.get("forkSource") is None:
        branch, commit = entry.get("sourceRefName"), _object(entry, "lastMergeSourceCommit")
        prefix, _, name = str(branch).partition("refs/heads/")
        reference = str(branch) if not prefix and _BRANCH.fullmatch(name) else ""
    else:
        # The repository has of a fork only what a merge would make.
        merged = entry.get("mergeStatus") == "succeeded"
        reference, commit = ("refs/pull/{}/merge" if merged else ""), _object(entry, "lastMergeCommit")
    if not reference:
        return None
    return _pull(
        entry.get("pullRequestId"), commit.get("commitId"), reference, entry.get("labels"),
        same=entry.get("forkSource") is None,
    )  # fmt: skip


def _pull(number: Any, commit: Any, reference: str, labels: Any, *, same: bool) -> PullRequest | None:
    if not isinstance(number, int) or not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        return None
    entries = labels[:_MOST_LABELS] if isinstance(labels, list) else ()
    names = (entry.get("name") if isinstance(entry, dict) else entry for entry in entries)
    known = frozenset(name for name in names if isinstance(name, str))
    return PullRequest(number, commit, reference.replace("{}", str(number)), not same, known)


def _object(entry: dict[str, Any], name: str) -> dict[str, Any]:
    found = entry.get(name)
    return found if isinstance(found, dict) else {}


def _id(side: dict[str, Any]) -> object:
    """The number of the repository of a side; None where it was deleted."""
    return _object(side, "repo").get("id")


_LISTINGS: Final = {
    "azuredevopspullrequestcomment": _Listing(
        f"pullrequests?searchCriteria.status=active&api-version=7.1&$top={PAGE}",
        _of_azure,
        "$skip={}",
        first=0,
        step=PAGE,
    ),
    "bitbucketpullrequestcomment": _Listing(
        f"pullrequests?state=OPEN&sort=-updated_on&pagelen={PAGE}", _of_bitbucket
    ),
    "giteapullrequestcomment": _Listing(f"pulls?state=open&sort=recentupdate&limit={PAGE}", _of_github),
    "githubpullrequestcomment": _Listing(
        f"pulls?state=open&sort=updated&direction=desc&per_page={PAGE}", _of_github
    ),
    "gitlabmergerequestcomment": _Listing(
        f"merge_requests?state=opened&order_by=updated_at&per_page={PAGE}", _of_gitlab
    ),
}
