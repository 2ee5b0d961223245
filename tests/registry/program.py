"""The registry of the distribution project, built once into a cache outside the repository."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.go import Module, build, find
from tests.programs import listening

if TYPE_CHECKING:
    from collections.abc import Iterator

REGISTRY: Final = Module(
    "registry",
    Path(__file__).parent / "server",
    ("go.mod", "go.sum", "main.go"),
    ".",
    ("registry",),
    (),
    "the test registry: about 2 minutes",
)
_LISTENING: Final = re.compile(r"listening on 127\.0\.0\.1:(\d+)")


def program() -> Path:
    """Built if need be; without one the test is skipped."""
    try:
        return (find(REGISTRY) or build(REGISTRY)) / "registry"
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"NO REGISTRY IS READ: it cannot be built: {error}")


def main() -> int:
    """Build the program if need be; say so where it cannot be built."""
    try:
        print(find(REGISTRY) or build(REGISTRY))
    except (subprocess.SubprocessError, OSError) as error:
        print(f"==> TESTS OF REGISTRIES WILL BE SKIPPED: none can be built here: {error}", file=sys.stderr)
    return 0


@contextlib.contextmanager
def running(folder: Path, **configuration: Any) -> Iterator[int]:
    """A registry that keeps everything in memory, and its port on loopback; `configuration` is that of its
    parts: `auth`, `http`.
    """
    http = {"addr": "127.0.0.1:0", "secret": "tests", **configuration.pop("http", {})}
    file = folder / "registry.json"
    parts = {"version": "0.1", "storage": {"inmemory": {}, "delete": {"enabled": True}}, "http": http}
    # JSON is YAML.
    file.write_text(json.dumps({**parts, **configuration}), encoding="utf-8")
    command: list[str | Path] = [program(), "serve", file]
    environment = os.environ | {"OTEL_TRACES_EXPORTER": "none"}
    with listening(command, folder / "registry.log", _LISTENING, **environment) as port:
        yield port


if __name__ == "__main__":
    sys.exit(main())
