"""The real nats-server, built once into a cache outside the repository."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.go import Module, prepare, program
from tests.programs import listening

if TYPE_CHECKING:
    from collections.abc import Iterator

NATS: Final = Module(
    "nats-server",
    Path(__file__).parent / "server",
    "the NATS server: about a minute",
    package="github.com/nats-io/nats-server/v2",
)
_LISTENING: Final = re.compile(
    r"(?s)(?=.*Server is ready).*Listening for client connections on 127\.0\.0\.1:(\d+)"
)


@contextlib.contextmanager
def running(folder: Path, configuration: str = "") -> Iterator[int]:
    """A server, and its port on loopback; `configuration` is in its own format."""
    server = program(NATS, "NO NATS SERVER IS ASKED: it cannot be built")
    file, log = folder / "nats.conf", folder / "nats.log"
    file.write_text(f'host: "127.0.0.1"\nport: -1\n{configuration}', encoding="utf-8")
    with listening([server, "-c", file], log, _LISTENING) as port:
        yield port


if __name__ == "__main__":
    sys.exit(prepare(NATS, "TESTS OF NATS WILL BE SKIPPED: no server can be built here"))
