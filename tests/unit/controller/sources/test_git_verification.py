"""Signatures of commits and tags, made by git with ssh-keygen and gpg, and what comes of them."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, NoReturn

import pytest

from controller.api.meta import VERIFIED_BY
from controller.runtime.setbacks import Stalled
from controller.sources.deadline import LimitedTasks
from tests.git_http import git_server
from tests.signing import EXPIRED_AT, Pgp, SshPair, pgp, ssh_pair
from tests.worlds.sources import Verified

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.repositories import Repository


@pytest.fixture
async def source(tmp_path: Path, repository: Repository) -> AsyncIterator[Verified]:
    source = Verified(tmp_path, f"file://{repository.path}")
    yield source
    await source.close()


@pytest.fixture
def ring() -> Iterator[Pgp]:
    with pgp() as ring:
        yield ring


@pytest.fixture
def ada(tmp_path: Path) -> SshPair:
    return ssh_pair(tmp_path)


def sign_commit(repository: Repository, text: str, message: str = "a change") -> str:
    """A commit that is signed with what the repository's configuration names."""
    repository.write("flags.json", text)
    repository.git("add", "-A")
    repository.git("commit", "-q", "-S", "-m", message)
    return repository.git("rev-parse", "HEAD")


def trust(source: Verified, ada: SshPair) -> None:
    source.trusted = {"ada.sshpub": ada.public.encode()}


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
async def test_a_commit_that_is_signed_with_a_trusted_ssh_key_is_stored(
    source: Verified, repository: Repository, tmp_path: Path, kind: str
) -> None:
    pair = ssh_pair(tmp_path, kind)
    pair.use(repository)
    commit = sign_commit(repository, "1", "Turn it on")
    trust(source, pair)
    source.verify()
    assert (await source.look(), source.stored) == ("Succeeded", "1")
    who = f"ada@example.com (SSH {pair.fingerprint})"
    shown = f"main@sha1:{commit} is signed by {who}"
    assert source.condition("SourceVerified") == ("True", "Succeeded", shown)
    assert source.metadata[VERIFIED_BY] == who
    assert [f"signed by {who}" in message for _, message in source.events] == [True]


@pytest.mark.parametrize("kind", ["ed25519", "rsa2048"])
async def test_a_commit_that_is_signed_with_a_trusted_pgp_key_is_stored(
    source: Verified, repository: Repository, ring: Pgp, kind: str
) -> None:
    key = ring.make("Ada <ada@example.com>", kind=kind)
    other = ring.make("Eve <eve@example.com>")
    ring.use(repository, key)
    sign_commit(repository, "1")
    source.trusted = {"all.asc": ring.public(other) + ring.public(key)}
    source.verify()
    assert (await source.look(), source.stored) == ("Succeeded", "1")
    assert source.metadata[VERIFIED_BY] == f"Ada <ada@example.com> (PGP {key})"


async def test_an_unsigned_commit_is_refused_and_what_was_accepted_stays_over_a_restart(
    source: Verified, repository: Repository, ada: SshPair
) -> None:
    ada.use(repository)
    good = sign_commit(repository, "1")
    trust(source, ada)
    source.verify()
    await source.look()
    bad = repository.commit("By the way", flags__json="2")
    for _ in range(2):
        assert (await source.look(), source.stored) == ("InvalidCommitSignature", "1")
        status, reason, message = source.condition("SourceVerified")
        assert (status, reason) == ("False", "InvalidCommitSignature")
        assert message == (
            f"commit {bad} 'By the way': it is not signed; sign it with a trusted key (git commit -S), "
            "or add the key to Secret apps/trusted (it has ada.sshpub)"
        )
        assert source.condition("Stalled")[0] == "True"
        assert source.status["artifact"]["revision"] == f"main@sha1:{good}"
        source.restart()
    sign_commit(repository, "3")
    assert (await source.look(), source.stored) == ("Succeeded", "3")
    assert "Recovered" in [reason for reason, _ in source.events]


async def test_where_nothing_was_accepted_nothing_is_stored(
    source: Verified, repository: Repository, ada: SshPair
) -> None:
    repository.commit(flags__json="1")
    trust(source, ada)
    source.verify()
    assert await source.look() == "InvalidCommitSignature"
    assert "artifact" not in source.status
    shutil.rmtree(source.root / "artifacts")
    source.restart()
    assert await source.look() == "InvalidCommitSignature"
    assert "artifact" not in source.status


