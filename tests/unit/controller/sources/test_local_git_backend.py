from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from blockbuster import blockbuster_ctx

from controller.api.meta import COMMITTED_AT, SUBJECT
from controller.runtime.setbacks import Failed, Stalled
from controller.sources.git_backend import LocalGitBackend, open_source
from tests.git_http import git_server
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "repository")
    repository.commit("first", flags__json="1", other__json="2")
    return repository


def source(repository: Repository, location: str | None = None, **more: str) -> LocalGitBackend:
    root = repository.path.parent / "mirrors"
    return open_source(location or str(repository.path), mirror_root=root, **more)  # type: ignore[arg-type] # words only


def test_gitpython_is_loaded_once_a_line_s_author_is_asked_for() -> None:
    program = "import sys, controller.sources.git_backend; print('git' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"


def test_a_relative_path_counts_from_the_working_folder(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository.path.parent)
    assert source(repository, "repository").location.path == repository.path


@pytest.mark.parametrize("location", ["ext::sh -c touch% x", "--upload-pack=touch x"])
def test_an_injected_program_is_refused_before_git_is_asked(repository: Repository, location: str) -> None:
    with pytest.raises(Stalled):
        source(repository, location)


@pytest.mark.parametrize("reference", ["--upload-pack=touch x", "branch:-x", "name:--x"])
def test_an_injected_reference_is_refused_before_git_is_asked(repository: Repository, reference: str) -> None:
    with pytest.raises(Stalled):
        source(repository, reference=reference)


async def test_a_file_url_is_read_in_place(repository: Repository, into: Path) -> None:
    opened = source(repository, f"file://{repository.path}")
    await opened.fetch(await opened.resolve(), into)
    assert not await asyncio.to_thread(opened.mirror_root.exists)


