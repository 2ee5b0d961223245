"""The registry of the distribution project, built once into a cache outside the repository."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.go import Module, build, find
from tests.programs import DIES_WITH_US

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
_PATIENCE: Final = 1200
"""Looks at its log, 20 a second."""


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
    log = folder / "registry.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [*DIES_WITH_US, str(program()), "serve", str(file)],
            stderr=said,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"OTEL_TRACES_EXPORTER": "none"},
        )
    try:
        yield _port(process, log)
    finally:
        process.kill()
        process.wait()


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    for _ in range(_PATIENCE):
        said = log.read_text(encoding="utf-8")
        if found := _LISTENING.search(said):
            return int(found[1])
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise AssertionError(f"the registry does not start: {log.read_text(encoding='utf-8')}")


if __name__ == "__main__":
    sys.exit(main())
