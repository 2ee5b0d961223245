"""A Git repository, a registry's and a bucket, on real servers with logins, behind the same front."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from tests.bombs import wide_tree
from tests.git_http import GitServer, git_server
from tests.registry.artifacts import Pusher, flux
from tests.registry.front import Answer, Front, before
from tests.registry.htpasswd import LOGIN, admit, guarded_registry
from tests.repositories import Repository
from tests.sync_sources import S3_KEY, S3_SECRET, s3_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LARGE: Final = 16 * 1024**2 + 1
"""Bytes, one more than a file may have."""


class Remote(Protocol):
    """Where definitions are; readers ask `front`."""

    provider: str
    front: Front
    gone: str
    """The reason while it is away."""
    password: str
    """Of the first login; it must not be shown."""

    @property
    def spec(self) -> dict[str, Any]:
        """That part of a FlagSource's spec; `login` is the Secret."""

    @property
    def login(self) -> dict[str, bytes]:
        """What the Secret must hold now."""

    def rotate(self) -> None:
        """From now on the server lets in another login alone."""

    def put(self, **files: str) -> None:
        """Push these files in place of those with the same names; `__` is a dot."""

    def put_large(self) -> None:
        """Push `large.json` of `LARGE` bytes beside the others."""

    def put_bomb(self) -> None:
        """Have what is small to send and large to read."""

    def defuse(self) -> None:
        """Have what was there before `put_bomb`."""

    def present(self, there: bool) -> None:
        """Take it away, or put it back."""


@dataclass
class GitRemote:
    """A repository behind `git http-backend`."""

    repository: Repository
    server: GitServer
    front: Front
    provider = "git"
    gone = "RepositoryNotFound"
    password = "w0rd"  # noqa: S105 - lets into a server of the tests

    @property
    def spec(self) -> dict[str, Any]:
        return {"url": f"http://{self.front.host}/repository/.git", "secretRef": {"name": "login"}}

    @property
    def login(self) -> dict[str, bytes]:
        username, _, password = self.server.login.partition(":")
        return {"username": username.encode(), "password": password.encode()}

    def rotate(self) -> None:
        self.server.login = "eve:another-w0rd"

    def put(self, **files: str) -> None:
        self.repository.commit(**files)

    def put_large(self) -> None:
        _write_zeros(self.repository.path / "large.json")
        self.repository.commit()

    def put_bomb(self) -> None:
        self.repository.git("tag", "before")
        wide_tree(self.repository)

    def defuse(self) -> None:
        self.repository.git("reset", "-q", "--hard", "before")

    def present(self, there: bool) -> None:
        here, away = self.repository.path, self.repository.path.with_name("away")
        (away if there else here).rename(here if there else away)


@dataclass
class OciRemote:
    """A repository of the distribution project's registry."""

    pusher: Pusher
    folder: Path
    front: Front
    files: dict[str, str | bytes]
    username: str = LOGIN.username
    provider = "oci"
    gone = "ReferenceNotFound"
    password = LOGIN.password

    @property
    def spec(self) -> dict[str, Any]:
        url = f"oci://{self.front.host}/team/flags"
        return {"url": url, "insecure": True, "secretRef": {"name": "login"}}

    @property
    def login(self) -> dict[str, bytes]:
        entry = {"username": self.username, "password": LOGIN.password}
        return {".dockerconfigjson": json.dumps({"auths": {self.front.host: entry}}).encode()}

    def rotate(self) -> None:
        self.username = "eve"
        admit(self.folder, self.username)

    def put(self, **files: str) -> None:
        self.files |= {name.replace("__", "."): text for name, text in files.items()}
        self._push(self.files)

    def put_large(self) -> None:
        self._push({**self.files, "large.json": os.urandom(LARGE)})

    def put_bomb(self) -> None:
        self._push({f"{number}.json": bytes(LARGE - 1) for number in range(9)})

    def defuse(self) -> None:
        self._push(self.files)

    def present(self, there: bool) -> None:
        if there:
            self._push(self.files)
        else:
            self.pusher.tag("team/flags", "latest", "other")
            self.pusher.delete("team/flags", "latest")

    def _push(self, files: dict[str, str | bytes]) -> None:
        basic = base64.b64encode(f"{self.username}:{LOGIN.password}".encode()).decode()
        self.pusher.headers["Authorization"] = f"Basic {basic}"
        self.pusher.push("team/flags", "latest", flux(files))


@dataclass
class BucketRemote:
    """A bucket of rclone's server."""

    root: Path
    stack: contextlib.ExitStack
    front: Front
    keys: tuple[str, str] = (S3_KEY, S3_SECRET)
    provider = "bucket"
    gone = "BucketNotFound"
    password = S3_SECRET

    @property
    def folder(self) -> Path:
        return self.root / "flags"

    @property
    def spec(self) -> dict[str, Any]:
        return {
            "bucketName": "flags",
            "endpoint": f"http://{self.front.host}",
            "insecure": True,
            "secretRef": {"name": "login"},
        }

    @property
    def login(self) -> dict[str, bytes]:
        key, secret = self.keys
        return {"accesskey": key.encode(), "secretkey": secret.encode()}

    def rotate(self) -> None:
        self.keys = ("ANOTHER-KEY", "another-s3cret-key")
        self.front.target = self.stack.enter_context(s3_server(self.root, *self.keys))

    def put(self, **files: str) -> None:
        for name, text in files.items():
            fresh = self.root.parent / "writing"
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(self.folder / name.replace("__", "."))

    def put_large(self) -> None:
        _write_zeros(self.folder / "large.json")

    def put_bomb(self) -> None:
        entry = (
            b"<Contents><Key>a%d</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            b'<ETag>"e"</ETag><Size>1</Size></Contents>'
        )
        entries = b"".join(entry % number for number in range(300_000))
        listing = b"<ListBucketResult><IsTruncated>false</IsTruncated>%s</ListBucketResult>" % entries
        self.front.instead = lambda asked, answer: Answer(200, {"Content-Type": "application/xml"}, listing)

    def defuse(self) -> None:
        self.front.instead = lambda asked, answer: None

    def present(self, there: bool) -> None:
        here, away = self.folder, self.root.with_name("away")
        (away if there else here).rename(here if there else away)


def _write_zeros(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LARGE)


@contextlib.contextmanager
def git_remote(root: Path) -> Iterator[GitRemote]:
    repository = Repository(root / "repository")
    with git_server(root, login=f"me:{GitRemote.password}") as server, before(server.server_port) as front:
        yield GitRemote(repository, server, front)


@contextlib.contextmanager
def oci_remote(root: Path) -> Iterator[OciRemote]:
    with guarded_registry(root) as port, before(port) as front:
        yield OciRemote(Pusher(f"http://127.0.0.1:{port}"), root, front, {})


@contextlib.contextmanager
def bucket_remote(root: Path) -> Iterator[BucketRemote]:
    (root / "s3" / "flags").mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(s3_server(root / "s3"))
        front = stack.enter_context(before(port))
        yield BucketRemote(root / "s3", stack, front)


REMOTES: Final[dict[str, Callable[[Path], contextlib.AbstractContextManager[Remote]]]] = {
    "git": git_remote,
    "oci": oci_remote,
    "bucket": bucket_remote,
}
