"""Asking a running evaluator: its management port, over HTTP. Standard library only, so any image can do it.

Answers are bounded in bytes and in time: the server need not be an evaluator.
"""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from controller.cli.printing import PROBLEM, UNREACHABLE, USAGE, Exit

if TYPE_CHECKING:
    import argparse

DEFAULT: Final = "127.0.0.1:8014"
SECONDS: Final = 10.0
MOST_BYTES: Final = 32_000_000


def add_address_argument(parser: argparse.ArgumentParser) -> None:
    """--to."""
    parser.add_argument(
        "--to", metavar="ADDRESS", default=DEFAULT,
        help=f"the evaluator's management port: host:port, http:// or https:// (default {DEFAULT})",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Remote:
    """The management port of an evaluator or a proxy."""

    address: str
    secure: bool
    host: str
    port: int
    process: str = "evaluator"
    """The process whose management port it is: evaluator or proxy."""

    def get(self, path: str) -> dict[str, Any]:
        """The JSON object at `path`. Raises Exit."""
        return self._ask("GET", path, None)

    def post(self, path: str, document: object) -> dict[str, Any]:
        """The JSON object that `document` is answered with. Raises Exit."""
        return self._ask("POST", path, json.dumps(document).encode())

    @property
    def _process(self) -> str:
        return f"{'an' if self.process == 'evaluator' else 'a'} {self.process}"

    def _ask(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        kind = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
        connection = kind(self.host, self.port, timeout=SECONDS)
        headers = {"content-type": "application/json"} if body is not None else {}
        try:
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return self._parse_answer(response.status, path, _read(response))
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Exit(
                f"cannot reach {self._process} at {self.address}: {reason}; "
                "is its management port open, and --to correct?"
            ) from error
        finally:
            connection.close()

    def _parse_answer(self, status: int, path: str, body: bytes) -> dict[str, Any]:
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        if status == 200 and isinstance(document, dict):
            return document
        if isinstance(document, dict) and isinstance(document.get("error"), str):
            raise Exit(document["error"], UNREACHABLE if status >= 412 else PROBLEM)
        raise Exit(
            f"{self.address} answered {path} with status {status}; "
            f"--to takes {self._process}'s management port"
        )


def _read(response: http.client.HTTPResponse) -> bytes:
    deadline, pieces, size = time.monotonic() + SECONDS, [], 0
    while piece := response.read1(65_536):
        pieces.append(piece)
        size += len(piece)
        if size > MOST_BYTES:
            raise Exit(f"the answer has more than {MOST_BYTES} bytes")
        if time.monotonic() > deadline:
            raise Exit(f"the answer took longer than {SECONDS:g} s")
    return b"".join(pieces)


def remote(address: str, process: str = "evaluator") -> Remote:
    """`host:port`, or an http or https URL, of an evaluator or a proxy. Raises Exit for wrong usage."""
    if address.isdecimal():
        raise Exit(f"{address!r} is not an address; write 127.0.0.1:{address}", USAGE)
    parts = urlsplit(address if "://" in address else f"http://{address}")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise Exit(f"{address!r} is not an address; write host:port or http://host:port", USAGE)
    if parts.path.strip("/") or parts.username is not None:
        raise Exit(f"{address!r} has more than a host and a port; write host:port", USAGE)
    return Remote(address, parts.scheme == "https", parts.hostname, port or 8014, process)
