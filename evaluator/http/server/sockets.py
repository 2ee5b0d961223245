"""Unix sockets: never open to too many, bound over none but a dead one, removed by their owner."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODE: Final = 0o660
"""Owner and group may write, and so connect."""
MAX_PATH_BYTES: Final = 107
"""sockaddr_un holds 108 with the zero byte at the end (man 7 unix)."""


@dataclass(frozen=True, slots=True)
class UnixSocket:
    """A bound socket and the file that stands for it."""

    socket: socket.socket
    path: Path
    file: tuple[int, int]
    """Device and inode. No other file can have them while the socket is open."""

    def remove(self) -> None:
        """Remove the file if it is still ours; to be called before the socket is closed."""
        with suppress(FileNotFoundError):
            if _identity(self.path.lstat()) == self.file:
                self.path.unlink()


def bind(path: str | Path, mode: int = MODE) -> UnixSocket:
    """Bind a stream socket at `path`, in place of one without a listener.

    Raises OSError, naming `path`, if a listener is there, or a file that is no socket, or the folder is
    missing, or the path too long.
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
        # Linux gives the file the mode of the socket, less the umask: the chmod after it can only widen.
        os.fchmod(bound.fileno(), mode)
        bound.bind(str(path))
        path.chmod(mode)
        return UnixSocket(bound, path, _identity(path.lstat()))
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"unix socket: {error.strerror}", str(path)) from error


def _clear(path: Path) -> None:
    """Remove a socket file without a listener; raises OSError if anything else is there."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
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
        if _identity(path.lstat()) == _identity(found):
            path.unlink()


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
