"""Signatures by SSH keys, made and verified by ssh-keygen."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from controller.runtime.secret_texts import SecretTexts
from controller.runtime.setbacks import Stalled
from controller.sources.backend import NotBelievedError, NotJudgedError
from controller.sources.signing_keys import (
    MOST_KEYS,
    InvalidKeyError,
    read_allowed,
    read_keys,
    read_public,
    verify_ssh,
)
from tests.signing import SshPair, run, ssh_pair

if TYPE_CHECKING:
    from pathlib import Path

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MESSAGE = b"turn it on"


def sign(pair: SshPair, namespace: str = "git") -> bytes:
    command = ("ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", str(pair.private))
    return subprocess.run(command, input=MESSAGE, capture_output=True, check=True).stdout


@pytest.fixture
def ada(tmp_path: Path) -> SshPair:
    return ssh_pair(tmp_path)


def test_a_key_with_two_owners_is_the_one_whose_at_that_time(ada: SshPair) -> None:
    key = " ".join(ada.public.split()[:2])
    keys = read_allowed(
        f'"bob" valid-before="20260101" {key}\n# handed over\neve namespaces="file" {key}\n'
        f'ada namespaces="git,file",valid-after="20260101Z" {key}\n'
    )
    assert verify_ssh(MESSAGE, sign(ada), keys, AT).name == "ada"
    assert verify_ssh(MESSAGE, sign(ada), keys, AT.replace(year=2025)).name == "bob"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ('valid-before="20260102030404"', "key has expired"),
        ('valid-after="20260102030406Z"', "key is not yet valid"),
        ('namespaces="file,*,!git"', "key is not permitted"),
        ('valid-after="soon"', "bad options"),
    ],
)
def test_a_key_that_does_not_count_is_named_with_the_reason(ada: SshPair, options: str, why: str) -> None:
    keys = read_allowed(f"ada {options} {ada.public}")
    with pytest.raises(
        NotBelievedError, match=f"SSH {ada.fingerprint}, which does not count: {why}".replace("+", r"\+")
    ):
        verify_ssh(MESSAGE, sign(ada), keys, AT)


def test_what_is_not_signed_by_a_trusted_key_for_git_is_refused(ada: SshPair, tmp_path: Path) -> None:
    keys = read_public(ada.public)
    eve, small = ssh_pair(tmp_path, name="eve@example.com"), SshPair(tmp_path / "small")
    run("ssh-keygen", "-q", "-t", "rsa", "-b", "1024", "-N", "", "-f", str(small.private))
    for message, armored, trusted, why in (
        (b"turn it off", sign(ada), keys, "not of its content"),
        (MESSAGE, sign(ada, "file"), keys, "for another purpose than Git"),
        (MESSAGE, sign(eve), keys, "not among the trusted keys"),
        (MESSAGE, sign(ada)[:-60], keys, "damaged"),
        (MESSAGE, b"-----BEGIN SSH SIGNATURE-----\n" + b"A" * 70_000, keys, "more than 65536"),
        (MESSAGE, sign(small), read_public(small.public), "less than 2048 bits"),
        (MESSAGE, sign(ada), [], "not among the trusted keys"),
    ):
        with pytest.raises(NotBelievedError, match=why):
            verify_ssh(message, armored, trusted, AT)


def test_without_ssh_keygen_a_signature_is_not_judged(
    ada: SshPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    armored = sign(ada)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotJudgedError, match="ssh-keygen is not installed"):
        verify_ssh(MESSAGE, armored, read_public(ada.public), AT)


def test_without_room_for_its_files_a_signature_is_not_judged(
    ada: SshPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    armored = sign(ada)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(NotJudgedError, match="cannot be verified"):
        verify_ssh(MESSAGE, armored, read_public(ada.public), AT)


@pytest.mark.parametrize(
    "before_key",
    [
        "ada cert-authority",
        "ada frob",
        'ada valid-before="2026",frob',
        'ada principals="x"',
        "ada ssh-rsa",
        "",
    ],
)
def test_an_allowed_signer_that_cannot_be_meant_is_refused(ada: SshPair, before_key: str) -> None:
    with pytest.raises(InvalidKeyError, match="line 2"):
        read_allowed(f"# first\n{before_key} {ada.public}")


def test_the_keys_of_a_secret_are_bounded_in_number_and_bytes(ada: SshPair) -> None:
    many = {f"{n}.sshpub": ada.public.encode() * 100 for n in range(MOST_KEYS // 100)}
    assert len(read_keys(SecretTexts("apps/keys", many)).ssh) == MOST_KEYS
    for content, why in (
        ({**many, "allowed_signers": b"ada " + ada.public.encode()}, "InvalidSecret"),
        ({f"{n}.sshpub": b"#" * 60_000 for n in range(5)}, "InvalidSecret"),
        ({"a.sshpub": b"\n" * 60_000}, "InvalidSecret"),
    ):
        with pytest.raises(Stalled, match="more than") as refused:
            read_keys(SecretTexts("apps/keys", content))
        assert refused.value.reason == why
