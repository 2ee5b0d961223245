"""Pages of change requests, by the subjects of their commits."""

from __future__ import annotations

import pytest

from controller.events.commit_pages import change_request_page

COMMIT = "a" * 40


@pytest.mark.parametrize(
    ("page", "subject", "expected"),
    [
        ("https://github.com/shop/flags/commit/", "Snow (#12)", "https://github.com/shop/flags/pull/12"),
        (
            "https://github.com/shop/flags/commit/",
            "Merge pull request #7 from ada/snow",
            "https://github.com/shop/flags/pull/7",
        ),
        (
            "https://gitlab.com/shop/flags/-/commit/",
            "Snow (!3)",
            "https://gitlab.com/shop/flags/-/merge_requests/3",
        ),
        ("https://codeberg.org/shop/flags/commit/", "Snow (#4)", "https://codeberg.org/shop/flags/pulls/4"),
        (
            "https://bitbucket.org/shop/flags/commits/",
            "Merged in snow (pull request #5)",
            "https://bitbucket.org/shop/flags/pull-requests/5",
        ),
        (
            "https://dev.azure.com/shop/web/_git/flags/commit/",
            "Merged PR 6: snow",
            "https://dev.azure.com/shop/web/_git/flags/pullrequest/6",
        ),
        ("https://github.com/shop/flags/commit/", "Snow, see #12", ""),
    ],
)
def test_change_request_is_the_one_that_the_subject_names(page: str, subject: str, expected: str) -> None:
    assert change_request_page(f"{page}{COMMIT}", subject) == expected
    assert change_request_page("", subject) == ""
