from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.runtime.setbacks import Stalled
from controller.sources.source_files import FILE, ignored_files, remove_ignored

if TYPE_CHECKING:
    from pathlib import Path


def kept_files(folder: Path, patterns: str | None, *names: str, protected: tuple[str, ...] = ()) -> set[str]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    remove_ignored(folder, ignored_files(folder, patterns, [protected] if protected else ()))
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


DEFAULT_CASES = {
    "image.jpg": False, "archive.tar.gz": False, "docs/logo.png": False, ".github/workflows/x.yaml": False,
    ".gitlab-ci.yml": False, "deep/down/.flux.yaml": False, ".gitignore": False, "flags.yaml": True,
    "jpg/flags.json": True, "deep/github/flags.json": True,
}  # fmt: skip


@pytest.mark.parametrize(("name", "stays"), DEFAULT_CASES.items(), ids=DEFAULT_CASES)
def test_without_patterns_fluxs_defaults_hold(tmp_path: Path, name: str, stays: bool) -> None:
    assert kept_files(tmp_path, None, name) == ({name} if stays else set())


PATTERNS = {
    "own replace the defaults": ("*.md", {"a.md": False, "horse.jpg": True}),
    "none at all": ("", {"horse.jpg": True, ".gitmodules": False}),
    "all but one folder": ("/*\n!/flags", {"a.yaml": False, "flags/a.yaml": True, "x/flags/a.yaml": False}),
    "a folder's exception": ("d/*\n!d/kept", {"d/gone": False, "d/kept": True}),
    "comments and blanks": ("# flags.yaml\n\n  \n", {"flags.yaml": True}),
    "any depth": ("**/old/", {"old/a": False, "x/y/old/a": False, "older/a": True}),
    "one place": ("/a.json", {"a.json": False, "x/a.json": True}),
    "what Git keeps for itself stays out": ("!.gitmodules\n*.txt", {"a.txt": False}),
}


@pytest.mark.parametrize(("patterns", "names"), PATTERNS.values(), ids=PATTERNS)
def test_patterns_are_read_as_in_gitignore(tmp_path: Path, patterns: str, names: dict[str, bool]) -> None:
    assert kept_files(tmp_path, patterns, *names) == {name for name, stays in names.items() if stays}


def test_folders_that_are_left_empty_go(tmp_path: Path) -> None:
    kept_files(tmp_path, "*.md", "docs/deep/a.md", "flags/a.yaml")
    assert {path.name for path in tmp_path.iterdir()} == {"flags"}
    assert tmp_path.is_dir()


@pytest.mark.parametrize("patterns", ["!", "\\", "[z-a]", "\n".join(f"{n}*a*b*c*d" for n in range(5000))])
def test_patterns_that_cannot_be_read_are_the_users_to_correct(tmp_path: Path, patterns: str) -> None:
    with pytest.raises(Stalled, match=r"^spec\.ignore: "):
        kept_files(tmp_path, patterns, "a.json")


@pytest.mark.parametrize("pattern", ["*a" * 40 + "*b", "**/a/" * 40 + "b"], ids=["stars", "folders"])
def test_no_pattern_takes_for_ever(tmp_path: Path, pattern: str) -> None:
    names = {"a" * 250, "a/" * 120 + "flags.json"}
    assert kept_files(tmp_path, pattern, *names) == names


def test_a_name_that_is_no_text_is_let_be(tmp_path: Path) -> None:
    name = b"caf\xe9.json".decode(errors="surrogateescape")
    assert kept_files(tmp_path, "*.md", name) == {name}


def test_a_source_says_itself_what_is_no_part_of_it_and_the_spec_has_the_last_word(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("*.md\n*.txt\n")
    found = kept_files(tmp_path, "!a.md", "a.md", "b.md", "c.txt", "horse.jpg")
    assert found == {FILE, "a.md", "horse.jpg"}


@pytest.mark.parametrize("own", ["*", "production", "!production/a.md\n/production/"])
def test_a_source_cannot_ignore_or_bring_back_what_rules_protect(tmp_path: Path, own: str) -> None:
    (tmp_path / FILE).write_text(own)
    names = ("production/a.json", "production/a.md")
    found = kept_files(tmp_path, "*.md", *names, protected=("production/**",))
    assert found - {FILE} == {"production/a.json"}


def test_a_folder_in_place_of_the_sources_patterns_is_no_file_of_them(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    assert kept_files(tmp_path, "*.md", "a.md", "a.json") == {"a.json"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff", "not UTF-8 text"),
        (b"#" * 65_537, "longer than 65536 bytes"),
        (b"[z-a]", "^.sourceignore: cannot be read as patterns"),
    ],
)
def test_patterns_of_a_source_that_cannot_be_read_are_reported(
    tmp_path: Path, content: bytes, says: str
) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(Stalled, match=says) as setback:
        ignored_files(tmp_path, None)
    assert setback.value.reason == "InvalidIgnore"
