"""The trusted public keys of a Secret, and whose of them made a signature; signatures by SSH keys.

`*.asc` are PGP keys, `*.sshpub` SSH public keys as in an authorized_keys file, both as Flux's Secrets have
them; `allowed_signers` is a file as `git config gpg.ssh.allowedSignersFile` names one (ssh-keygen(1)).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from controller.runtime.limited_child import NOT_FOUND, ChildResult, ProcessLimits, run_blocking
from controller.runtime.plain_text import one_line
from controller.runtime.secret_texts import SecretTexts, pem_blocks
from controller.runtime.temporary import TemporaryFolder
from controller.sources.backend import NotBelievedError, NotJudgedError, Signer, fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path


TYPES: Final = (
    "ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
)  # fmt: skip
"""Kinds of keys that count; `sk-` are those of security keys."""
MOST_KEYS: Final = 1_000
_NAMESPACE: Final = "git"
_RSA_BITS: Final = 2_048
"""Fewest bits of an RSA key."""
_LONGEST_SIGNATURE: Final = 64 * 1024
"""Bytes of a signature."""
_LIMITS: Final = ProcessLimits(memory_bytes=256 * 1024**2, file_bytes=1024**2)
_SECONDS: Final = 10.0
"""For one run of ssh-keygen, which takes some milliseconds."""
_ANYBODY: Final = "signer"
"""Stands for every principal: whoever has a key of the Secret may sign."""
_WORD: Final = re.compile(r'(?:[^\s"]|"[^"]*")+')
_OPTIONS: Final = re.compile(r'(?:(?:namespaces|valid-after|valid-before)="[^"]*"(?:,(?=.)|$))+')
_GOOD: Final = re.compile(r"^Good .* (SHA256:\S+)$", re.MULTILINE)
_REFUSED: Final = re.compile(r"^\S+:\d+: (.*)$", re.MULTILINE)
"""Why a line of the allowed signers does not count."""
_DETAILS: Final = re.compile(r"signature details: counter = \d+, flags = 0x([0-9a-f]+)")
_PRESENT: Final = 1
"""The flag of a security key that its user touched it."""


class InvalidKeyError(ValueError):
    """A public key that cannot be read; the text says which line and why."""


@dataclass(frozen=True, slots=True)
class SshKey:
    """A key that is believed."""

    type: str
    text: str
    """In Base64."""
    name: str = ""
    """The owner of the key; empty where the file does not say."""
    options: str = ""
    """When it counts, as in an allowed_signers file."""

    @property
    def fingerprint(self) -> str:
        """`SHA256:…`, as ssh-keygen prints it."""
        return fingerprint(base64.b64decode(self.text))

    @property
    def allowed_signer(self) -> str:
        """Its line of an allowed_signers file."""
        return " ".join(filter(None, (_ANYBODY, self.options, self.type, self.text))) + "\n"


def read_public(text: str) -> list[SshKey]:
    """The keys of an authorized_keys file: `TYPE BASE64 [COMMENT]` a line. Raises InvalidKeyError."""
    return [_key(line, words, " ".join(words[2:])) for line, words in _lines(text)]


def read_allowed(text: str) -> list[SshKey]:
    """The keys of an allowed_signers file (ssh-keygen(1)). Raises InvalidKeyError."""
    keys = []
    for line, (principals, *words) in _lines(text):
        options = words.pop(0) if words and words[0] not in TYPES else ""
        if options and not _OPTIONS.fullmatch(options):
            raise InvalidKeyError(
                f"line {line}: the options are namespaces, valid-after and valid-before, "
                "each with a value in quotes"
            )
        keys.append(_key(line, words, principals.strip('"'), options))
    return keys


def verify_ssh(message: bytes, armored: bytes, keys: Iterable[SshKey], at: datetime) -> Signer:
    """Return whose key of `keys` signed `message` for Git at the time `at`. Blocks; runs ssh-keygen.

    Raises NotBelievedError.
    """
    if len(armored) > _LONGEST_SIGNATURE:
        raise NotBelievedError(f"its SSH signature has {len(armored)} bytes, more than {_LONGEST_SIGNATURE}")
    folder = None
    try:
        folder = TemporaryFolder.make()
        (folder.path / "signature").write_bytes(armored)
        return _Judging(folder.path, message, at.strftime("%Y%m%d%H%M%S")).signer(list(keys))
    except OSError as error:
        raise NotJudgedError(f"its SSH signature cannot be verified: {error}") from error
    finally:
        if folder is not None:
            folder.remove()


@dataclass(frozen=True, slots=True)
class _Judging:
    folder: Path
    message: bytes
    time: str

    def signer(self, keys: list[SshKey]) -> Signer:
        verified = self._verify(keys)
        signed_with = _GOOD.search(verified.output.decode("utf-8", "replace"))
        if signed_with is None:
            raise NotBelievedError(self._why_refused(keys))
        named = f"SSH {signed_with[1]}"
        known = [key for key in keys if key.fingerprint == signed_with[1]]
        # One key may be there twice, with other owners at other times.
        owner = known[0] if len(known) == 1 else next(key for key in known if self._verify([key]).status == 0)
        if owner.type == "ssh-rsa" and self._bits(owner) < _RSA_BITS:
            raise NotBelievedError(f"it is signed with {named}, an RSA key of less than {_RSA_BITS} bits")
        if owner.type.startswith("sk-") and not _is_touched(verified):
            raise NotBelievedError(f"its signature by {named} was made without a touch of the security key")
        return Signer(named, owner.name)

    def _why_refused(self, keys: list[SshKey]) -> str:
        """Why no key of `keys` signed it."""
        checked = self._run("-Y", "check-novalidate", "-n", _NAMESPACE, "-s", "signature")
        signed_with = _GOOD.search(checked.output.decode("utf-8", "replace"))
        if signed_with is None:
            if "namespace" in checked.complaint:
                return "its SSH signature was made for another purpose than Git"
            if "incorrect signature" in checked.complaint:
                return "its SSH signature is not of its content: one of them was changed"
            return "its SSH signature is damaged, or of a kind that ssh-keygen does not know"
        named = f"it is signed with the key SSH {signed_with[1]}"
        known = [key for key in keys if key.fingerprint == signed_with[1]]
        if not known:
            return f"{named}, which is not among the trusted keys"
        reasons = _REFUSED.findall(self._verify(known).complaint)
        return f"{named}, which does not count: {one_line('; '.join(reasons), 200)}"

    def _verify(self, keys: list[SshKey]) -> ChildResult:
        (self.folder / "allowed").write_text("".join(key.allowed_signer for key in keys), encoding="utf-8")
        when = f"verify-time={self.time}"
        return self._run(
            *("-vv", "-Y", "verify", "-n", _NAMESPACE, "-f", "allowed"),
            *("-I", _ANYBODY, "-O", when, "-s", "signature"),
        )

    def _bits(self, key: SshKey) -> int:
        (self.folder / "key").write_text(f"{key.type} {key.text}\n")
        shown = self._run("-l", "-f", "key").output.decode("utf-8", "replace")
        bits = shown.partition(" ")[0]
        return int(bits) if bits.isdecimal() else 0

    def _run(self, *arguments: str) -> ChildResult:
        # Times without a zone are in UTC, in the Secret and here.
        environment = {"PATH": os.environ.get("PATH", os.defpath), "TZ": "UTC", "LC_ALL": "C"}
        files = {"signature", "allowed", "key"}
        command = [str(self.folder / word) if word in files else word for word in arguments]
        ended = run_blocking(("ssh-keygen", *command), environment, _LIMITS, _SECONDS, self.message)
        if ended.status == NOT_FOUND:
            raise NotJudgedError("its SSH signature cannot be verified: ssh-keygen is not installed")
        if ended.status < 0:
            raise NotJudgedError(
                f"its SSH signature cannot be verified: signal {-ended.status} ended ssh-keygen"
            )
        return ended


def _is_touched(verified: ChildResult) -> bool:
    flags = _DETAILS.search(verified.complaint)
    return flags is not None and bool(int(flags[1], 16) & _PRESENT)


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """(number, words) of each line that is neither empty nor a comment."""
    if text.count("\n") > 10 * MOST_KEYS:
        raise InvalidKeyError(f"has more than {10 * MOST_KEYS} lines")
    for number, line in enumerate(text.split("\n"), 1):
        words = [] if line.lstrip().startswith("#") else _WORD.findall(line)
        if words:
            yield number, words


def _key(line: int, words: list[str], name: str, options: str = "") -> SshKey:
    if len(words) < 2 or words[0] not in TYPES:
        kinds = ", ".join(TYPES)
        raise InvalidKeyError(f"line {line} is no public key; its type must be one of {kinds}")
    try:
        blob = base64.b64decode(words[1], validate=True)
    except ValueError:
        raise InvalidKeyError(f"line {line}: the key is damaged") from None
    if not blob.startswith(len(words[0]).to_bytes(4, "big") + words[0].encode()):
        raise InvalidKeyError(f"line {line}: the key is not of the type that is written before it")
    return SshKey(words[0], words[1], "".join(filter(str.isprintable, name))[:255], options)


ALLOWED_SIGNERS: Final = "allowed_signers"
_LONGEST_KEYS: Final = 256 * 1024
"""Bytes of all keys of a Secret together."""
_PGP: Final = ".asc"
_SSH: Final = ".sshpub"
_PGP_LABEL: Final = "PGP PUBLIC KEY BLOCK"
_SSH_ARMOR: Final = b"-----BEGIN SSH SIGNATURE-----"
_PGP_ARMOR: Final = (b"-----BEGIN PGP SIGNATURE-----", b"-----BEGIN PGP MESSAGE-----")


@dataclass(frozen=True, slots=True)
class Keys:
    """The trusted keys."""

    pgp: tuple[str, ...] = ()
    """Blocks in armor; one may hold several keys."""
    ssh: tuple[SshKey, ...] = ()
    names: tuple[str, ...] = ()
    """The Secret's keys that they are from, sorted."""


