"""curl, as people ask by hand: Connect over both HTTP versions, and the stream of changes."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from tests.clients.evaluator import evaluator
from tests.clients.test_evaluator import ready
from tests.clients.up import banner
from tests.clients.upstreams import replace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVICES = ("flagd.evaluation.v2.Service", "flagd.evaluation.v1.Service", "schema.v1.Service")
GOLD = json.dumps({"flagKey": "banner", "context": {"tier": "gold"}})
JSON = ("-H", "content-type: application/json")
RULE = {"if": [{"==": [{"var": "tier"}, "gold"]}, "party"]}


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("curl")
    replace(folder / "flags.json", banner("plain", targeting=RULE))
    with evaluator("-f", "file:flags.json", cwd=folder) as running:
        yield ready(running)


def curl(*words: str) -> tuple[int, dict[str, Any]]:
    """(status, body) of one answer."""
    command = ["curl", "-sS", "--max-time", "20", "-w", "\n%{http_code}", *words]
    printed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    body, _, status = printed.rpartition("\n")
    return int(status), json.loads(body)


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge", "--http2"])
@pytest.mark.parametrize("service", SERVICES)
def test_connect_is_asked_by_post(ports: dict[str, Any], service: str, version: str) -> None:
    url = f"http://127.0.0.1:{ports['grpc']}/{service}/ResolveString"
    status, answer = curl(version, *JSON, "-d", GOLD, url)
    assert (status, answer["value"], answer["variant"]) == (200, "Hooray", "party")


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_connect_is_asked_by_get(ports: dict[str, Any], version: str) -> None:
    query = urlencode({"connect": "v1", "encoding": "json", "message": GOLD})
    url = f"http://127.0.0.1:{ports['grpc']}/{SERVICES[0]}/ResolveString?{query}"
    status, answer = curl(version, url)
    assert (status, answer["value"]) == (200, "Hooray")


def test_an_error_of_connects_is_one_of_https(ports: dict[str, Any]) -> None:
    url = f"http://127.0.0.1:{ports['grpc']}/{SERVICES[0]}/ResolveString"
    status, answer = curl(*JSON, "-d", '{"flagKey":"missing"}', url)
    assert (status, answer["code"]) == (404, "not_found")


class Stream:
    """Events as curl prints them."""

    def __init__(self, url: str, *words: str) -> None:
        command = ["curl", "-sSN", "--max-time", "60", *words, url]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def next(self) -> dict[str, Any]:
        """The next event's data, with its id."""
        found: dict[str, Any] = {}
        for line in self.process.stdout or ():
            name, _, value = line.strip().partition(": ")
            if name == "id":
                found["id"] = value
            elif name == "data":
                found |= json.loads(value)
                return found
        raise AssertionError("the stream has ended")

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_changes_are_streamed(tmp_path: Path, version: str) -> None:
    replace(tmp_path / "flags.json", banner("plain"))
    with evaluator("-f", "file:flags.json", cwd=tmp_path) as running:
        stream = Stream(f"http://127.0.0.1:{ready(running)['ofrep']}/ofrep/v1/sse", version)
        try:
            first = stream.next()
            replace(tmp_path / "flags.json", banner("party"))
            second = stream.next()
        finally:
            stream.close()
    assert [each["type"] for each in (first, second)] == ["refetchEvaluation"] * 2
    assert first["etag"] == first["id"] != second["id"] == second["etag"]