async def test_a_key_that_nobody_trusts_is_named(
    source: Verified, repository: Repository, ada: SshPair, tmp_path: Path, ring: Pgp
) -> None:
    eve = ssh_pair(tmp_path, name="eve@example.com")
    eve.use(repository)
    sign_commit(repository, "1")
    trust(source, ada)
    source.verify()
    await source.look()
    assert f"the key SSH {eve.fingerprint}, which is not among" in source.condition("SourceVerified")[2]
    key = ring.make("Eve <eve@example.com>")
    ring.use(repository, key)
    sign_commit(repository, "2")
    await source.look()
    assert f"the key PGP {key}, which is not among" in source.condition("SourceVerified")[2]


async def test_a_pgp_key_that_was_revoked_or_had_expired_does_not_count(
    source: Verified, repository: Repository, ring: Pgp
) -> None:
    revoked, expired = ring.make("Rev <r@x.com>"), ring.make("Exp <e@x.com>", expires="1y", at=EXPIRED_AT)
    ring.use(repository, revoked)
    sign_commit(repository, "1")
    source.trusted = {"a.asc": ring.public(revoked)}
    source.verify()
    assert await source.look() == "Succeeded"
    older = ring.public(revoked)
    ring.revoke(revoked)
    for trusted in ([ring.public(revoked)], [older, ring.public(revoked)], [ring.public(revoked), older]):
        source.trusted = {f"{number}.asc": each for number, each in enumerate(trusted)}
        assert (await source.look(), source.stored) == ("InvalidCommitSignature", "1")
        assert f"PGP {revoked}, which is revoked" in source.condition("SourceVerified")[2]
    source.trusted = {"a.asc": ring.public(expired)}
    # Its key is renewed, and used when it had expired: the key that is trusted does not say so.
    ring.gpg("--quick-set-expire", expired, "20y", at="20200701T000000!")
    ring.use(repository, expired)
    sign_commit(repository, "2")
    assert (await source.look(), source.stored) == ("InvalidCommitSignature", "1")
    assert "expired" in source.condition("SourceVerified")[2]


async def test_an_ssh_key_counts_while_allowed_signers_says_so(
    source: Verified, repository: Repository, ada: SshPair
) -> None:
    ada.use(repository)
    sign_commit(repository, "1")
    key = " ".join(ada.public.split()[:2])
    source.verify()
    for options, reason in (
        ('valid-before="20200101"', "InvalidCommitSignature"),
        ('valid-after="29990101Z"', "InvalidCommitSignature"),
        ('valid-before="yesterday"', "InvalidCommitSignature"),
        ('namespaces="file"', "InvalidCommitSignature"),
        ('namespaces="*,!git"', "InvalidCommitSignature"),
        ("cert-authority", "InvalidSecret"),
        ('namespaces="file,git",valid-after="20200101Z"', "Succeeded"),
    ):
        source.trusted = {"allowed_signers": f"# ours\nada@x,al@x {options} {key}\n".encode()}
        assert (await source.look(), options) == (reason, options)
    assert source.metadata[VERIFIED_BY] == f"ada@x,al@x (SSH {ada.fingerprint})"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "has no public key"),
        ({"a.pub": b"x"}, "'a.pub': must be called"),
        ({"a.sshpub": b"ssh-dss AAAA"}, "line 1 is no public key"),
        ({"a.sshpub": b"ssh-ed25519 ????"}, "the key is damaged"),
        ({"a.asc": b"x"}, "contains no PGP PUBLIC KEY BLOCK"),
        ({"allowed_signers": b"* cert-authority ssh-ed25519 AAAA"}, "line 1"),
    ],
)
async def test_a_secret_that_cannot_be_meant_is_refused(
    source: Verified, repository: Repository, content: dict[str, bytes], message: str
) -> None:
    repository.commit(flags__json="1")
    source.trusted = content
    source.verify()
    assert await source.look() == "InvalidSecret"
    assert message in source.condition("Ready")[2]


async def test_a_tag_must_be_signed_and_be_the_one_that_is_followed(
    source: Verified, repository: Repository, ada: SshPair
) -> None:
    ada.use(repository)
    repository.commit(flags__json="1")
    repository.git("tag", "-s", "-m", "first", "v1.0.0")
    trust(source, ada)
    source.verify("Tag", ref={"semver": ">=1"})
    assert (await source.look(), source.stored) == ("Succeeded", "1")
    repository.commit(flags__json="2")
    for name, how, message in (
        ("v1.1.0", (), "tag 'v1.1.0' is not annotated"),
        ("v1.2.0", ("-a", "-m", "x"), "tag 'v1.2.0': it is not signed"),
    ):
        repository.git("tag", *how, name)
        assert await source.look() == "InvalidTagSignature"
        assert message in source.condition("SourceVerified")[2]
    # The signed tag of an older version, put in a newer one's place.
    repository.git("update-ref", "refs/tags/v1.3.0", "refs/tags/v1.0.0")
    assert await source.look() == "InvalidTagSignature"
    assert "it says to be the tag 'v1.0.0'" in source.condition("SourceVerified")[2]
    repository.git("tag", "-s", "-m", "good", "v1.4.0")
    assert (await source.look(), source.stored) == ("Succeeded", "2")


