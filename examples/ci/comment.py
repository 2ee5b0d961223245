"""Keeps one comment of a pull request current: writes standard input in place of the last comment of the same
name, and deletes that where there is nothing to say. Needs Python alone.

    python ci/comment.py github production < flags.md

Copy it into your repository as ci/comment.py. NAME is that of `flagstaff plan --name NAME`.
"""

import json
import os
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

Comments = tuple[str, str, dict[str, str], str, Callable[[str], dict[str, Any]]]
"""Where comments are, and one of them; the header with the token; how one is changed, and its form."""
PAGES = 100


def main(forge: str, name: str, body: str) -> None:
    """Write, replace or delete the comment."""
    comments, one, header, update, wrap = FORGES[forge]()
    marker = f"[//]: # (flagstaff plan {name})"
    found = next((old["id"] for old in listed(comments, header) if text_of(old).startswith(marker)), None)
    if body:
        ask(*((comments, "POST") if found is None else (f"{one}/{found}", update)), header, wrap(body))
    elif found is not None:
        ask(f"{one}/{found}", "DELETE", header)


def github() -> Comments:
    """GitHub, and its servers."""
    repository = f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}/issues"
    return of_issue(repository, f"Bearer {os.environ['TOKEN']}")


def gitea() -> Comments:
    """Gitea and Forgejo."""
    server = os.environ["GITHUB_SERVER_URL"]
    repository = f"{server}/api/v1/repos/{os.environ['GITHUB_REPOSITORY']}/issues"
    return of_issue(repository, f"token {os.environ['TOKEN']}")


def of_issue(issues: str, token: str) -> Comments:
    """Comments of a pull request that is an issue, too."""
    comments = f"{issues}/{os.environ['NUMBER']}/comments"
    return comments, f"{issues}/comments", {"Authorization": token}, "PATCH", lambda body: {"body": body}


def gitlab() -> Comments:
    """GitLab."""
    project = f"{os.environ['CI_API_V4_URL']}/projects/{os.environ['CI_PROJECT_ID']}"
    notes = f"{project}/merge_requests/{os.environ['CI_MERGE_REQUEST_IID']}/notes"
    return notes, notes, {"PRIVATE-TOKEN": os.environ["FLAGS_TOKEN"]}, "PUT", lambda body: {"body": body}


def bitbucket() -> Comments:
    """Bitbucket Cloud."""
    server = os.environ.get("BITBUCKET_API_URL", "https://api.bitbucket.org/2.0")
    requests = f"{server}/repositories/{os.environ['BITBUCKET_REPO_FULL_NAME']}/pullrequests"
    comments = f"{requests}/{os.environ['BITBUCKET_PR_ID']}/comments"
    header = {"Authorization": f"Bearer {os.environ['FLAGS_TOKEN']}"}
    return comments, comments, header, "PUT", lambda body: {"content": {"raw": body}}


FORGES = {"github": github, "gitea": gitea, "gitlab": gitlab, "bitbucket": bitbucket}


def listed(comments: str, header: dict[str, str]) -> Iterator[Any]:
    """Yield all comments."""
    for page in range(1, PAGES + 1):
        found = ask(f"{comments}?per_page=100&pagelen=100&limit=100&page={page}", "GET", header)
        more = isinstance(found, list) or "next" in found
        found = found if isinstance(found, list) else found["values"]
        # Gitea lists all comments of an issue on every page.
        yield from found
        if not more or len(found) != 100:
            return


def text_of(comment: Any) -> str:
    """The Markdown of a comment; empty where it was deleted."""
    return comment.get("body") or comment.get("content", {}).get("raw") or ""


def ask(url: str, method: str, header: dict[str, str], content: Any = None) -> Any:
    """The answer of the code host."""
    data = None if content is None else json.dumps(content).encode()
    headers = {**header, "Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 - the code host's
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - as above
        return json.loads(response.read() or "null")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.stdin.read())
