"""Every command of the guides and of the first screens of other pages, typed in order."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.guides import PLAYED, ROOT, play
from tests.registry.program import run_registry

if TYPE_CHECKING:
    from pathlib import Path

LONG: Final = pytest.mark.long
OPTIONS: Final = {"--sign": "../ci.key", "--verify-key": "../ci.pub"}
GUIDES: Final = sorted(f"docs/guides/{path.name}" for path in ROOT.glob("docs/guides/*.md"))
"""Those below docs/guides/on-a-cluster are run by tests/cluster/test_guides.py."""


@pytest.mark.parametrize("page", ["docs/tutorial.md", *(pytest.param(page, marks=LONG) for page in GUIDES)])
def test_every_command_of_a_guide_prints_what_the_guide_says(page: str, tmp_path: Path) -> None:
    play(page, tmp_path)


@pytest.mark.parametrize("page", PLAYED)
def test_every_command_of_another_page_prints_what_the_page_says(page: str, tmp_path: Path) -> None:
    end = "## `--output json`" if page == "docs/up.md" else ""
    words = {"/home/ada": str(tmp_path), "/var/lib/flagstaff": f"{tmp_path}/state"}
    play(page, tmp_path, prologue=PLAYED[page], end=end, commands_only=not end, words=words)


def test_what_ci_does_for_clusters_that_pull_prints_what_the_page_says(tmp_path: Path) -> None:
    registry, home = tmp_path / "registry", tmp_path / "home"
    registry.mkdir()
    home.mkdir()
    with run_registry(registry) as port:
        insecure = {f"{word} {name}": f"{word} {name} --insecure" for word, name in OPTIONS.items()}
        play(
            "docs/clusters-by-pull.md", home, prologue=PLAYED["docs/up.md"], commands_only=True,
            elsewhere=(
                "flagstaff promote oci://registry.example.com/shop/flags@", "flagstaff fleet ", "kubectl ",
            ),
            words={"registry.example.com": f"127.0.0.1:{port}", **insecure},
        )  # fmt: skip


@pytest.mark.parametrize(
    ("said", "printed"),
    [("$ echo one\n    two", "it printed\none"), ("$ echo one; false", "it ended with 1")],
)
def test_guide_that_says_something_else_fails(said: str, printed: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"    {said}\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=printed):
        play(str(page), tmp_path)


@pytest.mark.parametrize(
    ("page", "demo", "end"),
    [
        ("README.md", "demo", "## Who it is for"),
        pytest.param("docs/rollouts.md", "demo_rollout", "## On a cluster", marks=LONG),
    ],
)
def test_first_screen_of_a_page_prints_what_it_says(page: str, demo: str, end: str, tmp_path: Path) -> None:
    clone = tmp_path / "flagstaff"
    clone.mkdir()
    (clone / "examples").symlink_to(ROOT / "examples")
    (clone / ".venv").symlink_to(sys.prefix)
    # A busy machine is warned of, and no part of the page.
    warnings = "2> >(grep -v 'the event loop was held' >&2)"
    prologue = f"cd flagstaff; make() {{ python examples/{demo}.py {warnings}; }}"
    play(page, tmp_path, prologue=prologue, end=end, words={"/home/ada": str(tmp_path)})
