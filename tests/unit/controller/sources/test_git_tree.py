from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, NoReturn

import pygit2
import pytest
from pygit2.enums import FileMode, ObjectType

from controller.api.meta import COMMITTED_AT, SUBJECT
from controller.runtime.setbacks import Failed, Stalled
from controller.sources.backend import Fetched, Revision, TreeLimits
from controller.sources.git_commits import Checkout, fixed_prefixes, write_commit
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@pytest.fixture
def bare(tmp_path: Path) -> pygit2.Repository:
    return pygit2.init_repository(str(tmp_path / "bare"), bare=True)


def write(
    path: Path, oid: str, into: Path, limits: TreeLimits | None = None, paths: Iterable[str] = ()
) -> Fetched:
    opened = pygit2.Repository(str(path))
    return write_commit(
        opened, Checkout(Revision("main", f"sha1:{oid}"), into, limits or TreeLimits(), tuple(paths))
    )


def below(folder: Path) -> dict[str, str]:
    return {str(f.relative_to(folder)): f.read_text() for f in folder.rglob("*") if f.is_file()}


def raw_tree(bare: pygit2.Repository, *entries: tuple[int, bytes, pygit2.Oid]) -> pygit2.Oid:
    """A tree of any shape, past the checks of Git's own tools."""
    text = b"".join(b"%o %s\0" % (mode, name) + oid.raw for mode, name, oid in entries)
    return bare.odb.write(ObjectType.TREE, text)


def commit_of(bare: pygit2.Repository, tree: pygit2.Oid, seconds: str = "1 +0000") -> str:
    text = f"tree {tree}\nauthor A <a@x> {seconds}\ncommitter A <a@x> {seconds}\n\nsubject\n\nbody\n"
    return str(bare.odb.write(ObjectType.COMMIT, text.encode()))


def test_every_regular_file_is_written_whatever_its_folder(repository: Repository, into: Path) -> None:
    repository.write("a/b/c.json", "3")
    repository.write("run.sh", "x")
    (repository.path / "run.sh").chmod(0o755)
    write(repository.path, repository.commit(flags__json="1"), into)
    assert below(into) == {"flags.json": "1", "a/b/c.json": "3", "run.sh": "x"}


def test_the_commit_message_is_shown_without_control_characters(repository: Repository, into: Path) -> None:
    oid = repository.commit("a \x1b[31mred\x07 subject\n\nand a body")
    assert write(repository.path, oid, into).metadata[SUBJECT] == "a  [31mred  subject"


def test_the_time_is_the_committers_in_utc(bare: pygit2.Repository, into: Path) -> None:
    oid = commit_of(bare, raw_tree(bare), "3600 +0200")
    commit = write(bare.path, oid, into)  # type: ignore[arg-type] # a path in words
    assert commit.metadata[COMMITTED_AT] == "1970-01-01T01:00:00+00:00"


def test_a_time_past_all_calendars_is_the_last_there_is(bare: pygit2.Repository, into: Path) -> None:
    oid = commit_of(bare, raw_tree(bare), "99999999999999 +0000")
    revision = Revision("", f"sha1:{oid}")
    assert write_commit(bare, Checkout(revision, into)).metadata[COMMITTED_AT].startswith("9999")


def test_symlinks_and_submodules_are_named_and_not_written(repository: Repository, into: Path) -> None:
    repository.write("flags.json", "1")
    (repository.path / "evil.json").symlink_to("/etc/passwd")
    (repository.path / "inner.json").symlink_to("flags.json")
    inner = Repository(repository.path / "sub")
    inner.commit(x="1")
    commit = write(repository.path, repository.commit(), into)
    assert below(into) == {"flags.json": "1"}
    assert commit.skipped == (
        "evil.json: symlink, not followed",
        "inner.json: symlink, not followed",
        "sub: submodule, not read",
    )


