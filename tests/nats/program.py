"""The real nats-server, built once into a cache outside the repository."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.go import Module, build, find
from tests.programs import listening

if TYPE_CHECKING:
    from collections.abc import Iterator

NATS: Final = Module(
    "nats-server",
    Path(__file__).parent / "server",
    ("go.mod", "go.sum"),
    "github.com/nats-io/nats-server/v2",
    ("nats-server",),
    (),
    "the NATS server: about a minute",
)
_LISTENING: Final = re.compile(
    r"(?s)(?=.*Server is ready).*Listening for client connections on 127\.0\.0\.1:(\d+)"
)


def program() -> Path:
    """Built if need be; without one the test is skipped."""
    try:
        return (find(NATS) or build(NATS)) / "nats-server"
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"NO NATS SERVER IS ASKED: it cannot be built: {error}")


def main() -> int:
    """Build the program if need be; say so where it cannot be built."""
    try:
        print(find(NATS) or build(NATS))
    except (subprocess.SubprocessError, OSError) as error:
        print(f"==> TESTS OF NATS WILL BE SKIPPED: no server can be built here: {error}", file=sys.stderr)
    return 0


@contextlib.contextmanager
def running(folder: Path, configuration: str = "") -> Iterator[int]:
    """A server, and its port on loopback; `configuration` is in its own format."""
    file, log = folder / "nats.conf", folder / "nats.log"
    file.write_text(f'host: "127.0.0.1"\nport: -1\n{configuration}', encoding="utf-8")
    with listening([program(), "-c", file], log, _LISTENING) as port:
        yield port


if __name__ == "__main__":
    sys.exit(main())
