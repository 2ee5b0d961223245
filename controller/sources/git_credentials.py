"""The credentials for a repository, of which nothing is ever shown, and git's complaints without them.

Secrets have Flux's formats. No message repeats a value: a message names the Secret and its keys only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from base64 import b64encode
from dataclasses import dataclass, field, fields, replace
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import re2

from controller.api.addresses import BROKEN, Location, Transport
from controller.runtime.plain_text import one_line, redact
from controller.runtime.secret_texts import SecretTexts, Tls, pem_blocks, proxy_url
from controller.runtime.setbacks import FULL, Stalled

_PROXIES: Final = ("http", "https", "socks5")
_OPENSSH: Final = b"openssh-key-v1\0\0\0\0\x04none"
"""How a key in OpenSSH's form starts that no password protects (openssh-portable, PROTOCOL.key)."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials, never printed. Raises `Stalled` where they cannot be meant."""

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
            raise Stalled("InvalidCredentials", BROKEN)
        if self.password and not self.username:
            raise Stalled("InvalidCredentials", "a password needs a username")
        if self.bearer and self.username:
            message = "a bearer token and a username cannot be used together"
            raise Stalled("InvalidCredentials", message)

    @property
    def identity(self) -> str:
        """Distinguishes two sets of credentials without disclosing them."""
        texts = (getattr(self, own.name) for own in fields(self))
        parts = (text if isinstance(text, str) else "\0".join(text) for text in texts)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the secret texts, in every form that a program may print."""
        proxy = urlsplit(self.proxy)
        pairs = (
            (self.username, self.password),
            (unquote(proxy.username or ""), unquote(proxy.password or "")),
        )
        texts = [self.bearer, self.key_password]
        for name, word in pairs:
            texts += [word or name, b64encode(f"{name}:{word}".encode()).decode() if name else ""]
        written = (form for text in texts for form in (text, quote(text, safe="")))
        # The longest first: a shorter one may be part of it.
        return tuple(sorted({text for text in written if text}, key=len, reverse=True))


def credentials_in(location: Location) -> Credentials | None:
    """What the text of the location holds. Raises Stalled where that cannot be meant."""
    return None if location.login is None else Credentials(*location.login)


def credentials_from(secret: SecretTexts, transport: Transport) -> Credentials | None:
    """What the Secret proves, for a repository reached by `transport`; None: nothing.

    http, https: `username` with `password`, or `bearerToken`; `ca.crt` (or `caFile`); `tls.crt` with
    `tls.key`. ssh: `identity` with `known_hosts`, and `password` where the key has one. Raises Stalled
    (InvalidSecret).
    """
    if transport is Transport.FILE:
        return None
    credentials = _ssh(secret) if transport is Transport.SSH else _http(secret)
    return credentials if credentials != Credentials() else None


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
    identity = secret.require("identity", "for ssh")
    known_hosts = secret.require("known_hosts", "for ssh")
    password = secret.line("password")
    locked = _is_encrypted(secret, identity)
    if locked and not password:
        raise secret.invalid("'identity' is an encrypted key; add its passphrase as 'password'")
    return Credentials(ssh_key=identity, known_hosts=known_hosts, key_password=password if locked else "")


def _is_encrypted(secret: SecretTexts, identity: str) -> bool:
    block = next(pem_blocks(identity), None)
    if block is None or "PRIVATE KEY" not in block.label:
        raise secret.invalid("'identity' is not a private key in OpenSSH or PEM format")
    if block.encrypted:
        return True
    if block.label != "OPENSSH PRIVATE KEY":
        return False
    try:
        return not base64.b64decode(block.content).startswith(_OPENSSH)
    except binascii.Error:
        raise secret.invalid("'identity' is damaged: its content is not Base64") from None


UNADVERTISED: Final = "ObjectNotAdvertised"
"""The reason where a server gives out only what its references point at."""
LIMIT: Final = "LimitExceeded"
SHA256_REPOSITORY: Final = (
    "the repository uses SHA-256 object ids, and only SHA-1 repositories are supported; put its files into "
    "one that was made with: git init --object-format=sha1"
)


def _pattern(pattern: str) -> re2._Regexp:
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    return re2.compile(pattern, options)


_REASONS: Final = {
    "HostKeyRefused": _pattern(r"host key verification failed|host key for .* has changed"),
    "AuthenticationFailed": _pattern(
        r"authentication failed|could not read (username|password)|permission denied \("
        r"|returned error: 40[137]|access denied|invalid credentials|CONNECT tunnel failed, response 407"
        r"|incorrect passphrase"
    ),
    "CertificateRefused": _pattern(
        r"certificate verification failed|certificate problem|unable to get local issuer"
        r"|alert (unknown ca|certificate|bad certificate|handshake failure)"
        r"|self[- ]signed certificate|could not load (pem )?client cert"
    ),
    "RepositoryNotFound": _pattern(
        r"repository '.*' not found|not valid: .*is this a git repository"
        r"|does not appear to be a git repository|no such file or directory"
        r"|returned error: 404|repository not found|project .* could not be found|does not exist"
    ),
    "Redirected": _pattern(r"returned error: 30[12378]"),
    UNADVERTISED: _pattern(r"unadvertised object"),
    "RevisionGone": _pattern(r"couldn't find remote ref|not our ref"),
}
_SERVERS: Final = ("remote:", "fatal: remote error")
_FULL: Final = _pattern(r"no space left on device|disk quota exceeded")
_LIMITS: Final = {
    "file size": _pattern(r"died of signal 25|file too large"),
    "CPU time": _pattern(r"died of signal 24"),
    "memory": _pattern(r"out of memory|cannot allocate memory|unable to create thread|inflateinit: out of"),
}
_BROKEN: Final = _pattern(
    r"bad object|corrupt|loose object|inflate|unable to read|not a git repository: |bad config"
    r"|did not send all necessary objects|unresolved deltas|shallow file"
    r"|is not a valid object|missing (blob|tree|commit)|reference broken|broken ref"
    # Left by a git that was killed: our lock keeps any other git off the mirror.
    r"|\.lock': File exists"
)
_OWN: Final = ("fatal: ", "error: ", "ssh: ")
_QUOTED: Final = _pattern(
    r"(\bremote error|\bgot|\breceived|\bresponse|\bcharacter|\bunexpected line|\bunknown object format)"
    r"(: | ['\"]).*"
)
"""Where git repeats what the server sent."""
_KNOWN: Final = _pattern(
    # What ssh says has no prefix, and git's own line about it names no cause. Servers write such lines, too:
    # nothing but these words is taken of them.
    r"host key verification failed|permission denied(?: \([a-z,-]{1,60}\))?|authentication failed"
    r"|access denied|invalid credentials|incorrect passphrase|could not read (?:username|password)"
    r"|repository not found|does not appear to be a git repository|no such file or directory"
    r"|could not be found|does not exist"
    r"|unadvertised object|not our ref(?: [0-9a-f]{40,64}\b)?"
    r"|connection (?:closed|reset|refused|timed out)|no route to host"
    r"|no matching [a-z ]{1,30} found|error in libcrypto"
)
_MOST_LINES: Final = 3
_SHOWN: Final = 300
_USER: Final = _pattern(r"(://)[^/@\s']+@")
_QUERY: Final = _pattern(r"(://[^\s'?]+)\?[^\s']*")
_TIME: Final = _pattern(r" after \d+ (?:ms|milliseconds|seconds)\b")


def reason_of(complaint: str) -> str:
    """The reason of a failure, as conditions have it."""
    # A server whose disk is full costs nobody here anything.
    if any(_FULL.search(line) for line in _lines(complaint) if not line.startswith(_SERVERS)):
        return FULL
    reasons = (reason for reason, pattern in _REASONS.items() if pattern.search(complaint))
    return next(reasons, "GitOperationFailed")


def limit_of(complaint: str) -> str | None:
    """The limit that git or a child of it exceeded: `memory`, `CPU time`, `file size`; None: none."""
    ours = _ours(complaint)
    return next((name for name, pattern in _LIMITS.items() if pattern.search(ours)), None)


def is_damage(complaint: str) -> bool:
    """Whether git found its own copy damaged; what the server wrote does not count."""
    return _BROKEN.search(_ours(complaint)) is not None


def explain(complaint: str, credentials: Credentials | None) -> str:
    """The cause in git's own and known words alone; without URLs' users, secrets and times."""
    text = _USER.sub(r"\1", complaint)
    text = _QUERY.sub(r"\1", text)
    # The same failure must have the same words each time, or each time would be a new Event.
    text = _TIME.sub("", text)
    text = redact(text, credentials.secrets if credentials is not None else ())
    shown = [part for line in _whole_lines(text) if (part := _shown_part(line))]
    return one_line("; ".join(shown[-_MOST_LINES:]) or "git gave no reason", _SHOWN)


def _shown_part(line: str) -> str:
    """What may be shown of a line."""
    if line.startswith("remote:"):
        return ""
    known = _KNOWN.search(line)
    if not line.startswith(_OWN):
        return known[0] if known else ""
    own = _QUOTED.sub(r"\1", line).strip()
    return f"{own}: {known[0]}" if known and known[0] not in own else own


def _whole_lines(text: str) -> list[str]:
    """The lines, each of git's own with the indented ones that continue it."""
    whole: list[str] = []
    for line in _lines(text):
        if line[:1].isspace() and whole and whole[-1].startswith(_OWN):
            whole[-1] += f" {line.strip()}"
        else:
            whole.append(line)
    return whole


def _ours(complaint: str) -> str:
    return "\n".join(line for line in _lines(complaint) if not line.startswith("remote:"))


def _lines(text: str) -> list[str]:
    # As git breaks them: it puts `remote:` before none of the other breaks that Python knows.
    return text.replace("\r", "\n").split("\n")