def test_a_folder_of_symlinks_leaves_no_folder(repository: Repository, into: Path) -> None:
    (repository.path / "links").mkdir()
    (repository.path / "links" / "a").symlink_to("..")
    write(repository.path, repository.commit(), into)
    assert list(into.iterdir()) == []


def test_a_name_that_is_not_utf8_is_named_and_not_written(bare: pygit2.Repository, into: Path) -> None:
    blob = bare.create_blob(b"1")
    oid = commit_of(bare, raw_tree(bare, (FileMode.BLOB, b"fl\xffgs", blob)))
    commit = write_commit(bare, Checkout(Revision("", f"sha1:{oid}"), into))
    assert commit.skipped == ("fl\\xffgs: its name is not UTF-8",)


@pytest.mark.parametrize("name", [b"..", b".", b".git", b".GIT", b"a/b", b"../../x", b"/x"])
@pytest.mark.parametrize("mode", [FileMode.BLOB, FileMode.TREE])
def test_a_name_that_leaves_the_folder_is_refused(
    bare: pygit2.Repository, into: Path, name: bytes, mode: FileMode
) -> None:
    blob = bare.create_blob(b"1")
    child = blob if mode == FileMode.BLOB else raw_tree(bare, (FileMode.BLOB, b"x", blob))
    oid = commit_of(bare, raw_tree(bare, (mode, name, child)))
    with pytest.raises((Stalled, pygit2.GitError, KeyError, ValueError)):
        write_commit(bare, Checkout(Revision("", f"sha1:{oid}"), into))
    assert list(into.parent.rglob("x")) == []
    assert list(into.iterdir()) == []


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (TreeLimits(entries=3), "more than 3 files and folders"),
        (TreeLimits(total_bytes=101), "deep/er/big.json: with it the tree has more than 101"),
        (TreeLimits(depth=1), "deep/er: more than 1 folders deep"),
        (TreeLimits(listing_bytes=10), "the commit takes"),
    ],
)
def test_a_tree_past_a_limit_stalls_and_says_where(
    repository: Repository, into: Path, limits: TreeLimits, says: str
) -> None:
    repository.write("deep/er/big.json", "x" * 100)
    oid = repository.commit(a__json="1", b__json="2")
    limits_within = TreeLimits(entries=5, file_bytes=100, total_bytes=102, depth=2)
    with pytest.raises(Stalled, match=says) as setback:
        write(repository.path, oid, into, limits)
    assert setback.value.reason == "LimitExceeded"
    (into.parent / "whole").mkdir()
    write(repository.path, oid, into.parent / "whole", limits_within)


def test_a_file_past_its_limit_is_skipped_and_counts_towards_the_total(
    repository: Repository, into: Path
) -> None:
    repository.write("deep/big.json", "x" * 100)
    oid = repository.commit(a__json="1")
    fetched = write(repository.path, oid, into, TreeLimits(file_bytes=99, total_bytes=101))
    assert fetched.skipped == ("deep/big.json: too large, 100 bytes of 99 that one file may have",)
    assert below(into) == {"a.json": "1"}
    (into / "a.json").unlink()
    with pytest.raises(Stalled, match="more than 100 bytes"):
        write(repository.path, oid, into, TreeLimits(file_bytes=99, total_bytes=100))


def test_folders_that_share_their_listing_are_counted_each_time(bare: pygit2.Repository, into: Path) -> None:
    tree = raw_tree(bare)
    for _ in range(12):
        tree = raw_tree(bare, *((FileMode.TREE, b"%d" % number, tree) for number in range(10)))
    oid = commit_of(bare, tree)
    with pytest.raises(Stalled, match="more than 10000 files and folders"):
        write_commit(bare, Checkout(Revision("", f"sha1:{oid}"), into))