async def test_a_mode_of_tags_needs_a_tag(source: Verified, repository: Repository, ada: SshPair) -> None:
    trust(source, ada)
    source.verify("Tag")
    assert await source.look() == "InvalidVerificationMode"


async def test_every_commit_since_the_accepted_one_must_be_signed(
    source: Verified, repository: Repository, ada: SshPair
) -> None:
    repository.commit("before anybody looked", flags__json="0")
    ada.use(repository)
    sign_commit(repository, "1")
    trust(source, ada)
    source.verify("EveryCommit")
    assert (await source.look(), source.stored) == ("Succeeded", "1")
    sign_commit(repository, "2")
    hidden = repository.commit("smuggled", flags__json="3")
    sign_commit(repository, "4")
    assert (await source.look(), source.stored) == ("InvalidCommitSignature", "1")
    assert f"commit {hidden} 'smuggled'" in source.condition("SourceVerified")[2]
    source.verify("HEAD")
    assert (await source.look(), source.stored) == ("Succeeded", "4")


async def test_another_key_verifies_the_same_revision_again(
    source: Verified, repository: Repository, ada: SshPair, tmp_path: Path
) -> None:
    ada.use(repository)
    sign_commit(repository, "1")
    trust(source, ada)
    source.verify()
    await source.look()
    before = source.status
    assert (await source.look(), source.status) == ("Succeeded", before)
    eve = ssh_pair(tmp_path, name="eve@example.com")
    source.trusted = {"eve.sshpub": eve.public.encode()}
    assert (await source.look(), source.stored) == ("InvalidCommitSignature", "1")
    assert source.condition("SourceVerified")[0] == "False"
    source.trusted = {"eve.sshpub": eve.public.encode(), "ada.sshpub": ada.public.encode()}
    assert await source.look() == "Succeeded"
    assert source.status["observedVerification"] != before["observedVerification"]
    del source.spec["verify"]
    assert await source.look() == "Succeeded"
    assert (source.condition("SourceVerified"), VERIFIED_BY in source.metadata) == (("", "", ""), False)


async def test_a_rewritten_history_is_refused_until_a_person_accepts_it(
    source: Verified, repository: Repository
) -> None:
    source.spec["git"]["history"] = "FastForwardOnly"
    first = repository.commit("first", flags__json="1")
    second = repository.commit("second", flags__json="2")
    await source.look()
    repository.git("reset", "-q", "--hard", first)
    assert (await source.look(), source.stored) == ("HistoryRewritten", "2")
    assert f"commit {first} is older than commit {second}" in source.condition("Stalled")[2]
    other = repository.commit("instead", flags__json="3")
    assert (await source.look(), source.stored) == ("HistoryRewritten", "2")
    message = source.condition("Stalled")[2]
    assert f"commit {other} does not descend from commit {second}" in message
    accept = re.search(r"annotate --overwrite flagsource/flags (\S+)=(\S+)$", message)
    assert accept is not None
    source.annotations = {accept[1]: accept[2]}
    assert (await source.look(), source.stored) == ("Succeeded", "3")
    repository.git("reset", "-q", "--hard", second)
    assert await source.look() == "HistoryRewritten"
    repository.git("reset", "-q", "--hard", other)
    repository.commit("and on", flags__json="4")
    assert (await source.look(), source.stored) == ("Succeeded", "4")
    # It was let through once.
    repository.git("reset", "-q", "--hard", other)
    assert (await source.look(), source.stored) == ("HistoryRewritten", "4")


async def test_without_verification_a_force_push_is_followed(
    source: Verified, repository: Repository
) -> None:
    first = repository.commit("first", flags__json="1")
    repository.commit("second", flags__json="2")
    await source.look()
    repository.git("reset", "-q", "--hard", first)
    assert (await source.look(), source.stored) == ("Succeeded", "1")


async def test_another_reference_is_no_rewrite(source: Verified, repository: Repository) -> None:
    source.spec["git"]["history"] = "FastForwardOnly"
    first = repository.commit("first", flags__json="1")
    repository.git("branch", "side", first)
    repository.commit("second", flags__json="2")
    await source.look()
    source.spec["git"]["ref"] = {"branch": "side"}
    assert (await source.look(), source.stored) == ("Succeeded", "1")


