"""The registries of the distribution project, as it is now and as Debian packages it, and of
go-containerregistry, built or unpacked once into a cache outside the repository.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.debian import programs
from tests.go import Module, build, find
from tests.go import program as built
from tests.programs import run_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REGISTRY: Final = Module("registry", Path(__file__).parent / "server", "the test registry: about 2 minutes")
CONTAINERS: Final = Module(
    "containers",
    Path(__file__).parent / "containers",
    "the registry of go-containerregistry: less than a minute",
)
_PACKAGE: Final = "docker-registry"
_LISTENING: Final = re.compile(r"listening on 127\.0\.0\.1:(\d+)")


def program(module: Module = REGISTRY) -> Path:
    """Built if need be; without one the test is skipped."""
    return built(module, f"NO REGISTRY IS READ: {module.name} cannot be built")


def _own(module: Module) -> Path:
    return (find(module) or build(module)) / module.name


def debian() -> Path:
    """Debian's program, downloaded if need be; where there is no apt the test is skipped."""
    try:
        return _debian() / _PACKAGE
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"DEBIAN'S REGISTRY IS NOT READ: its package cannot be had: {error}")


def _debian() -> Path:
    return programs(_PACKAGE, _PACKAGE)


def main() -> int:
    """Build the programs if need be; say so where one cannot be built."""
    for name, get in (
        ("registry", partial(_own, REGISTRY)),
        ("containers", partial(_own, CONTAINERS)),
        ("Debian's", _debian),
    ):
        try:
            print(get())
        except (subprocess.SubprocessError, OSError) as error:
            print(
                f"==> TESTS OF A REGISTRY WILL BE SKIPPED: {name} cannot be had here: {error}",
                file=sys.stderr,
            )
    return 0


@contextlib.contextmanager
def containers(folder: Path) -> Iterator[int]:
    """The port of a registry that lists referrers, and keeps everything in memory."""
    with run_server([program(CONTAINERS)], folder / "registry.log", _LISTENING) as port:
        yield port


@contextlib.contextmanager
def run_registry(folder: Path, registry: Callable[[], Path] = program, **configuration: Any) -> Iterator[int]:
    """A registry that keeps everything in memory, and its port on loopback; `configuration` is that of its
    parts: `auth`, `http`.
    """
    http = {"addr": "127.0.0.1:0", "secret": "tests", **configuration.pop("http", {})}
    file = folder / "registry.json"
    parts = {"version": "0.1", "storage": {"inmemory": {}, "delete": {"enabled": True}}, "http": http}
    # JSON is YAML.
    file.write_text(json.dumps({**parts, **configuration}), encoding="utf-8")
    command: list[str | Path] = [registry(), "serve", file]
    environment = os.environ | {"OTEL_TRACES_EXPORTER": "none"}
    with run_server(command, folder / "registry.log", _LISTENING, **environment) as port:
        yield port


if __name__ == "__main__":
    sys.exit(main())
