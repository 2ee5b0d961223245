"""`--verify-key`: what nobody trusted signed is neither served nor linted, whatever holds it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from controller.cli import main
from controller.local.local_options import LocalOptions
from controller.local.local_stages import build_once
from controller.runtime.setbacks import Setback, Stalled
from controller.sources.bucket_listing import MANIFEST
from tests.registry.artifacts import flux
from tests.registry.fixtures import Shelf, registry, shelf
from tests.registry.signing import Key, sign_folder, signature_tag, simple
from tests.repositories import Repository
from tests.s3 import S3, VARIABLES, s3
from tests.signing import run, ssh_pair
from tests.worlds.flagsets import document, flag

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["registry", "shelf"]

GOOD, BAD = document(a=flag(), b=flag()), document(a=flag())


@dataclass(frozen=True)
class Place:
    """A source of which GOOD is signed."""

    options: LocalOptions
    spoil: Callable[[], Any]
    """Put BAD there, which is not."""
    reason: str


def git_place(root: Path) -> Place:
    repository = Repository(root / "repository")
    pair = ssh_pair(root)
    pair.use(repository)
    repository.write("flags.json", GOOD)
    repository.git("add", "-A")
    repository.git("commit", "-q", "-S", "-m", "signed")
    keys = {"ada.sshpub": pair.public.encode()}
    options = LocalOptions(str(repository.path), verify_keys=keys)
    return Place(options, lambda: repository.commit(flags__json=BAD), "InvalidCommitSignature")


def oci_place(shelf: Shelf) -> Place:
    key = Key()
    digest = shelf.pusher.push(shelf.repository, "latest", flux({"flags.json": GOOD}))
    shelf.pusher.push(shelf.repository, signature_tag(digest), simple(digest, key))
    options = LocalOptions(f"{shelf.url}:latest", insecure=True, verify_keys={"ci.pub": key.public})
    bad = flux({"flags.json": BAD})
    return Place(
        options, lambda: shelf.pusher.push(shelf.repository, "latest", bad), "InvalidArtifactSignature"
    )


def bucket_place(root: Path, store: S3) -> Place:
    folder = root / "folder"
    folder.mkdir()
    (folder / "flags.json").write_text(GOOD)
    private = root / "ci.pem"
    run("openssl", "genpkey", "-algorithm", "ed25519", "-out", str(private))
    sign_folder(folder, Key(pem=private.read_bytes()), "2026-01-02T03:04:05.678Z")
    for path in folder.iterdir():
        store.write(f"shop/{path.name}", path.read_text())
    keys = {"ci.pub": run("openssl", "pkey", "-in", str(private), "-pubout")}
    options = LocalOptions("s3://flags/shop", paths=("shop",), endpoint=store.url, verify_keys=keys)

    def spoil() -> None:
        store.write("shop/flags.json", BAD)
        store.remove(f"shop/{MANIFEST}")

    return Place(options, spoil, "InvalidBucketSignature")


@pytest.fixture(params=["git", "oci", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "git":
        yield git_place(tmp_path)
    elif request.param == "oci":
        yield oci_place(request.getfixturevalue("shelf"))
    else:
        for name, text in VARIABLES.items():
            monkeypatch.setenv(name, text)
        with s3(tmp_path) as store:
            yield bucket_place(tmp_path, store)


async def refusal_of(options: LocalOptions) -> Setback:
    with pytest.raises(Setback) as raised:
        await build_once(options)
    return raised.value


async def test_what_is_not_signed_is_not_read(place: Place) -> None:
    built = await build_once(place.options)
    assert (built.composition.accepted, set(built.composition.flag_set.flags)) == (True, {"a", "b"})
    place.spoil()
    setback = await refusal_of(place.options)
    assert setback.reason == place.reason
    assert "another --verify-key (there are " in setback.message
    assert "kubectl" not in setback.message
    assert set((await build_once(replace(place.options, verify_keys={}))).composition.flag_set.flags) == {"a"}


async def test_what_was_kept_without_keys_is_not_served_with_them(place: Place, tmp_path: Path) -> None:
    state = tmp_path / "state"
    await build_once(replace(place.options, verify_keys={}, state_dir=state))
    with pytest.raises(Stalled, match="--verify-key") as setback:
        await build_once(replace(place.options, state_dir=state))
    assert setback.value.reason == "StateOfAnotherSource"


async def test_a_key_that_cannot_be_meant_is_refused(place: Place) -> None:
    setback = await refusal_of(replace(place.options, verify_keys={"key.txt": b"x"}))
    assert setback.reason == "InvalidSecret"
    assert "Secret made of --verify-key: 'key.txt': must be called" in setback.message


async def test_one_object_of_a_bucket_is_no_signed_folder() -> None:
    options = LocalOptions("s3://flags/shop/flags.json", verify_keys={"ci.pub": Key().public})
    assert "name a folder" in (await refusal_of(options)).message


def test_the_option_names_files_and_is_about_what_is_committed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = git_place(tmp_path)
    key = tmp_path / "ada.sshpub"
    key.write_bytes(place.options.verify_keys["ada.sshpub"])
    source = ["--source", place.options.source, "--verify-key", str(key)]
    assert main(["lint", "--path", ".", *source]) == 0
    assert main(["up", place.options.source, "--once", "--verify-key", str(key)]) == 0
    place.spoil()
    assert main(["lint", "--path", ".", *source]) == 2
    assert "it is not signed" in capsys.readouterr().err
    assert main(["lint", str(key), "--verify-key", str(key)]) == 2
    assert "files on disk are not signed" in capsys.readouterr().err
