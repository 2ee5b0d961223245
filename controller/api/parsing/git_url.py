"""The place of a Git repository, safe to hand to a program and to show. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from controller.api.parsing import InvalidTextError


class Transport(StrEnum):
    """How a repository is reached, by the name that Git's list of allowed protocols uses."""

    FILE = "file"
    HTTP = "http"
    HTTPS = "https"
    SSH = "ssh"


@dataclass(frozen=True, slots=True)
class Location:
    """A repository's place, without username and password in `url`, and without any secret in `shown`."""

    transport: Transport
    url: str = field(repr=False)
    """What Git is given, among its arguments, which every process of the machine may read."""
    shown: str
    path: Path | None = None
    """Set for a repository on this machine."""
    login: tuple[str, str] | None = field(default=None, repr=False)
    """(username, password) that the text carried in itself, as `https://name:token@host/…` does."""

    @property
    def origin(self) -> str:
        """Scheme and host, to which alone credentials are given."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def server(self) -> tuple[str, int]:
        """(host, port) of a remote; empty and 0 of a folder."""
        if "://" not in self.url:
            return self.url.partition(":")[0].rpartition("@")[2], _PORTS[Transport.SSH]
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or _PORTS.get(self.transport, 0)


_PORTS = {Transport.HTTP: 80, Transport.HTTPS: 443, Transport.SSH: 22}
# `host:path` and `user@host:path`: as in Git, a colon before any slash.
_SCP = re.compile(r"(?:(?P<user>[^@:/\s]+)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^@:/\[\]\s]+):(?P<path>.+)")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HOST = re.compile(r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:.]+")
BROKEN: Final = "a username, password or token with a line break cannot be used"
_ACCEPTED = "a local path, file://, https://, http://, ssh:// or user@host:path"


def parse_location(text: str) -> Location:
    """Read a path or URL. Raises InvalidTextError (URLInvalid), which repeats no credentials."""
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


def _invalid(why: str) -> InvalidTextError:
    message = f"not a valid repository location: {why} (expected {_ACCEPTED})"
    return InvalidTextError(message, "URLInvalid")


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
    return Location(Transport(scheme), url, url, login=_user_and_password(username, password))


def _user_and_password(username: str, password: str) -> tuple[str, str] | None:
    if not username and not password:
        return None
    if any(sign in username + password for sign in "\n\r\0"):
        raise InvalidTextError(BROKEN, "InvalidCredentials")
    # A lone name is how tokens are pasted (`https://TOKEN@host/…`), with any password.
    return username or "git", password


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