def read_keys(secret: SecretTexts) -> Keys:
    """The keys of a Secret, one at least. Raises Stalled (InvalidSecret)."""
    if sum(map(len, secret.content.values())) > _LONGEST_KEYS:
        raise secret.invalid(f"has keys of more than {_LONGEST_KEYS} bytes")
    pgp: list[str] = []
    ssh: list[SshKey] = []
    for name in sorted(secret.content):
        text = secret.text(name)
        if not name.endswith((_PGP, _SSH)) and name != ALLOWED_SIGNERS:
            raise secret.invalid(
                f"{name!r}: must be called '*.asc' (PGP), '*.sshpub' (SSH) or 'allowed_signers'"
            )
        try:
            if name.endswith(_PGP):
                pgp += _blocks(text)
            else:
                ssh += read_public(text) if name.endswith(_SSH) else read_allowed(text)
        except InvalidKeyError as error:
            raise secret.invalid(f"{name!r}: {error}") from None
    if len(pgp) + len(ssh) > MOST_KEYS:
        raise secret.invalid(f"has more than {MOST_KEYS} keys")
    if not pgp and not ssh:
        raise secret.invalid("has no public key; put one in as '*.asc', '*.sshpub' or 'allowed_signers'")
    return Keys(tuple(pgp), tuple(ssh), tuple(sorted(secret.content)))


