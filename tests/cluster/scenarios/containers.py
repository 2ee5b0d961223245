"""The evaluator, started from the container that a pod of OpenFeature Operator's form has."""

from __future__ import annotations

import contextlib
import http.client
import json
from typing import TYPE_CHECKING, Any, Final

from tests.clients.evaluator import evaluator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.clients.evaluator import Evaluator

_PORTS: Final = ("--port", "--management-port", "--ofrep-port")
_HERE: Final = ("--host=127.0.0.1", "--management-host=127.0.0.1", "--sync-port=0")
"""What differs from a pod, which has a network of its own."""
_QUESTION: Final = b'{"flagKey":"simple-flag","context":{}}'


@contextlib.contextmanager
def run_container(
    container: Mapping[str, Any], folder: Path, mounts: Mapping[str, Path]
) -> Iterator[Evaluator]:
    """Ours, by the container's own arguments and variables: its ports are free ones of loopback, and each
    path of `mounts` is a folder here.
    """
    first, *words = container["args"]
    assert first == "start"
    for there, here in mounts.items():
        words = [each.replace(there, str(here)) for each in words]
    after = zip(["", *words], words, strict=False)
    words = ["0" if before in _PORTS else each for before, each in after]
    environ = {each["name"]: each["value"] for each in container["env"]}
    with evaluator(*words, cwd=folder, environ=environ, leading=_HERE) as running:
        yield running


def resolve_flag(port: int) -> dict[str, Any]:
    """The answer to the request of OpenFeature Operator's own tests. Raises OSError where nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/schema.v1.Service/ResolveBoolean", _QUESTION, headers)
        answer: dict[str, Any] = json.load(connection.getresponse())
        return answer