async def test_a_lower_version_is_older_and_a_higher_one_may_be_elsewhere(
    source: Verified, repository: Repository
) -> None:
    source.spec["git"].update(history="FastForwardOnly", ref={"semver": ">=1"})
    repository.commit("first", flags__json="1")
    repository.git("tag", "v1.0.0")
    repository.git("checkout", "-q", "--orphan", "elsewhere")
    repository.commit("second", flags__json="2")
    repository.git("tag", "v1.1.0")
    await source.look()
    repository.git("tag", "-d", "v1.1.0")
    assert (await source.look(), source.stored) == ("HistoryRewritten", "2")
    repository.git("tag", "v1.2.0", "v1.0.0")
    assert (await source.look(), source.stored) == ("Succeeded", "1")


@pytest.mark.parametrize("mode", ["HEAD", "EveryCommit"])
async def test_a_tag_that_is_not_verified_brings_back_no_older_commit(
    source: Verified, repository: Repository, ada: SshPair, mode: str
) -> None:
    ada.use(repository)
    old = sign_commit(repository, "1")
    sign_commit(repository, "2")
    repository.git("tag", "v1.5.0")
    trust(source, ada)
    source.verify(mode, ref={"semver": ">=1"})
    assert (await source.look(), source.stored) == ("Succeeded", "2")
    # A person who may push needs no key to make a tag.
    repository.git("tag", "v99.0.0", old)
    assert (await source.look(), source.stored) == ("HistoryRewritten", "2")
    repository.git("tag", "-d", "v99.0.0")
    sign_commit(repository, "3")
    repository.git("tag", "v1.6.0")
    assert (await source.look(), source.stored) == ("Succeeded", "3")


async def test_a_history_that_the_server_cuts_is_not_judged_as_whole(
    tmp_path: Path, repository: Repository, ada: SshPair
) -> None:
    ada.use(repository)
    sign_commit(repository, "1")
    with git_server(tmp_path) as server:
        source = Verified(tmp_path, f"{server.url}/repository/.git")
        trust(source, ada)
        source.verify("EveryCommit")
        assert await source.look() == "Succeeded"
        repository.commit("smuggled", flags__json="2")
        cut = sign_commit(repository, "3")
        (repository.path / ".git" / "shallow").write_text(f"{cut}\n")
        sign_commit(repository, "4")
        assert await source.look() != "Succeeded"
        assert source.stored == "1"
        await source.close()


async def test_what_is_too_much_for_one_policy_is_not_for_the_next(
    tmp_path: Path, repository: Repository, ada: SshPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada.use(repository)
    sign_commit(repository, "1")
    with git_server(tmp_path) as server:
        source = Verified(tmp_path, f"{server.url}/repository/.git")
        trust(source, ada)
        source.verify("EveryCommit")
        await source.look()
        sign_commit(repository, "2")

        async def too_much(*_: object) -> NoReturn:
            raise Stalled("LimitExceeded", "more than 2000 commits")

        with monkeypatch.context() as patched:
            patched.setattr(LimitedTasks, "run", too_much)
            assert (await source.look(), source.stored) == ("LimitExceeded", "1")
            assert "to accept it without those before it: kubectl" in source.condition("Ready")[2]
        source.verify("HEAD")
        assert (await source.look(), source.stored) == ("Succeeded", "2")
        await source.close()


async def test_a_remote_is_verified_with_its_history_and_its_tags(
    tmp_path: Path, repository: Repository, ada: SshPair
) -> None:
    ada.use(repository)
    sign_commit(repository, "1")
    repository.git("tag", "-s", "-m", "first", "v1")
    with git_server(tmp_path) as server:
        source = Verified(tmp_path, f"{server.url}/repository/.git")
        trust(source, ada)
        source.verify("EveryCommit")
        assert (await source.look(), source.stored) == ("Succeeded", "1")
        repository.commit("smuggled", flags__json="2")
        sign_commit(repository, "3")
        assert (await source.look(), source.stored) == ("InvalidCommitSignature", "1")
        assert "'smuggled'" in source.condition("SourceVerified")[2]
        source.verify("Tag", ref={"tag": "v1"})
        assert (await source.look(), source.stored) == ("Succeeded", "1")
        repository.git("tag", "-f", "-a", "-m", "unsigned", "v1", "v1^{}")
        shutil.rmtree(source.root / "artifacts")
        source.restart()
        assert await source.look() == "InvalidTagSignature"
        await source.close()
