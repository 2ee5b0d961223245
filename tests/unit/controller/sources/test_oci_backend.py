"""Artifacts in a real registry, as Flux and oras push them."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.meta import AUTHOR, COMMITTED_AT
from controller.runtime.setbacks import Failed, Setback, Stalled
from tests.registry.artifacts import FLUX_CONTENT, ORAS_FILE, Artifact, flux, index, oras_files, oras_folder
from tests.registry.fixtures import REGISTRIES, Shelf
from tests.worlds.sources import opener, read_files

if TYPE_CHECKING:
    from pathlib import Path

    from controller.sources.backend import Fetched

pytestmark = pytest.mark.parametrize("registry", REGISTRIES, indirect=True)
FILES: dict[str, str | bytes] = {"flags/base/flags.json": '{"flags": {}}', "README.md": "read me"}


async def pull(shelf: Shelf, into: Path, **oci: Any) -> Fetched:
    async with opener() as sources:
        source = await sources.open(shelf.url, **oci)
        return await source.fetch(await source.resolve(), into)


async def setback(shelf: Shelf, into: Path, **oci: Any) -> Setback:
    with pytest.raises(Setback) as raised:
        await pull(shelf, into, **oci)
    return raised.value


async def test_an_artifact_of_flux_has_its_files_and_its_commit(shelf: Shelf, tmp_path: Path) -> None:
    artifact = flux(
        FILES,
        source="https://git.example.com/shop/flags.git",
        revision="main@sha1:46ead10f53b751a66b035e6b4c6ff198ee57e522",
        created="2026-11-23T02:00:00Z",
        authors="Ada <ada@example.com>",
    )
    digest = shelf.pusher.push(shelf.repository, "production", artifact)
    fetched = await pull(shelf, tmp_path, ref={"tag": "production"})
    assert str(fetched.revision) == f"production@{digest}"
    assert read_files(tmp_path) == FILES
    assert fetched.metadata == {
        AUTHOR: "Ada <ada@example.com>",
        COMMITTED_AT: "2026-11-23T02:00:00+00:00",
        "org.opencontainers.image.source": "https://git.example.com/shop/flags.git",
        "org.opencontainers.image.revision": "main@sha1:46ead10f53b751a66b035e6b4c6ff198ee57e522",
    }
    assert fetched.summary.startswith("artifact of main@sha1:46ead10f53b7")


async def test_a_folder_that_oras_pushed_is_below_its_name(shelf: Shelf, tmp_path: Path) -> None:
    shelf.pusher.push(shelf.repository, "latest", oras_folder("flags", {"a.json": "1", "b/c.json": "2"}))
    await pull(shelf, tmp_path)
    assert read_files(tmp_path) == {"flags/a.json": "1", "flags/b/c.json": "2"}


async def test_a_file_that_oras_pushed_is_copied_under_its_title(shelf: Shelf, tmp_path: Path) -> None:
    shelf.pusher.push(shelf.repository, "latest", oras_files({"flags.json": "1", "more.json": "2"}))
    await pull(shelf, tmp_path, layerSelector={"operation": "copy", "mediaType": ORAS_FILE})
    assert read_files(tmp_path) == {"flags.json": "1"}


async def test_a_file_is_no_archive_to_take_files_out_of(shelf: Shelf, tmp_path: Path) -> None:
    shelf.pusher.push(shelf.repository, "latest", oras_files({"flags.json": "1"}))
    failed = await setback(shelf, tmp_path)
    assert isinstance(failed, Stalled)
    assert (failed.reason, read_files(tmp_path)) == ("ArchiveRefused", {})
    assert "layerSelector" in failed.message


async def test_a_media_type_that_no_layer_has_is_reported_with_those_that_exist(
    shelf: Shelf, tmp_path: Path
) -> None:
    shelf.pusher.push(shelf.repository, "latest", flux(FILES))
    failed = await setback(shelf, tmp_path, layerSelector={"mediaType": "application/x-none"})
    assert failed.reason == "InvalidArtifact"
    assert FLUX_CONTENT in failed.message


@pytest.mark.parametrize(
    ("ref", "tag"),
    [
        (None, "latest"),
        ({"tag": "v1.0.0"}, "v1.0.0"),
        ({"semver": "1.x"}, "v1.2.0"),
        ({"semver": ">= 1.0.0 < 1.2.0", "tag": "latest"}, "v1.1.0"),
        ({"semver": ">=2.0.0-0", "semverFilter": "-rc"}, "v2.0.0-rc.1"),
        ({"semver": "*", "semverFilter": r"^v1\.[01]"}, "v1.1.0"),
    ],
)
async def test_a_reference_is_the_tag_that_it_means(
    shelf: Shelf, ref: dict[str, str] | None, tag: str
) -> None:
    tags = ("latest", "v1.0.0", "v1.1.0", "v1.2.0", "v2.0.0-rc.1", "v2.0.0-rc", "not-a-version")
    digests = {each: shelf.pusher.push(shelf.repository, each, flux({"a.json": each})) for each in tags}
    async with opener() as sources:
        spec: dict[str, Any] = {} if ref is None else {"ref": ref}
        source = await sources.open(shelf.url, **spec)
        assert str(await source.resolve()) == f"{tag}@{digests[tag]}"


async def test_a_digest_is_pinned_without_asking(shelf: Shelf, tmp_path: Path) -> None:
    digest = shelf.pusher.push(shelf.repository, "latest", flux(FILES))
    shelf.pusher.push(shelf.repository, "latest", flux({"other.json": "1"}))
    async with opener() as sources:
        source = await sources.open(shelf.url, ref={"digest": digest, "tag": "latest"})
        revision = await source.resolve()
        assert (str(revision), shelf.front.asked) == (digest, [])
        await source.fetch(revision, tmp_path)
    assert read_files(tmp_path) == FILES


async def test_a_tag_that_did_not_move_costs_one_request_without_content(
    shelf: Shelf, tmp_path: Path
) -> None:
    shelf.pusher.push(shelf.repository, "latest", flux(FILES))
    async with opener() as sources:
        source = await sources.open(shelf.url)
        first = await source.resolve()
        await source.fetch(first, tmp_path)
        shelf.front.asked.clear()
        assert await (await sources.open(shelf.url)).resolve() == first
    assert shelf.front.asked == [f"HEAD /v2/{shelf.repository}/manifests/latest"]


async def test_a_registry_that_sends_no_digest_is_asked_for_the_manifest(shelf: Shelf) -> None:
    digest = shelf.pusher.push(shelf.repository, "latest", flux(FILES))

    def silent(asked: str, answer: Any) -> Any:
        answer.headers.pop("Docker-Content-Digest", None)
        return answer

    shelf.front.instead = silent
    async with opener() as sources:
        assert str(await (await sources.open(shelf.url)).resolve()) == f"latest@{digest}"


async def test_a_tag_that_moved_is_another_revision(shelf: Shelf, tmp_path: Path) -> None:
    async with opener() as sources:
        source = await sources.open(shelf.url)
        for number in ("1", "2"):
            shelf.pusher.push(shelf.repository, "latest", flux({"a.json": number}))
            into = tmp_path / number
            into.mkdir()
            await source.fetch(await source.resolve(), into)
            assert read_files(into) == {"a.json": number}


AMD64, ARM64 = ({"os": "linux", "architecture": each} for each in ("amd64", "arm64"))
ATTESTATION = {"os": "unknown", "architecture": "unknown"}


@pytest.mark.parametrize("platforms", [(ARM64, AMD64), (ATTESTATION, None), (ARM64, AMD64, None)])
async def test_of_an_index_the_first_manifest_for_linux_amd64_or_for_no_platform_is_taken(
    shelf: Shelf, tmp_path: Path, platforms: tuple[dict[str, str] | None, ...]
) -> None:
    artifacts = [flux({"a.json": str(number)}, created=str(number)) for number in range(len(platforms))]
    for number, artifact in enumerate(artifacts):
        shelf.pusher.push(shelf.repository, f"part-{number}", artifact)
    listed = index(*zip(artifacts, platforms, strict=True))
    digest = shelf.pusher.push_index(shelf.repository, "latest", listed)
    fetched = await pull(shelf, tmp_path)
    assert str(fetched.revision) == f"latest@{digest}"
    assert read_files(tmp_path) == {"a.json": "1"}


async def test_an_index_of_other_platforms_alone_and_one_of_indexes_are_refused(
    shelf: Shelf, tmp_path: Path
) -> None:
    artifact = flux(FILES)
    shelf.pusher.push(shelf.repository, "part", artifact)
    listed = index((artifact, ARM64))
    digest = shelf.pusher.push_index(shelf.repository, "latest", listed)
    failed = await setback(shelf, tmp_path)
    assert failed.reason == "InvalidArtifact"
    assert "none of which is for linux/amd64" in failed.message
    nested = index((Artifact(listed, ()), None))
    assert shelf.pusher.push_index(shelf.repository, "nested", nested) != digest
    failed = await setback(shelf, tmp_path, ref={"tag": "nested"})
    assert "it is an index within an index" in failed.message
    assert read_files(tmp_path) == {}


async def test_a_missing_tag_is_reported_with_those_that_exist(shelf: Shelf, tmp_path: Path) -> None:
    shelf.pusher.push(shelf.repository, "prod", flux(FILES))
    failed = await setback(shelf, tmp_path, ref={"tag": "prd"})
    assert isinstance(failed, Failed)
    assert (failed.reason, "did you mean 'prod'? tags: prod" in failed.message) == ("ReferenceNotFound", True)


async def test_a_missing_repository_is_reported(shelf: Shelf, tmp_path: Path) -> None:
    assert (await setback(shelf, tmp_path)).reason == "RepositoryNotFound"


async def test_a_manifest_that_is_gone_is_a_revision_that_is_gone(shelf: Shelf, tmp_path: Path) -> None:
    shelf.pusher.push(shelf.repository, "latest", flux(FILES))
    failed = await setback(shelf, tmp_path, ref={"digest": "sha256:" + "0" * 64})
    assert (failed.reason, isinstance(failed, Failed)) == ("RevisionGone", True)


async def test_a_range_that_no_tag_is_in_lists_the_tags(shelf: Shelf, tmp_path: Path) -> None:
    shelf.pusher.push(shelf.repository, "v1.0.0", flux(FILES))
    failed = await setback(shelf, tmp_path, ref={"semver": ">=2"})
    assert failed.reason == "ReferenceNotFound"
    assert failed.message.endswith("tags: v1.0.0")


@pytest.mark.parametrize("ref", [{"semver": "nonsense"}, {"semver": "*", "semverFilter": "("}])
async def test_an_invalid_spec_stalls(shelf: Shelf, tmp_path: Path, ref: dict[str, str]) -> None:
    shelf.pusher.push(shelf.repository, "v1.0.0", flux(FILES))
    failed = await setback(shelf, tmp_path, ref=ref)
    assert (failed.reason, isinstance(failed, Stalled)) == ("InvalidReference", True)


async def test_links_and_devices_are_left_out_and_named(shelf: Shelf, tmp_path: Path) -> None:
    link, hard, device = (tarfile.TarInfo(f"flags/{name}") for name in ("link.json", "hard.json", "device"))
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    hard.type, hard.linkname = tarfile.LNKTYPE, "flags/base/flags.json"
    device.type = tarfile.CHRTYPE
    shelf.pusher.push(shelf.repository, "latest", flux(FILES, link, hard, device))
    fetched = await pull(shelf, tmp_path)
    assert read_files(tmp_path) == FILES
    assert fetched.skipped == (
        "flags/link.json: symlink, not followed",
        "flags/hard.json: hard link, not followed",
        "flags/device: neither a file nor a folder",
    )
