"""The address of a repository and its credentials: safe to hand to a program and to show.

Secrets have Flux's formats. No message repeats a value: a message names the Secret and its keys only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from base64 import b64encode
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from controller.runtime.reconciling.setbacks import Stalled
from controller.runtime.user_text.secret_texts import PEM, SecretTexts, Tls, proxy_url

_PROXIES: Final = ("http", "https", "socks5")
_OPENSSH: Final = b"openssh-key-v1\0\0\0\0\x04none"
"""How a key in OpenSSH's form starts that no password protects (openssh-portable, PROTOCOL.key)."""


class Transport(StrEnum):
    """How a repository is reached, by the name that Git's list of allowed protocols uses."""

    FILE = "file"
    HTTP = "http"
    HTTPS = "https"
    SSH = "ssh"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials, of which nothing is ever printed. Raises `Stalled` where they cannot be meant."""

    username: str = field(default="", repr=False)
    """May itself be a token, where there is no password."""
    password: str = field(default="", repr=False)
    ssh_key: str = field(default="", repr=False)
    """A private key in OpenSSH's or PEM form; empty for the user's own keys and agent."""
    known_hosts: str = field(default="", repr=False)
    """Lines of a known_hosts file; empty for the user's own file. An unknown host is always refused."""
    key_password: str = field(default="", repr=False)
    """Opens `ssh_key`, where that is encrypted."""
    bearer: str = field(default="", repr=False)
    """A token for http and https, in place of a username."""
    tls: Tls = field(default=Tls(), repr=False)
    """For https; without an authority the system's are believed."""
    proxy: str = field(default="", repr=False)
    """URL of a proxy for http and https, with its username and password; empty for the environment's."""

    def __post_init__(self) -> None:
        # Git's credential protocol is line by line, and so are headers: a break would end a field and start
        # another.
        lines = (self.username, self.password, self.key_password, self.bearer, self.proxy)
        if any(character in line for line in lines for character in "\n\r\0"):
            message = "a username, password or token with a line break cannot be used"
            raise Stalled("InvalidCredentials", message)
        if self.password and not self.username:
            raise Stalled("InvalidCredentials", "a password needs a username")
        if self.bearer and self.username:
            message = "a bearer token and a username cannot be used together"
            raise Stalled("InvalidCredentials", message)

    @property
    def identity(self) -> str:
        """Distinguishes two sets of credentials without disclosing them."""
        texts = (getattr(self, each.name) for each in fields(self))
        parts = (each if isinstance(each, str) else "\0".join(each) for each in texts)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown, in every form in which a program might."""
        proxy = urlsplit(self.proxy)
        pairs = (
            (self.username, self.password),
            (unquote(proxy.username or ""), unquote(proxy.password or "")),
        )
        found = [self.bearer, self.key_password]
        for name, word in pairs:
            found += [word or name, b64encode(f"{name}:{word}".encode()).decode() if name else ""]
        written = (form for each in found for form in (each, quote(each, safe="")))
        # The longest first: a shorter one may be part of it.
        return tuple(sorted({each for each in written if each}, key=len, reverse=True))


@dataclass(frozen=True, slots=True)
class Location:
    """A repository's place, without username and password in `url`, and without any secret in `shown`."""

    transport: Transport
    url: str = field(repr=False)
    """What Git is given, among its arguments, which every process of the machine may read."""
    shown: str
    path: Path | None = None
    """Set for a repository on this machine."""
    credentials: Credentials | None = None
    """What the text carried in itself, as `https://name:token@host/…` does."""

    @property
    def origin(self) -> str:
        """Scheme and host, to which alone credentials are given."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def server(self) -> tuple[str, int]:
        """(host, port) of a remote."""
        if "://" not in self.url:
            return self.url.partition(":")[0].rpartition("@")[2], _PORTS[Transport.SSH]
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or _PORTS[self.transport]


_PORTS = {Transport.HTTP: 80, Transport.HTTPS: 443, Transport.SSH: 22}
# `host:path` and `user@host:path`: as in Git, a colon before any slash.
_SCP = re.compile(r"(?:(?P<user>[^@:/\s]+)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^@:/\[\]\s]+):(?P<path>.+)")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HOST = re.compile(r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:.]+")
_ACCEPTED = "a local path, file://, https://, http://, ssh:// or user@host:path"


def parse_location(text: str) -> Location:
    """Read a path or URL. Raises `Stalled` (`URLInvalid`), which repeats no credentials."""
    if not text or text != text.strip() or any(ord(c) < 0x20 or ord(c) == 0x7F for c in text):
        raise _invalid("it is empty, or contains white space or control characters")
    if text.startswith("-"):
        raise _invalid("it starts with a dash; for a folder with such a name write ./-name")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*::", text):
        raise _invalid("Git's remote helpers (name::address) are not supported")
    if scheme := _SCHEME.match(text):
        return _from_url(scheme[1].lower(), text)
    if (scp := _SCP.fullmatch(text)) is not None:
        return _from_scp(scp)
    return _local(Path(text), text)


def _invalid(why: str) -> Stalled:
    return Stalled("URLInvalid", f"not a valid repository location: {why} (expected {_ACCEPTED})")


def _local(path: Path, shown: str) -> Location:
    return Location(Transport.FILE, f"file://{path}", shown, path=path)


def _from_url(scheme: str, text: str) -> Location:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise _invalid("its host or port is malformed") from None
    if parts.fragment:
        raise _invalid("it has a fragment (#…); name a branch, tag or commit with the reference instead")
    if scheme == "file":
        return _from_file_url(parts)
    if scheme not in set(Transport):
        raise _invalid(f"{scheme}:// is not supported")
    host = parts.hostname or ""
    if not _HOST.fullmatch(host) or host.startswith("-"):
        raise _invalid("its host name is missing or malformed")
    if not parts.path.strip("/"):
        raise _invalid("it names a host but no repository")
    address = (f"[{host}]" if ":" in host else host) + (f":{port}" if port is not None else "")
    username, password = unquote(parts.username or ""), unquote(parts.password or "")
    if scheme == "ssh":
        return _from_ssh_url(parts, address, username, password)
    if parts.query:
        raise _invalid("it has a query (?…); a token belongs into the Secret that secretRef names")
    url = f"{scheme}://{address}{parts.path}"
    # A lone name is how tokens are pasted (`https://TOKEN@host/…`), with any password.
    carried = Credentials(username or "git", password) if username or password else None
    return Location(Transport(scheme), url, url, credentials=carried)


def _from_ssh_url(parts: SplitResult, address: str, username: str, password: str) -> Location:
    if password or parts.query:
        raise _invalid("ssh takes neither a password nor a query in its URL; use a key")
    if username.startswith("-") or re.search(r"[\s@/:]", username):
        raise _invalid("its user name is malformed")
    url = f"ssh://{username + '@' if username else ''}{address}{parts.path}"
    return Location(Transport.SSH, url, url)


def _from_file_url(parts: SplitResult) -> Location:
    if parts.netloc not in {"", "localhost"} or parts.query:
        raise _invalid("a file:// URL needs three slashes and a path, such as file:///srv/flags.git")
    path = unquote(parts.path)
    if "\0" in path or not path.strip("/"):
        raise _invalid("it names no folder")
    return _local(Path(path), f"file://{parts.path}")


def _from_scp(scp: re.Match[str]) -> Location:
    user, host, path = scp["user"] or "", scp["host"], scp["path"]
    if user.startswith("-") or host.startswith("-") or path.startswith("-"):
        raise _invalid("its user, host and path cannot start with a dash")
    if not _HOST.fullmatch(host.strip("[]")):
        raise _invalid("its host name is malformed")
    url = f"{user + '@' if user else ''}{host}:{path}"
    return Location(Transport.SSH, url, url)


def credentials_from(secret: SecretTexts, transport: Transport) -> Credentials | None:
    """What the Secret proves, for a repository reached by `transport`; None: nothing.

    http, https: `username` with `password`, or `bearerToken`; `ca.crt` (or `caFile`); `tls.crt` with
    `tls.key`. ssh: `identity` with `known_hosts`, and `password` where the key has one. Raises Stalled
    (InvalidSecret).
    """
    if transport is Transport.FILE:
        return None
    found = _ssh(secret) if transport is Transport.SSH else _http(secret)
    return found if found != Credentials() else None


def with_proxy(credentials: Credentials | None, secret: SecretTexts, transport: Transport) -> Credentials:
    """`credentials` with the proxy of the Secret. Raises Stalled (InvalidSecret)."""
    if transport not in {Transport.HTTP, Transport.HTTPS}:
        raise secret.invalid(f"a proxy can be used with http and https only, not with {transport}")
    return replace(credentials or Credentials(), proxy=proxy_url(secret, _PROXIES))


def _http(secret: SecretTexts) -> Credentials:
    username, password = secret.line("username"), secret.line("password")
    bearer = secret.line("bearerToken")
    if bearer and (username or password):
        raise secret.invalid("has both 'bearerToken' and 'username' or 'password'; remove one of them")
    if bool(username) != bool(password):
        has, lacks = ("username", "password") if username else ("password", "username")
        raise secret.invalid(f"has {has!r} without {lacks!r}")
    return Credentials(username, password, bearer=bearer, tls=secret.tls())


def _ssh(secret: SecretTexts) -> Credentials:
    identity = secret.required("identity", "for ssh")
    known_hosts = secret.required("known_hosts", "for ssh")
    password = secret.line("password")
    locked = _locked(secret, identity)
    if locked and not password:
        raise secret.invalid("'identity' is an encrypted key; add its passphrase as 'password'")
    return Credentials(ssh_key=identity, known_hosts=known_hosts, key_password=password if locked else "")


def _locked(secret: SecretTexts, identity: str) -> bool:
    block = PEM.search(identity)
    if block is None or "PRIVATE KEY" not in block[1]:
        raise secret.invalid("'identity' is not a private key in OpenSSH or PEM format")
    if "ENCRYPTED" in block[1] or "Proc-Type: 4,ENCRYPTED" in block[2]:
        return True
    if block[1] != "OPENSSH PRIVATE KEY":
        return False
    try:
        return not base64.b64decode(block[2]).startswith(_OPENSSH)
    except binascii.Error:
        raise secret.invalid("'identity' is damaged: its content is not Base64") from None