@pytest.mark.parametrize(
    ("paths", "prefixes"),
    [
        ((), ()), ((".",), ((),)), (("flags",), (("flags",),)),
        (("./flags/", "b.json"), (("flags",), ("b.json",))), (("envs/prod/**",), (("envs", "prod"),)),
        (("envs/*/flags.json",), (("envs",),)), (("**/x.json",), ((),)),
        (("a/b?.json", "c/[xy]/d"), (("a",), ("c",))),
    ],
)  # fmt: skip
def test_a_glob_can_match_only_below_its_fixed_folder(
    paths: tuple[str, ...], prefixes: tuple[tuple[str, ...], ...]
) -> None:
    assert fixed_prefixes(paths) == prefixes


@pytest.mark.parametrize(
    ("paths", "written"),
    [
        (("flags",), {"flags/a.json", "flags/deep/b.json"}),
        (("flags/a.json",), {"flags/a.json"}),
        (("flags/deep/*.json", "top.json"), {"flags/deep/b.json", "top.json"}),
        (("flag",), set()),
        (("**/*.json",), {"flags/a.json", "flags/deep/b.json", "flagsmore/c.json", "top.json"}),
    ],
)
def test_only_what_the_paths_could_match_is_written(
    repository: Repository, into: Path, paths: tuple[str, ...], written: set[str]
) -> None:
    for name in ("flags/a.json", "flags/deep/b.json", "flagsmore/c.json", "top.json"):
        repository.write(name, "1")
    write(repository.path, repository.commit(), into, paths=paths)
    assert set(below(into)) == written


def test_what_lies_beside_the_paths_counts_towards_no_limit(repository: Repository, into: Path) -> None:
    repository.write("flags/a.json", "1")
    repository.write("huge.bin", "x" * 1000)
    write(repository.path, repository.commit(), into, TreeLimits(2, 10, 10), ["flags"])
    assert below(into) == {"flags/a.json": "1"}


def test_what_is_no_commit_stalls(repository: Repository, into: Path) -> None:
    repository.commit(a="1")
    with pytest.raises(Stalled, match="is a tree, not a commit"):
        write(repository.path, repository.git("rev-parse", "HEAD^{tree}"), into)


def test_what_is_not_there_is_gone(repository: Repository, into: Path) -> None:
    repository.commit(a="1")
    with pytest.raises(Failed) as setback:
        write(repository.path, "ab" * 20, into)
    assert setback.value.reason == "RevisionGone"


def test_a_missing_object_is_damage(bare: pygit2.Repository, into: Path) -> None:
    gone = pygit2.Oid(hex="ab" * 20)
    oid = commit_of(bare, raw_tree(bare, (FileMode.BLOB, b"a", gone)))
    with pytest.raises((pygit2.GitError, KeyError, ValueError)):
        write_commit(bare, Checkout(Revision("", f"sha1:{oid}"), into))


@pytest.mark.parametrize("mode", [FileMode.BLOB, FileMode.TREE])
def test_an_object_of_another_kind_than_listed_is_damage(
    bare: pygit2.Repository, into: Path, mode: FileMode
) -> None:
    child = raw_tree(bare) if mode == FileMode.BLOB else bare.create_blob(b"1")
    oid = commit_of(bare, raw_tree(bare, (mode, b"a", child)))
    with pytest.raises((pygit2.GitError, KeyError, ValueError)):
        write_commit(bare, Checkout(Revision("", f"sha1:{oid}"), into))


def test_a_full_disk_fails_and_names_the_file(
    repository: Repository, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oid = repository.commit(a__json="1")

    def full(path: Path, *_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("controller.sources.source_files.os.open", full)
    with pytest.raises(Failed, match=r"a\.json: No space left on device") as setback:
        write(repository.path, oid, into)
    assert setback.value.reason == "StorageOperationFailed"


def test_a_file_that_is_there_already_is_not_written_over(repository: Repository, into: Path) -> None:
    outside = into.parent / "outside"
    outside.write_text("kept")
    (into / "a.json").symlink_to(outside)
    with pytest.raises(Failed, match="File exists"):
        write(repository.path, repository.commit(a__json="1"), into)
    assert outside.read_text() == "kept"
