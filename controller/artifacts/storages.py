"""The artifacts of every source: a store each, below one folder, under the paths that the artifact server
serves.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from controller.api.meta import ObjectKey
from controller.artifacts.durable import as_failed
from controller.artifacts.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future
    from pathlib import Path

    from controller.artifacts.artifact import Artifact

_FOLDER: Final = "flagsource"
_KIND: Final = "FlagSource"
_CACHED_BYTES: Final = 8 * 1024 * 1024
_NAME: Final = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_PATH: Final = re.compile(rf"{_FOLDER}/({_NAME})/({_NAME})/([0-9a-f]{{64}})\.tar\.gz")
"""Kubernetes' names: no part of a path can be `..`, or hold a slash."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An archive's file."""

    file: Path
    size: int
    """Bytes, at least one."""
    digest: str
    """`sha256:` and hexadecimal digits: what it was when it was stored."""


class Storages:
    """Stores in `root`/flagsource/<namespace>/<name>/, which others find below `base_url`. For all threads.

    One process at a time may own `root`.
    """

    def __init__(self, root: Path, base_url: str, *, cached_bytes: int = _CACHED_BYTES) -> None:
        self._root = root
        self._base_url = base_url.rstrip("/")
        self._known: dict[ObjectKey, Storage] = {}
        self._leaving: dict[ObjectKey, Future[None]] = {}
        self._lock = threading.Lock()
        self._remover = ThreadPoolExecutor(1, "remove-artifacts")
        self._recent: LRUCache[str, bytes] = LRUCache(cached_bytes, getsizeof=len)

    def of(self, key: ObjectKey) -> Storage:
        """The store of one source, as it is on the disk now: one that was lost is made anew. Blocks. Raises
        Failed.
        """
        with self._lock:
            leaving = self._leaving.get(key)
        if leaving is not None:
            # The name is used again before what was there is gone.
            leaving.result()
        folder = self._folder(key)
        with self._lock:
            known = self._known.get(key)
            if known is None or not folder.is_dir():
                known = self._known[key] = Storage(folder)
            return known

    def url(self, key: ObjectKey, artifact: Artifact) -> tuple[str, str]:
        """(path below the artifact server, whole URL)."""
        path = f"{_FOLDER}/{key.namespace}/{key.name}/{artifact.path}"
        return path, f"{self._base_url}/{path}"

    def forget(self, key: ObjectKey) -> None:
        """Remove everything of a source that is gone, in a thread."""
        with self._lock:
            self._known.pop(key, None)
            leaving = self._leaving[key] = self._remover.submit(self._remove, key)
        leaving.add_done_callback(lambda done: self._left(key, done))

    def keep(self, keys: Iterable[ObjectKey]) -> None:
        """Remove what belongs to none of `keys`: sources that were deleted while no controller ran. Blocks.
        Raises Failed.
        """
        wanted = {(key.namespace, key.name) for key in keys}
        try:
            found = [path for path in (self._root / _FOLDER).glob("*/*") if path.is_dir()]
        except OSError as error:
            raise as_failed(error, f"the store {self._root}") from error
        for folder in found:
            if (folder.parent.name, folder.name) not in wanted:
                self.forget(ObjectKey(_KIND, folder.parent.name, folder.name))

    def find(self, path: str) -> Stored | None:
        """What `url` named `path`, unread; None where there is none. Takes microseconds."""
        asked = _PATH.fullmatch(path)
        if asked is None:
            return None
        key = ObjectKey(_KIND, asked[1], asked[2])
        with self._lock:
            if key in self._leaving:
                return None
        file = self._folder(key) / f"{asked[3]}.tar.gz"
        try:
            found = file.stat()
        except OSError:
            return None
        whole = stat.S_ISREG(found.st_mode) and found.st_size > 0
        return Stored(file, found.st_size, f"sha256:{asked[3]}") if whole else None

    def check(self, path: str) -> None:
        """Set an archive aside that is not what was stored. Blocks. Raises Failed where it is not."""
        asked = _PATH.fullmatch(path)
        if asked is not None:
            storage = self.of(ObjectKey(_KIND, asked[1], asked[2]))
            artifact = storage.find(f"sha256:{asked[3]}")
            if artifact is not None:
                storage.open(artifact)

    def read(self, path: str) -> tuple[bytes, str] | None:
        """(archive, digest) of what `url` named `path`; None where there is none. Raises Failed.

        Blocks for as long as one file takes, unless it was read lately.
        """
        asked = _PATH.fullmatch(path)
        if asked is None:
            return None
        key, digest = ObjectKey(_KIND, asked[1], asked[2]), f"sha256:{asked[3]}"
        with self._lock:
            if key in self._leaving:
                return None
        # A path that was never published makes no folder.
        if not (self._folder(key) / f"{asked[3]}.tar.gz").is_file():
            return None
        with self._lock:
            content = self._recent.get(path)
        if content is None:
            storage = self.of(key)
            artifact = storage.find(digest)
            if artifact is None:
                return None
            content = storage.open(artifact)
            with self._lock, contextlib.suppress(ValueError):  # larger than the whole cache
                self._recent[path] = content
        return content, digest

    def close(self) -> None:
        """Wait for what is being removed."""
        self._remover.shutdown()

    def _folder(self, key: ObjectKey) -> Path:
        return self._root / _FOLDER / key.namespace / key.name

    def _left(self, key: ObjectKey, done: Future[None]) -> None:
        with self._lock:
            if self._leaving.get(key) is done:
                del self._leaving[key]

    def _remove(self, key: ObjectKey) -> None:
        folder = self._folder(key)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.parent.rmdir()
        except OSError:
            # Others live in the namespace.
            return
