"""The files of a folder that are searched for flags, and the commits of its repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.local.code_search import (
    SearchBounds,
    SearchOptions,
    added_lines,
    read_options,
    removals,
    search,
)
from controller.runtime.setbacks import Failed
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

CALL = 'client.get_boolean_value("new-cart", False)\n'
KEYS = ["new-cart", "banner"]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "shop")


def files_with_references(folder: Path, options: SearchOptions | None = None) -> list[str]:
    found = search(folder, KEYS, options or SearchOptions())
    return [place.file for place in found.references.get("new-cart", [])]


def test_files_that_git_or_the_options_ignore_are_not_searched(repository: Repository) -> None:
    for name in (
        "a.py", ".hidden/a.py", ".github/a.yml", "node_modules/a.js", "built/a.js", "sub/made/a.js",
        "vendor/a.go", "flags.flagtest.yaml",
    ):  # fmt: skip
        repository.write(name, CALL)
    repository.write(".gitignore", "built/\n")
    repository.write("sub/.gitignore", "made\n")
    kept = SearchOptions(ignore=("vendor/",))
    assert files_with_references(repository.path, kept) == ["a.py", ".github/a.yml"]
    assert files_with_references(repository.path / "sub") == []


def test_definitions_binaries_links_and_large_files_are_no_code(tmp_path: Path) -> None:
    bounds = SearchBounds(file_bytes=1_000)
    outside = tmp_path / "outside.py"
    outside.write_text(CALL, encoding="utf-8")
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "link.py").symlink_to(outside)
    (folder / "flags.yaml").write_text(
        'flags: {"new-cart": {variants: {}, defaultVariant: x}}', encoding="utf-8"
    )
    (folder / "a.bin").write_bytes(b"\0" + CALL.encode())
    (folder / "large.py").write_text(CALL * 100, encoding="utf-8")
    (folder / "latin.py").write_bytes(b"# caf\xe9\n" + CALL.encode())
    found = search(folder, KEYS, SearchOptions(), bounds)
    assert [place.file for place in found.references["new-cart"]] == ["latin.py"]
    assert found.notes == ["large.py has more than 1,000 bytes and is not searched"]


def test_a_constant_of_another_file_refers_to_its_flag(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("if flags.ask(NEW_CART):\n", encoding="utf-8")
    (tmp_path / "keys.py").write_text('NEW_CART = "new-cart"\n', encoding="utf-8")
    assert files_with_references(tmp_path) == ["a.py", "keys.py"]


def test_options_are_read_and_a_wrong_one_says_where(tmp_path: Path) -> None:
    assert read_options(tmp_path) == SearchOptions()
    file = tmp_path / ".flagstaff-refs.yaml"
    file.write_text("ignore: [vendor/]\nforms: [camel]\naliases: {new-cart: [CART]}\n", encoding="utf-8")
    options = read_options(tmp_path)
    assert (options.ignore, options.forms, options.aliases) == (
        ("vendor/",),
        ("camel",),
        {"new-cart": ("CART",)},
    )
    for text, message in (
        ("form: []", "form: Extra inputs are not permitted"),
        ("forms: [shout]", "forms.0: Input should be 'camel'"),
        ("forms: camel", "forms: Input should be a valid tuple"),
        ("a: [", ".flagstaff-refs.yaml:1"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(Failed, match="flagstaff-refs") as refused:
            read_options(tmp_path)
        assert message in str(refused.value)


def test_lines_that_were_added_since_a_commit_also_of_files_that_git_does_not_know(
    repository: Repository,
) -> None:
    repository.write("src/a.py", "one\n")
    first = repository.commit()
    repository.write("src/a.py", "zero\none\ntwo\n")
    repository.commit()
    repository.write("src/new.py", "x\n")
    assert added_lines(repository.path, first) == {"src/a.py": {1, 3}, "src/new.py": {1}}
    assert added_lines(repository.path / "src", first) == {"a.py": {1, 3}, "new.py": {1}}
    with pytest.raises(Failed, match="has no commit 'nothing'"):
        added_lines(repository.path, "nothing")


def test_the_commit_that_removed_the_last_reference_is_the_newest_that_removed_one(
    repository: Repository,
) -> None:
    repository.write("a.py", CALL)
    repository.write("b.py", CALL)
    repository.commit("use it twice")
    repository.write("a.py", "")
    repository.commit("use it once")
    repository.write("b.py", "")
    last = repository.commit("Remove new-cart")
    repository.commit("something else")
    [(key, removal)] = removals(repository.path, KEYS, SearchOptions(), 10).items()
    assert (key, removal.commit, removal.subject) == ("new-cart", last, "Remove new-cart")
    assert removal.author == "Ada <ada@example.com>"
    assert removals(repository.path, KEYS, SearchOptions(), 1) == {}


def test_a_folder_without_a_repository_has_no_history(tmp_path: Path) -> None:
    for read in (lambda: removals(tmp_path, KEYS, SearchOptions(), 1), lambda: added_lines(tmp_path, "HEAD")):
        with pytest.raises(Failed, match="is in no Git repository"):
            read()


def test_bounds_are_noted(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(CALL * 3, encoding="utf-8")
    (tmp_path / "b.py").write_text(CALL, encoding="utf-8")
    found = search(tmp_path, KEYS, SearchOptions(), SearchBounds(files=1, references=2))
    assert (found.files, len(found.references["new-cart"])) == (1, 2)
    assert found.notes == ["only the first 1 files are searched", "1 more references are not listed"]
    (tmp_path / "b.py").write_text(CALL * 3, encoding="utf-8")
    found = search(tmp_path, KEYS, SearchOptions(), SearchBounds(references=1))
    assert (len(found.references["new-cart"]), found.notes) == (1, ["5 more references are not listed"])
