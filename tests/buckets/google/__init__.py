"""Google Cloud Storage for tests: fake-gcs-server, which takes whatever login it is shown."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import re
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, quote, urlsplit
from xml.etree import ElementTree as ET

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.buckets.relay import Relay, serve_relay
from tests.go import Module, build, find
from tests.programs import run_server

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

SERVER: Final = Module(
    "google-storage", Path(__file__).parent, "a stand-in for Google Cloud Storage: about 2 minutes"
)
_LISTENING: Final = re.compile(r"listening on 127\.0\.0\.1:(\d+)")
_numbers = itertools.count()


@functools.cache
def service_account() -> str:
    """The key of an account, as Google gives it."""
    key = rsa.generate_private_key(65537, 2048)
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    account = {"type": "service_account", "client_email": "tests@example.com", "private_key_id": "1"}
    return json.dumps({**account, "private_key": key.private_bytes(*form).decode()})


def fetch() -> Path:
    """The folder of the program, built if need be. Raises subprocess.SubprocessError or OSError."""
    return find(SERVER) or build(SERVER)


@contextlib.contextmanager
def run_store(folder: Path) -> Iterator[int]:
    """A server that keeps everything in memory, and its port on loopback."""
    with run_server([fetch() / "google-storage"], folder / "google.log", _LISTENING) as port:
        yield port


class Google(Relay):
    """Says what Google's own servers say where the server behind it has no word for it: that there is no such
    bucket, and one page of a listing.
    """

    scheme, provider = "gs", "gcp"

    def __init__(self, port: int, tls: ssl.SSLContext | None) -> None:
        super().__init__(f"flags{next(_numbers)}", port, tls)
        self.login = {"serviceaccount": service_account()}
        self._written: dict[str, str] = {}
        self._ask("POST", "/storage/v1/b", json.dumps({"name": self.bucket}).encode())

    @property
    def etags(self) -> dict[str, str]:
        return self._written

    def write(self, key: str, text: str) -> None:
        path = f"/upload/storage/v1/b/{self.bucket}/o?uploadType=media&name={quote(key, safe='')}"
        self._written[key] = json.loads(self._ask("POST", path, text.encode()))["etag"]

    def remove(self, key: str) -> None:
        self._ask("DELETE", f"/storage/v1/b/{self.bucket}/o/{quote(key, safe='')}")
        del self._written[key]

    def rewrite_answer(self, path: str, status: int, body: bytes) -> tuple[int, bytes]:
        if not self.is_listing(path):
            return status, body
        if status == 500 and b"no bucket named" in body:
            return 404, b"<?xml version='1.0'?><Error><Code>NoSuchBucket</Code></Error>"
        return status, self._page(body, parse_qs(urlsplit(path).query).get("continuation-token", [""])[0])

    def _page(self, listing: bytes, after: str) -> bytes:
        whole = ET.fromstring(listing)  # noqa: S314 - of our own server
        found = [(each.findtext("Key", ""), each) for each in whole.findall("Contents")]
        rest = [(key, each) for key, each in found if key > after]
        for _, each in found:
            whole.remove(each)
        whole.extend(each for _, each in rest[: self.page])
        cut = len(rest) > self.page
        ET.SubElement(whole, "IsTruncated").text = str(cut).lower()
        if cut:
            ET.SubElement(whole, "NextContinuationToken").text = rest[self.page - 1][0]
        return ET.tostring(whole)

    def _ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body)
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status < 300, content
            return content


@contextlib.contextmanager
def google(port: int, tls: ssl.SSLContext | None = None) -> Iterator[Google]:
    """An empty bucket."""
    with serve_relay(Google(port, tls)) as found:
        yield found
