"""Sockets of listeners, and a port's certificate, key and client CA.

A unix socket is bound never with too wide a mode, and in place of no file but a socket without a listener.

Certificate, key and client CA are read again when their files change.

A new certificate or client CA takes effect for connections that are accepted from then on; open ones stay. It
comes with new keys for session tickets, so that no client resumes a session that an old client CA allowed.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import socket
import ssl
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping


MODE: Final = 0o660
"""The mode of the file: owner and group may connect, for which one must be able to write."""
MAX_PATH_BYTES: Final = 107
"""Linux allows 108 bytes, of which the last is zero (man 7 unix)."""


@dataclass(frozen=True, slots=True)
class UnixSocket:
    """A bound socket and its file."""

    socket: socket.socket
    path: Path
    file: tuple[int, int]
    """Device and inode of the file: no other file can have the same while the socket is open."""

    def remove(self) -> None:
        """Remove the socket's file, but not one that has replaced it; call before the socket is closed."""
        with suppress(FileNotFoundError):
            if _identity(self.path.lstat()) == self.file:
                self.path.unlink()


def bind(path: str | Path, mode: int = MODE) -> UnixSocket:
    """Bind a stream socket at `path`; a socket file without a listener there is replaced.

    Raises OSError, with `path`, if another process listens there, the file is no socket, the folder is
    missing or the path is too long.
    """
    path = Path(path)
    size = len(os.fsencode(path))
    if size > MAX_PATH_BYTES:
        raise OSError(
            errno.ENAMETOOLONG,
            f"the path of a unix socket has at most {MAX_PATH_BYTES} bytes, this one {size}",
            str(path),
        )
    if not path.parent.is_dir():
        raise OSError(errno.ENOENT, "the folder for the unix socket does not exist", str(path))
    _clear(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        # Linux creates the file with the mode of the socket without the umask's bits; chmod may add them.
        os.fchmod(bound.fileno(), mode)
        bound.bind(str(path))
        path.chmod(mode)
        return UnixSocket(bound, path, _identity(path.lstat()))
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"unix socket: {error.strerror}", str(path)) from error


def _clear(path: Path) -> None:
    """Remove a socket file without a listener. Raises OSError for any other file."""
    try:
        attributes = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(attributes.st_mode):
        raise OSError(errno.EEXIST, "there is a file that is not a socket, so it is left", str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        answer = probe.connect_ex(str(path))
    if answer not in {errno.ECONNREFUSED, errno.ENOENT}:
        reason = (
            "another process listens on this unix socket"
            if answer in {0, errno.EAGAIN}
            else f"a unix socket is there, and whether it is in use is not known: {os.strerror(answer)}"
        )
        raise OSError(errno.EADDRINUSE, reason, str(path))
    with suppress(FileNotFoundError):
        if _identity(path.lstat()) == _identity(attributes):
            path.unlink()


def _identity(attributes: os.stat_result) -> tuple[int, int]:
    return attributes.st_dev, attributes.st_ino


def peer_name(peer: object) -> str:
    """Return `host:port`, `unix:` for a unix socket, or nothing if the client has disconnected already."""
    match peer:
        case (str(host), int(port), *_):
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        case str() | bytes():
            return "unix:"
    return ""


def certificate_name(certificate: Mapping[str, Any] | None) -> str:
    """Return the common name of a certificate as `ssl` describes it, or else its first alternative name."""
    if not certificate:
        return ""
    subject = dict(pair for names in certificate.get("subject", ()) for pair in names)
    others = (name for kind, name in certificate.get("subjectAltName", ()) if kind in {"DNS", "URI"})
    return str(subject.get("commonName") or next(others, ""))


def duplicate(transport: asyncio.Transport) -> socket.socket:
    """Return a second socket of a transport's connection. Raises OSError without a free descriptor."""
    return socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))


log = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.9
"""Least seconds between two polls: listeners, which may share files, sweep every second."""
ALPN: Final = ("h2", "http/1.1")
MAX_BYTES: Final = 1_048_576
"""Most bytes of one file: a bundle of a thousand CA certificates has about two thirds of that."""

_Signature: TypeAlias = tuple[tuple[int, int, int, int, int], ...]
_Paths: TypeAlias = tuple[Path, ...]
"""The files of the certificate, the key and, if clients need a certificate, the client CA."""


