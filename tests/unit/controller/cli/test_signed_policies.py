"""Policies that ask who signed a commit, in `plan` and `lint`, with keys of ssh-keygen's and gpg's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from controller.cli import main
from tests.repositories import Repository
from tests.signing import SshPair, pgp, ssh_pair
from tests.worlds.flags import flags

if TYPE_CHECKING:
    from pathlib import Path

SIGNED: Final = """
name: payments
action: Hold
matchConditions: [{name: payments, expression: 'path.startsWith("payments/")'}]
validations:
  - expression: signer.startsWith("pay@example.com (")
    message: the payments team signs this
"""
UNMET: Final = (
    'payments/flags.json:1:0: error: policy payments (Hold): flag "banner": the payments team signs this'
)
UNKNOWN: Final = (
    'payments/flags.json:1:0: note: policy payments (Hold): flag "banner": not judged: it asks for the '
    "signer, and no signature was verified (plan and lint do with --verify-key)"
)
DIFFERS: Final = 2
BAD: Final = 1


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = Repository(tmp_path / "flags")
    made.git("config", "commit.gpgsign", "true")
    made.write("policies/payments.yaml", SIGNED)
    monkeypatch.chdir(made.path)
    return made


def change(repository: Repository) -> None:
    for default in ("on", "off"):
        repository.write("payments/flags.json", flags(banner=default))
        repository.commit(default)


def trusted(folder: Path, *pairs: SshPair) -> list[str]:
    """The words that trust these keys."""
    words = []
    for pair in pairs:
        file = folder / f"{pair.private.name}.sshpub"
        file.write_text(pair.public)
        words += ["--verify-key", str(file)]
    return words


def plan(*words: str) -> int:
    return main(["plan", "HEAD~1..HEAD", "--path", "payments", "--detailed-exitcode", *words])


def lint(*words: str) -> int:
    return main(["lint", "--ref", "HEAD", "--path", "payments", *words])


def test_commit_that_the_team_signed_meets_the_policy(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pay = ssh_pair(tmp_path, name="pay@example.com")
    pay.use(repository)
    change(repository)
    assert plan(*trusted(tmp_path, pay)) == DIFFERS
    assert lint(*trusted(tmp_path, pay)) == 0
    assert "policy" not in "".join(capsys.readouterr())


def test_commit_that_somebody_else_signed_does_not(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pay, ada = ssh_pair(tmp_path, name="pay@example.com"), ssh_pair(tmp_path)
    ada.use(repository)
    change(repository)
    assert plan(*trusted(tmp_path, pay, ada)) == BAD
    assert UNMET in capsys.readouterr().err
    assert lint(*trusted(tmp_path, pay, ada)) == BAD
    assert UNMET in capsys.readouterr().out


def test_unknown_signer_is_said_and_counts_neither_way(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ssh_pair(tmp_path, name="pay@example.com").use(repository)
    change(repository)
    assert plan() == DIFFERS
    assert UNKNOWN in capsys.readouterr().err
    assert plan("-o", "markdown") == DIFFERS
    assert "not judged: it asks for the signer" in capsys.readouterr().out
    assert plan("-o", "sarif") == DIFFERS
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert ["policy-unknown", "note"] in [[each["ruleId"], each["level"]] for each in run["results"]]
    assert lint() == 0
    assert UNKNOWN in capsys.readouterr().out


def test_key_of_gpg_is_named_by_its_user(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.write("policies/payments.yaml", SIGNED.replace("pay@example.com (", "Pay <pay@example.com> ("))
    with pgp() as ring:
        key = ring.make("Pay <pay@example.com>")
        ring.use(repository, key)
        change(repository)
        (tmp_path / "pay.asc").write_bytes(ring.public(key))
    assert plan("--verify-key", str(tmp_path / "pay.asc")) == DIFFERS
    assert "policy" not in "".join(capsys.readouterr())
