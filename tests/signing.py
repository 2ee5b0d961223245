"""Keys and signatures of Git, made by the stock `ssh-keygen` and `gpg`."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.repositories import Repository

EXPIRED_AT: Final = "20200601T000000!"
"""By gpg's clock, when a key of `Pgp.expired` counted."""


@dataclass(frozen=True)
class SshPair:
    """A key pair of ssh-keygen's."""

    private: Path

    @property
    def public(self) -> str:
        return self.private.with_name(f"{self.private.name}.pub").read_text(encoding="utf-8")

    @property
    def fingerprint(self) -> str:
        shown = run("ssh-keygen", "-lf", str(self.private)).decode()
        return shown.split()[1]

    def use(self, repository: Repository) -> None:
        """Sign with it what is signed in `repository` from here on."""
        repository.git("config", "gpg.format", "ssh")
        repository.git("config", "user.signingkey", str(self.private))


def ssh_pair(folder: Path, kind: str = "ed25519", name: str = "ada@example.com") -> SshPair:
    """A new one in `folder`."""
    path = folder / f"{kind}-{name}"
    run("ssh-keygen", "-q", "-t", kind, "-N", "", "-C", name, "-f", str(path))
    return SshPair(path)


class Pgp:
    """A keyring of gpg's."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def gpg(self, *arguments: str, text: bytes = b"", at: str = "") -> bytes:
        """Its standard output; `at`: what its clock says."""
        clock = ("--faked-system-time", at) if at else ()
        common = ("--batch", "--no-tty", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "")
        return run("gpg", "--homedir", str(self.home), *common, *clock, *arguments, text=text)

    def make(self, user: str, *, kind: str = "ed25519", expires: str = "never", at: str = "") -> str:
        """The fingerprint of a new key."""
        self.gpg("--quick-generate-key", user, kind, "sign", expires, at=at)
        listed = self.gpg("--with-colons", "--list-keys", user).decode()
        return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))

    def public(self, fingerprint: str) -> bytes:
        """The key in armor."""
        return self.gpg("--armor", "--export", fingerprint)

    def revoke(self, fingerprint: str) -> None:
        """As its owner would, who lost it."""
        kept = (self.home / "openpgp-revocs.d" / f"{fingerprint}.rev").read_text(encoding="utf-8")
        self.gpg("--import", text=kept.replace(":-----BEGIN", "-----BEGIN").encode())

    def use(self, repository: Repository, fingerprint: str, *, at: str = "") -> None:
        """Sign with a key what is signed in `repository` from here on."""
        program = self.home / "sign"
        clock = f"--faked-system-time {at}" if at else ""
        program.write_text(
            f'#!/bin/sh\nexec gpg --homedir "{self.home}" --batch --quiet {clock} '
            '--pinentry-mode loopback --passphrase "" "$@"\n',
            encoding="utf-8",
        )
        program.chmod(0o755)
        repository.git("config", "gpg.format", "openpgp")
        repository.git("config", "gpg.program", str(program))
        repository.git("config", "user.signingkey", f"{fingerprint}!")


@contextlib.contextmanager
def pgp() -> Iterator[Pgp]:
    """An empty keyring; its agent ends with it."""
    # The path of its socket must be short.
    home = Path(tempfile.mkdtemp(prefix="gpg"))
    try:
        yield Pgp(home)
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            run("gpgconf", "--homedir", str(home), "--kill", "gpg-agent")
        shutil.rmtree(home, ignore_errors=True)


def run(*arguments: str, text: bytes = b"") -> bytes:
    """Standard output of a program that must succeed."""
    done = subprocess.run(arguments, input=text, capture_output=True, check=False, env=os.environ)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, arguments, done.stdout, done.stderr)
    return done.stdout
