"""A port's certificate, key and client CA, which are read again when their files change.

A new certificate or client CA takes effect for connections that are accepted from then on; open ones stay. It
comes with new keys for session tickets, so that no client resumes a session that an old client CA allowed.
"""

from __future__ import annotations

import hashlib
import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

if TYPE_CHECKING:
    import asyncio

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
