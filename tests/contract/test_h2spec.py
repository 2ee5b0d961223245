"""h2spec, the conformance suite of HTTP/2 and HPACK, against a listener with one plain route."""

from __future__ import annotations

import asyncio
import os
import subprocess
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

from evaluator.http.listener import Listener
from evaluator.http.messages import Request, Response
from evaluator.http.routes import Routes
from tests.go import CACHE, go

if TYPE_CHECKING:
    from pathlib import Path

# The newest version that the module proxy serves under the module's own path.
MODULE = "github.com/summerwind/h2spec"
VERSION = "v2.2.1+incompatible"
BUILD_SECONDS = 500

EXPECTED_FAILURES = {
    ("http2/3.5", "Sends invalid connection preface"): "the port speaks HTTP/1.1 too: what is no "
    "HTTP/2 preface is taken for a request of HTTP/1.1, answered 400 and closed"
}


def _run(*command: str, **environment: str) -> None:
    subprocess.run(
        command, check=True, capture_output=True, timeout=BUILD_SECONDS, env=os.environ | environment
    )


@pytest.fixture(scope="module")
def h2spec() -> str:
    folder = CACHE / f"h2spec-{VERSION}"
    program = folder / "h2spec"
    if not program.exists():
        try:
            _run(go(), "install", f"{MODULE}/cmd/h2spec@{VERSION}", GOBIN=str(folder))
        except (OSError, subprocess.SubprocessError) as error:
            detail = getattr(error, "stderr", None) or b""
            pytest.skip(f"HTTP/2 IS NOT CHECKED: h2spec cannot be built: {error} {detail[-500:]!r}")
    return str(program)


def answer(request: Request) -> Response:
    return Response(200, request.body or b"hello")


async def outcomes(program: str, report: Path) -> dict[tuple[str, str], str]:
    """(section, case) -> passed, skipped, or how it failed."""
    listener = Listener(Routes(http={("GET", "/"): answer, ("POST", "/"): answer}), name="h2spec")
    port = await listener.start("127.0.0.1", 0)
    command = (program, "-h", "127.0.0.1", "-p", str(port), "-o", "4", "-j", str(report))
    running = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    await running.wait()
    await listener.drain(0)
    found = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - our own h2spec wrote it
        verdict = next((child.tag for child in case), "passed")
        text = "".join(case.itertext()).strip() if verdict in {"failure", "error"} else ""
        found[case.attrib["package"], case.attrib["classname"]] = f"{verdict} {text}".strip()
    return found


@pytest.mark.timeout(BUILD_SECONDS + 100)
async def test_only_the_listed_cases_of_h2spec_fail(h2spec: str, tmp_path: Path) -> None:
    found = await outcomes(h2spec, tmp_path / "report.xml")
    assert len(found) > 140
    failed = {case: text for case, text in found.items() if text not in {"passed", "skipped"}}
    unexpected = {case: text for case, text in failed.items() if case not in EXPECTED_FAILURES}
    assert unexpected == {}
    assert EXPECTED_FAILURES.keys() - failed.keys() == set(), "these pass now: unlist them"
    assert sum(text == "skipped" for text in found.values()) <= 1
