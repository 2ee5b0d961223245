"""Which provider a location of a command line belongs to."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controller.local import commits
from controller.local.local_options import LocalOptions
from controller.local.local_providers import OfflineProvider, provider_of
from controller.runtime.setbacks import Stalled
from controller.sources.git_backend import open_source

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from controller.sources.backend import LocalBackend


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("s3://flags/shop/live/", "shop/live"),
        ("gs://flags", "."),
        ("az://flags/shop?x", "."),
        ("oci://ghcr.io/team/flags:v1", "."),
        ("https://example.com/flags.git", "."),
        ("flags", "."),
    ],
)
def test_only_a_buckets_definitions_are_below_its_prefix(location: str, path: str) -> None:
    assert provider_of(location).default_path(location) == path


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        ("s3://flags/shop", None),
        ("oci://ghcr.io/team/flags:v1", None),
        ("git@example.com:team/flags", None),
        ("flags", Path("flags")),
        ("file:///srv/flags", Path("/srv/flags")),
    ],
)
def test_only_a_repositorys_location_may_be_a_folder_here(location: str, folder: Path | None) -> None:
    assert provider_of(location).folder(location) == folder


def test_a_location_of_nobody_is_refused_as_a_repository() -> None:
    with pytest.raises(Stalled, match="not a valid repository location"):
        provider_of("ftp://example.com/flags").folder("ftp://example.com/flags")


async def test_a_backend_that_verifies_nothing_is_refused_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.asynccontextmanager
    async def careless(options: LocalOptions) -> AsyncIterator[LocalBackend]:
        yield open_source(options.source, reference=None, mirror_root=tmp_path)

    monkeypatch.setattr(commits, "provider_of", lambda _: OfflineProvider(("",), careless))
    with pytest.raises(Stalled, match=r"--verify-key: .* is never verified"):
        async with commits.open_backend(LocalOptions(str(tmp_path), verify_keys={"a.pub": b"key"})):
            pass