class TlsError(OSError):
    """A file cannot be used; the text names it and says why, and never contains a key."""


class TlsFiles:
    """The PEM files of a port with TLS. They must be valid at first; if they become invalid later, the last
    valid ones stay in use.

    `certificate` contains the server's certificate followed by its chain, `key` its private key without a
    passphrase. With `client_ca`, a client must present a certificate that a CA in that file has signed.
    Raises TlsError.
    """

    def __init__(self, certificate: str | Path, key: str | Path, client_ca: str | Path | None = None) -> None:
        self._paths = (Path(certificate), Path(key), *([] if client_ca is None else [Path(client_ca)]))
        self._signature: _Signature | None = None
        self._digest = b""
        self._fault: str | None = None
        self._polled: float | None = None
        self._polling = False
        contents = _read(self._paths)
        self._context = _context(self._paths, contents)
        self._digest = _digest(contents)

    @property
    def context(self) -> ssl.SSLContext:
        """Return the context for new connections."""
        return self._context

    def poll(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check in a thread whether the files have changed; listeners call this about once a second."""
        now = loop.time()
        if self._polling or (self._polled is not None and now - self._polled < POLL_SECONDS):
            return
        self._polling, self._polled = True, now
        loop.run_in_executor(None, self._poll)

    def _poll(self) -> None:
        try:
            self.refresh()
        finally:
            self._polling = False

    def refresh(self) -> bool:
        """Read changed files again; return whether there is a new context. An error is logged once."""
        try:
            signature = _signature(self._paths)
            if signature == self._signature:
                return False
            # After a change, read again next time: another write at once may keep the times and the size.
            contents = _read(self._paths)
            digest = _digest(contents)
            unchanged = digest == self._digest
            if not unchanged:
                self._context = _context(self._paths, contents)
        except TlsError as error:
            self._signature = None
            if self._fault != str(error):
                self._fault = str(error)
                log.error("%s; the certificate read before stays in use", error)  # noqa: TRY400 - the text says it
            return False
        self._signature = signature if unchanged else None
        self._fault, self._digest = None, digest
        if not unchanged:
            log.info("certificate %s re-read", self._paths[0])
        return not unchanged


def _signature(paths: _Paths) -> _Signature:
    try:
        attributes = [path.stat() for path in paths]
    except OSError as error:
        raise TlsError(f"{error.filename}: {error.strerror}") from error
    return tuple((s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in attributes)


def _read(paths: _Paths) -> tuple[bytes, ...]:
    return tuple(_read_bounded(path) for path in paths)


def _read_bounded(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise TlsError(f"{path}: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise TlsError(f"{path}: larger than {MAX_BYTES} bytes, which no certificate or key is")
    return content


def _digest(contents: tuple[bytes, ...]) -> bytes:
    return b"".join(hashlib.sha256(content).digest() for content in contents)


def _context(paths: _Paths, contents: tuple[bytes, ...]) -> ssl.SSLContext:
    certificate, key, *client_ca = contents
    if b"-----BEGIN CERTIFICATE-----" not in certificate:
        raise TlsError(f"{paths[0]}: no PEM certificate in it")
    if b" PRIVATE KEY-----" not in key:
        raise TlsError(f"{paths[1]}: no PEM private key in it")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Each renegotiation costs the server a signature and the client next to nothing.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(ALPN)
    _take_pair(context, *paths[:2])
    if client_ca:
        _take_client_ca(context, paths[2], client_ca[0])
    return context


def _take_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    def passphrase() -> NoReturn:
        # Without this function OpenSSL would ask for the passphrase on the terminal.
        raise TlsError(f"{key}: has a passphrase; give a key without one")

    try:
        context.load_cert_chain(certificate, key, passphrase)
    except TlsError:
        raise
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsError(f"{key}: not the key of {certificate}") from error
        reason = error.reason or "not readable"
        raise TlsError(f"{certificate} with {key}: damaged ({reason})") from error
    except OSError as error:
        raise TlsError(f"{certificate} with {key}: {error.strerror}") from error


def _take_client_ca(context: ssl.SSLContext, path: Path, content: bytes) -> None:
    try:
        # Comments between the certificates may contain any characters.
        context.load_verify_locations(cadata=content.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(f"{path}: no usable PEM certificate in it") from error
    context.verify_mode = ssl.CERT_REQUIRED
