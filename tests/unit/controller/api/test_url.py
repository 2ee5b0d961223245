"""What is said of a source's address that cannot be used."""

from __future__ import annotations

import pytest

from controller.api.fields import InvalidSpecError, read
from controller.api.flagsource import FlagSourceSpec


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("git@github.com:a/b.git", "write ssh://git@github.com/a/b.git"),
        ("git@host:/srv/a.git", "write ssh://git@host/srv/a.git"),
        ("ftp://host/a", "must begin with https://, http:// or ssh://"),
        ("host/a", "must begin with https://, http:// or ssh://"),
    ],
)
def test_an_invalid_url_is_refused_with_a_valid_example(url: str, message: str) -> None:
    with pytest.raises(InvalidSpecError, match=message):
        read(FlagSourceSpec, {"interval": "1m", "git": {"url": url}})


@pytest.mark.parametrize("url", ["https://host/a", "ssh://git@host/a.git", "file:///srv/a.git"])
def test_urls_are_taken(url: str) -> None:
    git = read(FlagSourceSpec, {"interval": "1m", "git": {"url": url}}).git
    assert git is not None
    assert git.url == url
