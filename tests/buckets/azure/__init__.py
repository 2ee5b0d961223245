"""Azure Blob Storage for tests: Azurite, which checks signatures and tokens."""

from __future__ import annotations

import base64
import contextlib
import hmac
import itertools
import os
import re
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from tests.buckets.relay import Relay, serve_relay
from tests.foreign.languages import fetch_packages, node
from tests.programs import run_server

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

ACCOUNT: Final = "flagstaff"
KEY: Final = base64.b64encode(b"the key of an account for tests").decode()
_LISTENING: Final = re.compile(r"successfully listens on http://127\.0\.0\.1:(\d+)")
_VERSION: Final = "2019-12-12"
"""Of Azure's protocol."""
_numbers = itertools.count()


def fetch() -> Path:
    """The folder of its packages, fetched if need be. Raises subprocess.SubprocessError or OSError."""
    here = Path(__file__).parent
    fetch_packages(here, "a stand-in for Azure Blob Storage")
    return here / "node_modules"


@contextlib.contextmanager
def run_store(folder: Path) -> Iterator[int]:
    """A server that keeps everything in memory, and its port on loopback."""
    program = fetch() / "azurite/dist/src/blob/main.js"
    options = ("--blobPort", "0", "--inMemoryPersistence", "--disableTelemetry", "--silent")
    command: list[str | Path] = [node() / "node", program, *options]
    environment = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
    with run_server(command, folder / "azurite.log", _LISTENING, **environment) as port:
        yield port


def token(permissions: str) -> str:
    """An account's SAS token; its signature is `sig`."""
    fields = {
        "sp": permissions, "ss": "b", "srt": "sco", "st": "", "se": "2099-01-01T00:00:00Z", "sip": "",
        "spr": "https,http", "sv": _VERSION,
    }  # fmt: skip
    signed = "".join(f"{each}\n" for each in (ACCOUNT, *fields.values()))
    signature = hmac.digest(base64.b64decode(KEY), signed.encode(), "sha256")
    return urlencode(
        {name: text for name, text in fields.items() if text} | {"sig": base64.b64encode(signature)}
    )


class Azure(Relay):
    scheme, provider = "az", "azure"

    def __init__(self, port: int, tls: ssl.SSLContext | None) -> None:
        super().__init__(f"flags{next(_numbers)}", port, tls)
        self.login = {"sasKey": token("rl")}
        self._written: dict[str, str] = {}
        self._ask("PUT", "restype=container")

    @property
    def endpoint(self) -> str:
        return f"{self.url}/{ACCOUNT}"

    @property
    def etags(self) -> dict[str, str]:
        return self._written

    def write(self, key: str, text: str) -> None:
        self._written[key] = self._ask("PUT", "", key, text)

    def remove(self, key: str) -> None:
        self._ask("DELETE", "", key)
        del self._written[key]

    def is_listing(self, asked: str) -> bool:
        return "comp=list" in asked

    def onward(self, path: str) -> str:
        path = super().onward(path)
        # A token does not sign it.
        by_token = self.is_listing(path) and "sig=" in path
        return f"{path}&maxresults={self.page}" if by_token else path

    def _ask(self, method: str, query: str, key: str = "", text: str = "") -> str:
        """The ETag of the answer."""
        path = "/".join(("", ACCOUNT, self.bucket, *([quote(key)] if key else [])))
        headers = {"x-ms-version": _VERSION, "x-ms-blob-type": "BlockBlob"}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(
                method, f"{path}?{query}&{token('rwdlac')}".replace("?&", "?"), text.encode(), headers
            )
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status < 300, content
            return (answer.headers["ETag"] or "").strip('"')


@contextlib.contextmanager
def azure(port: int, tls: ssl.SSLContext | None = None) -> Iterator[Azure]:
    """An empty container."""
    with serve_relay(Azure(port, tls)) as found:
        yield found
