"""A client of grpc-go, which opens one stream and prints its messages."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from base64 import b64decode
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.go import Module, prepare, program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CLIENT: Final = Module("grpc-go", Path(__file__).parent / "grpc_client", "a client of grpc-go: half a minute")
PATIENCE: Final = 20.0


class Message(NamedTuple):
    """A message of a stream, and what came over the wire for it."""

    content: bytes
    encoding: str
    """`grpc-encoding` of the answer."""
    read: int
    """Bytes."""


@contextmanager
def stream(port: int, method: str) -> Iterator[Callable[[], Message]]:
    """Open the stream of a method; what is yielded returns its next message."""
    client = program(CLIENT, "NO STREAM TO GRPC-GO: its client cannot be built")
    told: queue.Queue[dict[str, Any]] = queue.Queue()
    with subprocess.Popen([client, f"127.0.0.1:{port}", method], stdout=subprocess.PIPE) as process:

        def read() -> None:
            for line in process.stdout or ():
                told.put(json.loads(line))

        def message() -> Message:
            line = told.get(timeout=PATIENCE)
            assert "error" not in line, line
            return Message(b64decode(line["message"]), line["encoding"], line["read"])

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield message
        finally:
            process.terminate()
            reader.join(PATIENCE)


if __name__ == "__main__":
    sys.exit(prepare(CLIENT, "NO STREAM TO GRPC-GO: its client cannot be built here"))
