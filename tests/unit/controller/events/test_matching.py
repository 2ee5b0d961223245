"""Which repository an address names, and which references follow a push."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.source_spec import GitReference
from controller.events.pushes import Push, follows, normalise_url

A = "a" * 40
B = "b" * 40


def push(reference: str | None) -> Push:
    return Push(("https://github.com/acme/flags.git",), reference, A, "identity")


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/acme/flags",
        "https://github.com/acme/flags.git",
        "https://github.com/acme/flags/",
        "https://GitHub.com/Acme/Flags.git/",
        "https://user@github.com:443/acme/flags",
        "ssh://git@github.com/acme/flags.git",
        "ssh://git@github.com:22/acme/flags",
        "ssh://git@ssh.github.com:443/acme/flags.git",
        "git@github.com:acme/flags.git",
        "github.com:/acme/flags",
        "git://github.com/acme/flags",
        "https://github.com./acme/flags",
        "https://github.com/acme/%66lags",
    ],
)
def test_one_repository_has_many_spellings(url: str) -> None:
    assert normalise_url(url) == "github.com/acme/flags"


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/acme/flags2",
        "https://github.com/acme",
        "https://github.com.evil.org/acme/flags",
        "https://evil.org/github.com/acme/flags",
        "https://evil.org/?https://github.com/acme/flags",
        "git@gitlab.com:acme/flags.git",
    ],
)
def test_another_repository_has_another_spelling(url: str) -> None:
    assert normalise_url(url) != "github.com/acme/flags"


@pytest.mark.parametrize("url", ["", "flags", "https://", "https://github.com", "https://[::1/x", "://x"])
def test_what_is_no_address_has_no_spelling(url: str) -> None:
    assert normalise_url(url) is None


@pytest.mark.parametrize(
    ("ref", "reference", "expected"),
    [
        pytest.param({}, "refs/heads/main", True, id="main by default"),
        pytest.param({}, "refs/heads/master", False, id="not master"),
        pytest.param({"branch": "x/y"}, "refs/heads/x/y", True, id="branch"),
        pytest.param({"branch": "main"}, "refs/tags/main", False, id="a tag is no branch"),
        pytest.param({"branch": "refs/heads/x"}, "refs/heads/x", True, id="branch by its full name"),
        pytest.param({"tag": "v1"}, "refs/tags/v1", True, id="tag"),
        pytest.param({"tag": "refs/tags/v1"}, "refs/tags/v1", True, id="tag by its full name"),
        pytest.param({"tag": "v1"}, "refs/heads/v1", False, id="a branch is no tag"),
        pytest.param({"semver": ">=1"}, "refs/tags/anything", True, id="semver"),
        pytest.param({"semver": ">=1"}, "refs/heads/main", False, id="semver and a branch"),
        pytest.param({"name": "refs/pull/4/head"}, "refs/pull/4/head", True, id="name"),
        pytest.param({"name": "refs/heads/x", "branch": "a"}, "refs/heads/a", False, id="name over branch"),
        pytest.param({"tag": "v1", "branch": "main"}, "refs/heads/main", False, id="tag over branch"),
        pytest.param({"tag": "v1", "semver": "*"}, "refs/tags/v2", False, id="tag over semver"),
        pytest.param({"commit": A, "branch": "x"}, "refs/heads/main", True, id="the pinned commit arrives"),
        pytest.param({"commit": B, "branch": "main"}, "refs/heads/main", False, id="another than the pinned"),
        pytest.param({"branch": "x"}, None, True, id="any reference may have changed"),
    ],
)  # fmt: skip
def test_a_source_is_woken_by_what_it_follows(
    ref: dict[str, str], reference: str | None, expected: bool
) -> None:
    assert follows(GitReference.model_validate(ref), push(reference)) is expected


def test_a_repository_on_disk_is_known_by_its_path() -> None:
    assert normalise_url("file:///srv/flags.git") == normalise_url("file:///srv/flags")


@given(st.text(max_size=60) | st.from_regex(r"[a-z]{0,5}://[^\n]{0,30}", fullmatch=True))
def test_no_address_is_too_odd_to_be_compared(url: str) -> None:
    found = normalise_url(url)
    assert found is None or found.partition("/")[2]