def epoch(policy: Mapping[str, Any], content: Mapping[str, bytes]) -> str:
    """`sha256:…` of policy and keys: what was verified under another epoch is verified again."""
    keys = {name: hashlib.sha256(value).hexdigest() for name, value in content.items()}
    written = json.dumps([dict(policy), keys], sort_keys=True)
    return f"sha256:{hashlib.sha256(written.encode()).hexdigest()}"


def _blocks(text: str) -> list[str]:
    blocks = [block.text for block in pem_blocks(text) if block.label == _PGP_LABEL]
    if not blocks:
        raise InvalidKeyError("contains no PGP PUBLIC KEY BLOCK; write it with: gpg --armor --export KEY")
    return blocks


def verify(message: bytes, signature: bytes, keys: Keys, at: datetime) -> Signer:
    """Return who signed `message`, which says that it was written `at` a time. Raises NotBelievedError."""
    if not signature:
        raise NotBelievedError("it is not signed")
    if signature.lstrip().startswith(_SSH_ARMOR):
        return verify_ssh(message, signature, keys.ssh, at)
    if signature.lstrip().startswith(_PGP_ARMOR):
        # The library is loaded where such a signature is there.
        module = import_module("controller.sources.pgp_signature")
        signer: Signer = module.verify_pgp(message, signature, keys.pgp)
        return signer
    raise NotBelievedError("its signature is neither of PGP nor of SSH (X.509 is not supported)")
