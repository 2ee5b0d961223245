"""Sockets of listeners. A unix socket is bound never with too wide a mode, and in place of no file but a
socket without a listener.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

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


def duplicate(transport: asyncio.Transport) -> socket.socket:
    """Return a second socket of a transport's connection. Raises OSError without a free descriptor."""
    return socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
