"""The history of flags, read from a repository on this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from controller.local.local_options import LocalOptions
from controller.local.local_page import LocalHistory
from controller.page.page_source import LayerPlace
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path


def document(**defaults: str) -> str:
    flags = {
        key: {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": default}
        for key, default in defaults.items()
    }
    return json.dumps({"flags": flags}, indent=2)


def differences(history: LocalHistory, key: str) -> list[tuple[str, str]]:
    return [(change.subject, change.difference) for change in history.of(key).changes]


def nothing() -> None:
    pass


def test_each_commit_that_changed_a_flag_is_described_in_words(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "flags")
    repository.commit("first", flags__json=document(a="on", b="on"))
    repository.commit("beside", readme__md="words")
    repository.commit("second", flags__json=document(a="off", b="on"))
    repository.commit("third", flags__json=document(b="on", c="on"))
    history = LocalHistory(repository.path, LocalOptions(str(repository.path)))
    history.read("", nothing)
    assert differences(history, "a") == [
        ("third", "removed"),
        ("second", "default on (true) → off (false)"),
        ("first", "added, default on (true)"),
    ]
    assert differences(history, "b") == [("first", "added, default on (true)")]
    assert history.of("b").places == (LayerPlace("flags.json", 3),)
    assert history.of("c").gap == ""
    assert history.last_changes["c"].author == "Ada <ada@example.com>"


def test_new_commits_are_added_to_what_was_read_and_a_rewritten_history_replaces_it(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "flags")
    first = repository.commit("first", flags__json=document(a="on"))
    history = LocalHistory(repository.path, LocalOptions(str(repository.path)))
    history.read("", nothing)
    repository.commit("second", flags__json=document(a="off"))
    history.read("", nothing)
    assert [subject for subject, _ in differences(history, "a")] == ["second", "first"]
    repository.git("reset", "-q", "--hard", first)
    repository.git("commit", "-q", "--amend", "-m", "other first")
    history.read("", nothing)
    assert [subject for subject, _ in differences(history, "a")] == ["other first"]


def test_a_bad_definition_changes_nothing_and_its_correction_does(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "flags")
    repository.commit("first", flags__json=document(a="on", b="on"))
    repository.commit("typo", flags__json=document(a="oon", b="on"))
    repository.commit("corrected", flags__json=document(a="off", b="on"))
    history = LocalHistory(repository.path, LocalOptions(str(repository.path)))
    history.read("", nothing)
    assert differences(history, "a") == [
        ("corrected", "default on (true) → off (false)"),
        ("first", "added, default on (true)"),
    ]


def test_folders_beside_the_last_path_are_other_environments(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "flags")
    repository.write("base/flags.json", document(a="off"))
    repository.write("overlays/production/flags.json", document(a="off"))
    repository.write("overlays/staging/flags.json", document(a="on"))
    repository.commit("first")
    options = LocalOptions(str(repository.path), paths=("base", "overlays/production"))
    history = LocalHistory(repository.path, options)
    history.read("", nothing)
    assert [(shown.title, shown.flag_set.flags["a"].default_variant) for shown in history.overlays] == [
        ("staging", "on")
    ]


def test_what_is_no_repository_has_no_history_and_says_so(tmp_path: Path) -> None:
    history = LocalHistory(tmp_path, LocalOptions(str(tmp_path)))
    history.read("", nothing)
    assert history.of("a").gap == "The repository cannot be read."
    assert LocalHistory(None, LocalOptions("https://example.com/a/b")).of("a").gap
