from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.runtime.setbacks import Failed, Setback
from controller.sources.backend import Revision
from controller.sources.git_references import References, parse
from controller.sources.git_repository import (
    UnreadableFormatError,
    list_references,
    open_repository,
    uncommitted_files,
)

if TYPE_CHECKING:
    from tests.repositories import Repository


async def test_references_are_read_as_git_lists_them(repository: Repository) -> None:
    repository.commit("first", a="1")
    repository.git("branch", "feature/x")
    repository.git("tag", "light")
    repository.git("tag", "-a", "heavy", "-m", "annotated")
    repository.git("tag", "-a", "nested", "-m", "of a tag", "heavy")
    repository.git("pack-refs", "--all")
    repository.commit("second")
    listed = await parse(repository.git("ls-remote", "--symref", "."), "here")
    refs, head = list_references(open_repository(repository.path))
    assert References(refs | {"HEAD": refs["refs/heads/main"]}, head) == listed
    assert head == "refs/heads/main"


def test_a_tag_of_something_else_than_a_commit_is_listed(repository: Repository) -> None:
    repository.commit("first", a="1")
    repository.git("tag", "-a", "tree", "-m", "of a tree", "HEAD^{tree}")
    refs, _ = list_references(open_repository(repository.path))
    assert refs["refs/tags/tree"] == repository.git("rev-parse", "HEAD^{tree}")


def test_a_symbolic_reference_to_nothing_is_left_out(repository: Repository) -> None:
    repository.commit("first")
    repository.git("symbolic-ref", "refs/heads/nowhere", "refs/heads/gone")
    refs, _ = list_references(open_repository(repository.path))
    assert set(refs) == {"refs/heads/main"}


def test_a_detached_head_is_a_commit_and_no_name(repository: Repository) -> None:
    oid = repository.commit("first")
    repository.git("checkout", "-q", "--detach")
    refs, head = list_references(open_repository(repository.path))
    assert (refs["HEAD"], head) == (oid, None)


def test_a_linked_work_tree_has_its_own_head(repository: Repository) -> None:
    repository.commit("first")
    repository.git("worktree", "add", "-q", "-b", "side", "../linked")
    _, head = list_references(open_repository(repository.path.parent / "linked"))
    assert head == "refs/heads/side"


def test_a_bare_repository_is_opened(repository: Repository) -> None:
    repository.commit("first")
    repository.git("clone", "-q", "--bare", ".", "../bare.git")
    refs, _ = list_references(open_repository(repository.path.parent / "bare.git"))
    assert "refs/heads/main" in refs


def test_a_missing_folder_and_one_without_a_repository_raise_different_errors(repository: Repository) -> None:
    inner = repository.path / "inner"
    with pytest.raises(Failed, match="inner does not exist"):
        open_repository(inner)
    inner.mkdir()
    with pytest.raises(Failed, match=r"repository; name that, with --path inner$"):
        open_repository(inner)


@pytest.mark.parametrize(
    ("settings", "reason", "message"),
    [
        ("[core\n", "RepositoryDamaged", "cannot be opened: failed to parse config"),
        ("[core]\n\tbare = perhaps\n", "RepositoryDamaged", "; correct its .git/config"),
        (
            "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n",
            "UnsupportedObjectFormat",
            "uses SHA-256 object ids.*git init --object-format=sha1",
        ),
    ],
)
def test_a_repository_that_cannot_be_opened_is_called_what_it_is(
    repository: Repository, settings: str, reason: str, message: str
) -> None:
    (repository.path / ".git" / "config").write_text(settings)
    with pytest.raises(Setback, match=message) as setback:
        open_repository(repository.path)
    assert setback.value.reason == reason


def test_a_folder_whose_repository_is_gone_is_to_be_cloned_again(repository: Repository) -> None:
    (repository.path / ".git" / "HEAD").unlink()
    with pytest.raises(Failed, match=r"is no whole Git repository .*; clone it again"):
        open_repository(repository.path)


def test_uncommitted_files_are_those_of_the_branch_that_is_checked_out(repository: Repository) -> None:
    revision = Revision("main", f"sha1:{repository.commit(flags__json='1', more__json='1')}")
    assert uncommitted_files(repository.path, revision) == ()
    repository.write("flags.json", "2")
    repository.write("folder/new.json", "2")
    (repository.path / "more.json").unlink()
    changed = ("flags.json", "folder/new.json", "more.json")
    assert uncommitted_files(repository.path, revision) == changed
    assert uncommitted_files(repository.path, Revision("v1", revision.digest)) == ()


def test_a_format_that_only_git_reads_raises_an_error_of_its_own(repository: Repository) -> None:
    repository.git("config", "core.repositoryFormatVersion", "1")
    repository.git("config", "extensions.partialClone", "origin")
    with pytest.raises(UnreadableFormatError):
        open_repository(repository.path)
