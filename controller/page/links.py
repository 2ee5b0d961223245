"""Links to a Git server: commits, pull requests, lines of files. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.events.alerts.commit_pages import change_request_page, commit_in, file_link, link
from controller.page.page_source import FlagPlace

if TYPE_CHECKING:
    from controller.api.flagset_status import ProblemStatus
    from controller.page.page_source import FlagChange


def commit_link(address: str, change: FlagChange) -> str:
    """The page of a commit of the repository at `address`; empty where it is not known."""
    return link(address, f"@sha1:{change.commit}") if change.commit else ""


def request_link(address: str, change: FlagChange) -> str:
    """The page of the pull or merge request that the commit's subject names; empty where there is none."""
    return change_request_page(commit_link(address, change), change.subject)


def place_link(address: str, revision: str, place: FlagPlace) -> str:
    """The page of a line in a revision; empty where it is not known."""
    commit = commit_in(revision)
    return file_link(address, commit, place.file, place.line) if commit else ""


def problem_link(address: str, revision: str, problem: ProblemStatus) -> str:
    """The page of the line with a problem of a revision; empty where it is not known."""
    if not problem.file or not problem.line:
        return ""
    return place_link(address, revision, FlagPlace(problem.file, problem.line))


def revision_link(address: str, revision: str) -> str:
    """The page of a revision such as `main@sha1:…`; empty where it is not known."""
    return link(address, revision)