async def test_a_repository_is_read_whatever_the_user_configured(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text("this is [no configuration")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert (await source(repository).resolve()).name == "main"


async def test_only_what_the_paths_could_match_is_fetched(repository: Repository, into: Path) -> None:
    narrowed = open_source(str(repository.path), mirror_root=into, paths=["flags.json"])
    await narrowed.fetch(await narrowed.resolve(), into)
    assert await asyncio.to_thread(os.listdir, into) == ["flags.json"]


async def test_a_pinned_commit_causes_no_request(tmp_path: Path) -> None:
    oid = "ab" * 20
    opened = open_source("https://h.invalid/r", reference=f"commit:{oid}", mirror_root=tmp_path)
    assert str(await opened.resolve()) == f"sha1:{oid}"


async def test_a_folder_without_a_repository_fails(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"is not a Git repository; make it one .* flagstaff up .* --worktree"):
        await open_source(str(tmp_path), mirror_root=tmp_path).resolve()


async def test_damaged_references_fail_and_name_the_repository(repository: Repository) -> None:
    head = repository.path / ".git" / "HEAD"
    head.write_text("neither a name nor a commit")
    with pytest.raises(Failed, match=r"repository.* is damaged: git -C .* fsck says more; clone it again"):
        await source(repository).resolve()


async def test_a_branch_to_a_commit_that_is_not_there_is_called_damage(
    repository: Repository, into: Path
) -> None:
    opened = source(repository)
    revision = await opened.resolve()
    commit = repository.git("rev-parse", "HEAD")
    (repository.path / ".git" / "objects" / commit[:2] / commit[2:]).unlink()
    with pytest.raises(Failed, match=f"{revision} is not, .*; the repository is damaged: .* clone it again"):
        await opened.fetch(revision, into)


async def test_a_commit_beyond_a_shallow_clone_is_fetched_by_its_message(
    repository: Repository, tmp_path: Path, into: Path
) -> None:
    first = repository.git("rev-parse", "HEAD")
    repository.git("commit", "-q", "--allow-empty", "-m", "second")
    clone = tmp_path / "shallow"
    repository.git("clone", "-q", "--depth", "1", f"file://{repository.path}", str(clone))
    opened = open_source(str(clone), reference=f"commit:{first}", mirror_root=tmp_path / "mirrors")
    with pytest.raises(Failed, match=r"shallow clone .*: complete it with: git fetch --unshallow"):
        await opened.fetch(await opened.resolve(), into)


async def test_damaged_objects_fail_and_name_the_revision(repository: Repository, into: Path) -> None:
    opened = source(repository)
    revision = await opened.resolve()
    blob = repository.git("rev-parse", "HEAD:flags.json")
    (repository.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(Failed, match=f"{revision} cannot be read: object {blob} is missing"):
        await opened.fetch(revision, into)


async def test_a_partial_clone_says_what_it_lacks_and_how_to_complete_it(
    repository: Repository, tmp_path: Path, into: Path
) -> None:
    repository.git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "partial"
    repository.git(
        "clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{repository.path}", str(clone)
    )
    opened = open_source(str(clone), mirror_root=tmp_path / "mirrors")
    with pytest.raises(Failed, match=r"is missing; .* partial clone .*--refetch --no-filter"):
        await opened.fetch(await opened.resolve(), into)
    repository.git("-C", str(clone), "fetch", "-q", "--refetch", "--no-filter")
    await opened.fetch(await opened.resolve(), into)
    assert await asyncio.to_thread((into / "flags.json").read_text) == "1"


async def test_git_names_an_extension_that_it_does_not_know(repository: Repository) -> None:
    repository.git("config", "core.repositoryFormatVersion", "1")
    repository.git("config", "extensions.frobnicate", "true")
    with pytest.raises(Failed, match="unknown repository extension found: frobnicate"):
        await source(repository).resolve()


async def test_credentials_in_a_url_are_used_and_never_shown(
    repository: Repository, tmp_path: Path, into: Path
) -> None:
    with git_server(tmp_path, login="me:s3cr3t") as server:
        place = f"{server.url.replace('://', '://me:s3cr3t@')}/repository/.git"
        opened = source(repository, place)
        await opened.fetch(await opened.resolve(), into)
        assert not [line for line in server.command_lines if "s3cr3t" in line]
    kept = await asyncio.to_thread(lambda: list(opened.mirror_root.rglob("*")))
    texts = [path.read_bytes() for path in kept if path.is_file()]
    assert not any(b"s3cr3t" in text for text in texts)
    assert "s3cr3t" not in repr(opened)


@pytest.mark.parametrize("reference", [None, "main", "tag:v1", "name:refs/pull/1/head"])
async def test_pull_requests_are_listed_only_where_one_is_named(
    repository: Repository, tmp_path: Path, reference: str | None
) -> None:
    repository.git("tag", "v1")
    repository.git("update-ref", "refs/pull/1/head", "HEAD")
    with git_server(tmp_path) as server:
        opened = source(repository, f"{server.url}/repository/.git")
        opened = open_source(opened.location.url, reference=reference, mirror_root=opened.mirror_root)
        refs = (await opened.list_references()).commits
        assert (await opened.resolve()).digest.endswith(repository.git("rev-parse", "HEAD"))
    assert ("refs/pull/1/head" in refs) == (reference not in {"main", "tag:v1"})


@pytest.mark.parametrize("remote", [False, True], ids=["in place", "http"])
async def test_nothing_blocks_the_loop(
    repository: Repository, tmp_path: Path, into: Path, remote: bool
) -> None:
    with git_server(tmp_path) as server:
        opened = source(repository, f"{server.url}/repository/.git" if remote else None)
        with blockbuster_ctx():
            changes = opened.changes()
            await anext(changes)
            await opened.fetch(await opened.resolve(), into)
            await changes.aclose()  # type: ignore[attr-defined] # a generator in truth


async def test_a_backend_without_authors_names_none(repository: Repository, into: Path) -> None:
    private = replace(source(repository), authors=False)
    fetched = await private.fetch(await private.resolve(), into)
    assert fetched.summary == "commit 'first'"
    assert set(fetched.metadata) == {COMMITTED_AT, SUBJECT}
