"""`flagstaff push` and `promote`, and other verbs that take an artifact, over a real registry."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from typing import TYPE_CHECKING

import pytest

from controller.api.meta import VERIFIED_BY
from controller.cli import main
from controller.local.registries import PushOptions, push
from tests.clients.up import banner
from tests.registry.artifacts import flux, index
from tests.registry.fixtures import Shelf, registry, repository, shelf
from tests.registry.htpasswd import LOGIN, guarded_registry
from tests.registry.program import run_registry
from tests.registry.signing import signature_tag
from tests.registry.tokens import token_service
from tests.repositories import Repository
from tests.signing import run
from tests.worlds.sources import opener

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["registry", "repository", "shelf"]


class Cli:
    """The script, in this process."""

    def __init__(self, said: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._said = said
        self._monkeypatch = monkeypatch

    def __call__(self, *words: object, status: int = 0, given: str = "") -> str:
        """What it prints, with `given` to read; where it fails, what it says of that."""
        self._monkeypatch.setattr("sys.stdin", io.StringIO(given))
        code = main([str(word) for word in words])
        out, error = self._said.readouterr()
        assert code == status, error
        return (error if status else out).strip()

    def push(self, shelf: Shelf, repository: Repository, *words: str) -> str:
        """The digest of what was pushed."""
        said = self("push", f"{shelf.url}:prod", "--path", repository.path, "--insecure", *words)
        assert said.startswith(f"{shelf.url}:prod@sha256:")
        return said.partition("@")[2]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    return Cli(capsys, monkeypatch)


def test_the_same_files_are_the_same_digest_and_leave_out_what_is_ignored(
    cli: Cli, shelf: Shelf, repository: Repository, tmp_path: Path
) -> None:
    repository.commit("ignore", **{".sourceignore": "*.md\n", "README.md": "read me"})
    digest = cli.push(shelf, repository)
    clone = Repository(tmp_path / "clone")
    clone.git("pull", "-q", str(repository.path), "main")
    clone.git("remote", "add", "origin", "https://git.example.com/shop/flags.git")
    assert cli.push(shelf, clone) == digest
    (layer,) = json.loads(shelf.pusher.manifest(shelf.repository, digest))["layers"]
    with tarfile.open(fileobj=io.BytesIO(shelf.pusher.blob(shelf.repository, layer["digest"]))) as tar:
        assert sorted(tar.getnames()) == [".sourceignore", "flags.json"]


def test_uncommitted_changes_mark_the_revision_as_dirty(
    cli: Cli, shelf: Shelf, repository: Repository
) -> None:
    repository.write("flags.json", banner("party"))
    cli.push(shelf, repository)
    found = json.loads(shelf.pusher.manifest(shelf.repository, "prod"))["annotations"]
    assert found["org.opencontainers.image.revision"].endswith("-dirty")
    cli.push(shelf, repository, "--revision", "v1", "--source", "https://git.example.com", "--author", "Bob")
    found = json.loads(shelf.pusher.manifest(shelf.repository, "prod"))["annotations"]
    assert (found["org.opencontainers.image.revision"], found["org.opencontainers.image.authors"]) == (
        "v1",
        "Bob",
    )


def test_an_artifact_is_checked_and_evaluated(cli: Cli, shelf: Shelf, repository: Repository) -> None:
    cli.push(shelf, repository)
    answer = cli("eval", f"{shelf.url}:prod", "banner", "--insecure")
    assert json.loads(answer)["value"] == "Welcome"
    linted = cli("lint", "--source", f"{shelf.url}:prod", "--path", ".", "--insecure")
    assert linted.endswith("1 valid flag")


def test_an_unreachable_registry_or_a_refused_push_is_reported(
    cli: Cli, shelf: Shelf, tmp_path: Path
) -> None:
    said = cli("eval", f"{shelf.url}:prod", "banner", "--insecure", status=3)
    assert "NAME_UNKNOWN" in said
    nowhere = tmp_path / "nowhere"
    said = cli("push", f"{shelf.url}:prod", "--path", nowhere, "--insecure", status=2)
    assert said == f"flagstaff push: {nowhere} does not exist"
    (tmp_path / "link").symlink_to("elsewhere")
    said = cli("push", f"{shelf.url}:prod", "--path", tmp_path, "--insecure", status=2)
    assert "'link'" in said


def test_a_login_is_that_of_an_option_and_a_variable_or_standard_input(
    cli: Cli, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with guarded_registry(tmp_path) as port:
        target = f"oci://127.0.0.1:{port}/team/flags:prod"
        words = ("push", target, "--path", repository.path, "--insecure")
        assert "answers 401" in cli(*words, "--username", LOGIN.username, status=3, given="wrong\n")
        pushed = cli(*words, "--username", LOGIN.username, given=f"{LOGIN.password}\n")
        monkeypatch.setenv("FLAGSTAFF_REGISTRY_PASSWORD", LOGIN.password)
        assert cli(*words, "--username", LOGIN.username) == pushed
        monkeypatch.delenv("FLAGSTAFF_REGISTRY_PASSWORD")
        assert "asks for a login" in cli(*words, status=3)
        assert "needs a password" in cli(*words, "--username", LOGIN.username, status=2)


def test_a_token_lets_push(cli: Cli, repository: Repository, tmp_path: Path) -> None:
    with (
        token_service(f"{LOGIN.username}:{LOGIN.password}", tmp_path) as tokens,
        run_registry(tmp_path, **tokens.configuration) as port,
    ):
        words = ("--path", repository.path, "--insecure", "--username", LOGIN.username)
        cli("push", f"oci://127.0.0.1:{port}/team/flags:prod", *words, given=LOGIN.password)
        assert [each for each in tokens.asked if "pull,push" in each] == tokens.asked
        assert len(tokens.asked) == 1


async def test_a_pushed_and_signed_artifact_is_trusted_and_signatures_stay(
    shelf: Shelf, repository: Repository, tmp_path: Path
) -> None:
    keys = {}
    for name, kind in (("ci", "ed25519"), ("qa", "EC")):
        private, more = (
            tmp_path / f"{name}.key",
            ("-pkeyopt", "ec_paramgen_curve:P-256") if kind == "EC" else (),
        )
        run("openssl", "genpkey", "-algorithm", kind, *more, "-out", str(private))
        keys[name] = run("openssl", "pkey", "-in", str(private), "-pubout")
    pushed = None
    for name in ("ci", "qa", "ci"):
        options = PushOptions(
            f"{shelf.url}:prod", repository.path, insecure=True, key=tmp_path / f"{name}.key"
        )
        pushed = await push(options)
    for name, key in keys.items():
        async with opener(signers={f"{name}.pub": key}) as sources:
            source = await sources.open(shelf.url, ref={"tag": "prod"}, signers="signers")
            revision = await source.resolve()
            into = tmp_path / f"{name}-files"
            await asyncio.to_thread(into.mkdir)
            assert name in (await source.fetch(revision, into)).metadata[VERIFIED_BY]
    assert pushed is not None
    attached = json.loads(
        shelf.pusher.manifest(shelf.repository, signature_tag(pushed.reference.rpartition("@")[2]))
    )
    assert len(attached["layers"]) == 2


def test_a_key_that_cannot_be_used_is_refused_before_anything_is_pushed(
    cli: Cli, shelf: Shelf, repository: Repository, tmp_path: Path
) -> None:
    locked = tmp_path / "locked.key"
    run("openssl", "genpkey", "-algorithm", "ed25519", "-aes256", "-pass", "pass:x", "-out", str(locked))
    for key, expected in (
        (tmp_path / "none", "No such file"),
        (repository.path / "flags.json", "no private key"),
        (locked, "encrypted"),
    ):
        said = cli(
            "push", f"{shelf.url}:prod", "--path", repository.path, "--sign", key, "--insecure", status=2
        )
        assert expected in said
    assert not shelf.front.asked


def test_a_promotion_moves_the_tag_to_the_same_signed_digest_and_says_what_it_was(
    cli: Cli, shelf: Shelf, repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ci", "other"):
        run("openssl", "genpkey", "-algorithm", "ed25519", "-out", str(tmp_path / f"{name}.key"))
        public = run("openssl", "pkey", "-in", str(tmp_path / f"{name}.key"), "-pubout")
        (tmp_path / f"{name}.pub").write_bytes(public)
    old = cli.push(shelf, repository, "--sign", str(tmp_path / "ci.key"))
    words = ("--to", "eu", "--insecure", "--verify-key", tmp_path / "ci.pub")
    assert cli("promote", f"{shelf.url}@{old}", *words) == f"{shelf.url}:eu@{old}"
    repository.commit("second", flags__json=banner("party"))
    new = cli.push(shelf, repository, "--sign", str(tmp_path / "ci.key"))
    # The tag of the stage before is read once, and what it points at is promoted.
    assert main(["promote", f"{shelf.url}:prod", *map(str, words)]) == 0
    assert f"the tag eu pointed at {old} before" in capsys.readouterr().err
    assert shelf.pusher.manifest(shelf.repository, "eu") == shelf.pusher.manifest(shelf.repository, new)
    assert main(["promote", f"{shelf.url}@{new}", *map(str, words)]) == 0
    said = capsys.readouterr()
    assert (said.out, "points at it already" in said.err) == (f"{shelf.url}:eu@{new}\n", True)
    # An earlier artifact comes back in the same way.
    assert cli("promote", f"{shelf.url}@{old}", *words) == f"{shelf.url}:eu@{old}"
    refused = cli(
        "promote", f"{shelf.url}@{new}", "--to", "eu", "--insecure",
        "--verify-key", tmp_path / "other.pub", status=3,
    )  # fmt: skip
    assert "sign it with a trusted key" in refused
    assert shelf.pusher.manifest(shelf.repository, "eu") == shelf.pusher.manifest(shelf.repository, old)


def test_an_index_is_promoted_as_an_index(cli: Cli, shelf: Shelf) -> None:
    made = flux({"flags.json": banner("plain")})
    shelf.pusher.push(shelf.repository, "one", made)
    digest = shelf.pusher.push_index(shelf.repository, "all", index((made, None)))
    said = cli("promote", f"{shelf.url}:all", "--to", "eu", "--unsigned", "--insecure")
    assert said == f"{shelf.url}:eu@{digest}"
    assert json.loads(cli("eval", f"{shelf.url}:eu", "banner", "--insecure"))["value"] == "Welcome"


def test_a_promotion_that_cannot_be_is_refused_with_what_to_do(
    cli: Cli, shelf: Shelf, repository: Repository, tmp_path: Path
) -> None:
    digest = cli.push(shelf, repository)
    target = f"{shelf.url}@{digest}"
    rest = ("--insecure", "--unsigned")
    assert "MANIFEST_UNKNOWN" in cli("promote", f"{shelf.url}x:prod", "--to", "eu", *rest, status=3)
    assert "MANIFEST_UNKNOWN" in cli(
        "promote", f"{shelf.url}@sha256:{'0' * 64}", "--to", "eu", *rest, status=3
    )
    assert "e u" in cli("promote", target, "--to", "e u", *rest, status=3)
    said = cli("promote", target, "--to", "eu", "--after", "checkout", *rest, status=2)
    assert said.endswith("write KIND/NAME, such as rollout/checkout")
    assert "MANIFEST_UNKNOWN" in cli("promote", f"{shelf.url}:eu", "--to", "us", *rest, status=3)
