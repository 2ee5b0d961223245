"""Turns git's standard error, in which servers write, too, into reasons and text to show. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import re2

from controller.runtime.reconciling.setbacks import FULL
from controller.runtime.user_text.plain_text import one_line, redact

if TYPE_CHECKING:
    from controller.sources.git_cli.git_credentials import Credentials

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
