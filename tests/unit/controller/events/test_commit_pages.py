"""The pages of commits."""

from __future__ import annotations

import pytest

from controller.events.commit_pages import link
from tests.worlds.events import Desk, alert, event
from tests.worlds.objects import thing

COMMIT = "a1" * 20
REVISION = f"main@sha1:{COMMIT}"


@pytest.mark.parametrize(
    ("url", "page"),
    [
        ("https://github.com/shop/flags.git", f"https://github.com/shop/flags/commit/{COMMIT}"),
        ("https://ada:token@github.com/shop/flags", f"https://github.com/shop/flags/commit/{COMMIT}"),
        ("git@github.com:shop/flags.git", f"https://github.com/shop/flags/commit/{COMMIT}"),
        ("ssh://git@gitlab.com:22/a/b/flags", f"https://gitlab.com/a/b/flags/-/commit/{COMMIT}"),
        ("https://gitlab.example.com:8443/a/flags", f"https://gitlab.example.com:8443/a/flags/-/commit/{COMMIT}"),
        ("https://codeberg.org/a/flags", f"https://codeberg.org/a/flags/commit/{COMMIT}"),
        ("https://bitbucket.org/a/flags", f"https://bitbucket.org/a/flags/commits/{COMMIT}"),
        ("https://dev.azure.com/o/p/_git/r", f"https://dev.azure.com/o/p/_git/r/commit/{COMMIT}"),
        ("git@ssh.dev.azure.com:v3/o/p/r", f"https://dev.azure.com/o/p/_git/r/commit/{COMMIT}"),
        ("https://git.example.com/a/flags", ""),
        ("https://github.com/alone", ""),
        ("https://[github.com/shop/flags", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_commit_page_by_server(url: str, page: str) -> None:
    assert link(url, REVISION) == page


def test_bucket_revision_has_no_commit_page() -> None:
    assert link("https://github.com/shop/flags", f"sha256:{COMMIT}") == ""


def links(namespace: str) -> list[str]:
    source = {"kind": "FlagSource", "name": "flags", "namespace": namespace}
    flags = thing("FlagSet", "flags", {"sourceRef": source})
    desk = Desk(alert(), flags, thing("FlagSource", "flags", {"git": {"url": "git@github.com:shop/flags"}}))
    desk.accept(event("Applied", after={"lastAttemptedRevision": REVISION}))
    return [each.metadata.get("flagstaff.dev/link", "") for each in desk.box.pending.values()]


def test_a_message_has_the_page_of_its_commit_unless_the_source_is_of_another_namespace() -> None:
    assert links("shop") == [f"https://github.com/shop/flags/commit/{COMMIT}"]
    assert links("other") == [""]
