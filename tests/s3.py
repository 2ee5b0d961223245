"""S3 for tests: a real server that checks signatures, behind a relay."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from typing import TYPE_CHECKING, Any

from tests.buckets.relay import Relay, respond, serve_relay
from tests.sync_sources import S3_KEY, S3_SECRET, s3_server

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

BUCKET = "flags"
LOGIN = {"accesskey": S3_KEY, "secretkey": S3_SECRET}
"""As a Secret has it."""
VARIABLES = {"AWS_ACCESS_KEY_ID": S3_KEY, "AWS_SECRET_ACCESS_KEY": S3_SECRET}
"""As the environment has it."""


class S3(Relay):
    """A signature covers the relay's address, which the server knows."""

    scheme, provider = "s3", "generic"

    def __init__(self, folder: Path, port: int, tls: ssl.SSLContext | None) -> None:
        super().__init__(BUCKET, port, tls)
        self.folder = folder
        """Whose files are the bucket's objects."""
        self.login = LOGIN

    @property
    def etags(self) -> dict[str, str]:
        return {
            path.relative_to(self.folder).as_posix(): hashlib.md5(
                path.read_bytes(), usedforsecurity=False
            ).hexdigest()
            for path in self.folder.rglob("*")
            if path.is_file()
        }

    def write(self, key: str, text: str) -> None:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.folder.parent / "writing"
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)

    def remove(self, key: str) -> None:
        (self.folder / key).unlink()

    def present(self, there: bool) -> None:
        here, away = self.folder, self.folder.with_name("away")
        (away if there else here).rename(here if there else away)


def refuse(status: int, code: str, message: str = "") -> Callable[[BaseHTTPRequestHandler], bool]:
    """Answers everything with an error in the form of S3, which is that of the others, too."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()

    def answer(request: BaseHTTPRequestHandler) -> bool:
        respond(request, status, body)
        return True

    return answer


def answer_listing(*objects: tuple[str, int], etag: str = "e") -> Callable[[BaseHTTPRequestHandler], bool]:
    """Answers listings with these keys and sizes, also of names that no server over a disk could have."""
    entries = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        f'<ETag>"{etag}"</ETag><Size>{size}</Size></Contents>'
        for key, size in objects
    )
    body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()

    def answer(request: BaseHTTPRequestHandler) -> bool:
        if "list-type=2" not in request.path:
            return False
        respond(request, 200, body)
        return True

    return answer


@contextlib.contextmanager
def s3(folder: Path, tls: ssl.SSLContext | None = None) -> Iterator[S3]:
    """An empty bucket, gone afterwards."""
    root = folder / "s3"
    (root / BUCKET).mkdir(parents=True)
    with s3_server(root) as port, serve_relay(S3(root / BUCKET, port, tls)) as server:
        yield server
    shutil.rmtree(root)


def manifest(server: Relay, **bucket: Any) -> dict[str, Any]:
    """`spec.bucket` of a server of any kind."""
    found = {"provider": server.provider, "bucketName": server.bucket, "endpoint": server.endpoint}
    return {**found, "insecure": server.tls is None, "secretRef": {"name": "bucket"}, **bucket}
