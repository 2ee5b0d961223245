"""`spec.git.sparseCheckout`: a repository of which some folders are in the artifact."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.api.fields import InvalidSpecError, read
from controller.api.flagsource import FlagSourceSpec
from tests.git_http import git_server
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

    from tests.worlds.sources import Beside

FILES = {"flags/base/a.json": "a", "flags/base/deep/b.json": "b", "flagsy/c.json": "c", "d.json": "d"}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "repository")
    for name, text in FILES.items():
        repository.write(name, text)
    repository.commit()
    return repository


async def test_only_the_folders_that_are_named_are_in_the_artifact(
    beside: Beside, repository: Repository
) -> None:
    with git_server(repository.path.parent) as server:
        url = f"{server.url}/repository/.git"
        await beside.apply("flags", url)
        assert beside.files() == FILES
        await beside.apply("flags", url, git={"sparseCheckout": ["./flags/base/deep", "flagsy/"]})
        assert beside.files() == {"flags/base/deep/b.json": "b", "flagsy/c.json": "c"}
        assert beside.status()["observedSparseCheckout"] == ["./flags/base/deep", "flagsy/"]
        await beside.apply("flags", url)
    assert beside.files() == FILES
    assert "observedSparseCheckout" not in beside.status()


@pytest.mark.parametrize("folder", ["flags/bas", "d.json"])
async def test_a_folder_that_is_not_there_is_named_and_the_last_artifact_stays(
    beside: Beside, repository: Repository, folder: str
) -> None:
    url = repository.path.as_uri()
    await beside.apply("flags", url)
    await beside.apply("flags", url, git={"sparseCheckout": ["flagsy", folder]})
    status, reason, message = beside.condition()
    assert (status, reason) == ("False", "FolderNotFound")
    assert f"has no folder {folder}; correct spec.git.sparseCheckout" in message
    assert beside.files() == FILES


async def test_a_folder_of_links_alone_is_there(beside: Beside, repository: Repository) -> None:
    (repository.path / "links").mkdir()
    (repository.path / "links/x.json").symlink_to("../d.json")
    repository.commit()
    await beside.apply("flags", repository.path.as_uri(), git={"sparseCheckout": ["links"]})
    assert list(beside.files()) == [".flagstaff-skipped.json"]


@pytest.mark.parametrize("folder", ["", "/flags", "../flags", "flags/*"])
def test_what_is_no_folder_of_the_repository_is_refused(folder: str) -> None:
    spec = {"interval": "1m", "git": {"url": "https://h/r", "sparseCheckout": [folder]}}
    with pytest.raises(InvalidSpecError, match=r"spec\.git\.sparseCheckout\.0: "):
        read(FlagSourceSpec, spec)
