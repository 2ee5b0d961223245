"""The artifacts of every source: a store each, below one folder, at the artifact server's paths."""

from __future__ import annotations

import contextlib
import re
import shutil
import stat
import threading
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api.objects.meta import ObjectKey
from controller.artifacts.storage import Storage
from controller.runtime.reconciling.setbacks import as_failed
from evaluator.host.threads import FairThreads, work_for

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from controller.artifacts.artifact import Artifact

_FOLDER: Final = "flagsource"
_KIND: Final = "FlagSource"
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
    """Stores in `root`/flagsource/<namespace>/<name>/, one process at a time. For all threads."""

    def __init__(self, root: Path, base_url: str) -> None:
        self._root = root
        self._base_url = base_url.rstrip("/")
        self._known: dict[ObjectKey, Storage] = {}
        self._removals: dict[ObjectKey, Future[None]] = {}
        self._lock = threading.Lock()
        self._remover = FairThreads(1, resource="removals")

    def of(self, key: ObjectKey) -> Storage:
        """The store of one source; one that was lost on the disk is made anew. Blocks. Raises Failed."""
        with self._lock:
            leaving = self._removals.get(key)
        if leaving is not None:
            # A source of the same name was created before the removal ended.
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
        with self._lock, work_for(key.namespace):
            self._known.pop(key, None)
            leaving = self._removals[key] = self._remover.submit(self._remove, key)
        leaving.add_done_callback(lambda done: self._end_removal(key, done))

    def keep(self, keys: Iterable[ObjectKey]) -> None:
        """Remove what belongs to none of `keys`, such as sources that are gone. Blocks. Raises Failed."""
        wanted = {(key.namespace, key.name) for key in keys}
        try:
            folders = [path for path in (self._root / _FOLDER).glob("*/*") if path.is_dir()]
        except OSError as error:
            raise as_failed(error, f"the store {self._root}") from error
        for folder in folders:
            if (folder.parent.name, folder.name) not in wanted:
                self.forget(ObjectKey(_KIND, folder.parent.name, folder.name))

    def drop_history(self) -> bool:
        """Remove older archives of all sources, since the volume is full: they are kept for people alone, and
        never take the room of a new one. Return whether there was anything. Blocks; never fails.
        """
        with self._lock:
            storages = list(self._known.values())
        # Each of them, though one was enough: the next source needs room, too.
        dropped = [storage.drop_history() for storage in storages]
        return any(dropped)

    def find(self, path: str) -> Stored | None:
        """Return the artifact at `path`, a result of `url`, or None. It is not read."""
        named = self._locate(path)
        if named is None:
            return None
        _, file, digest = named
        try:
            attributes = file.stat()
        except OSError:
            return None
        whole = stat.S_ISREG(attributes.st_mode) and attributes.st_size > 0
        return Stored(file, attributes.st_size, digest) if whole else None

    def read(self, path: str) -> bytes | None:
        """The archive at a path of `url`, or None. Blocks. Raises Failed, and sets aside, what is damaged."""
        named = self._locate(path)
        # A path that was never published makes no folder.
        if named is None or not named[1].is_file():
            return None
        key, _, digest = named
        storage = self.of(key)
        artifact = storage.find(digest)
        return storage.open(artifact) if artifact is not None else None

    def close(self) -> None:
        """Wait until removals are done."""
        with self._lock:
            leaving = tuple(self._removals.values())
        wait(leaving)
        self._remover.shutdown()

    def _locate(self, path: str) -> tuple[ObjectKey, Path, str] | None:
        """The source, file and digest that a path names; None where no source that stays can have it."""
        asked = _PATH.fullmatch(path)
        if asked is None:
            return None
        key = ObjectKey(_KIND, asked[1], asked[2])
        with self._lock:
            if key in self._removals:
                return None
        return key, self._folder(key) / f"{asked[3]}.tar.gz", f"sha256:{asked[3]}"

    def _folder(self, key: ObjectKey) -> Path:
        return self._root / _FOLDER / key.namespace / key.name

    def _end_removal(self, key: ObjectKey, done: Future[None]) -> None:
        with self._lock:
            if self._removals.get(key) is done:
                del self._removals[key]

    def _remove(self, key: ObjectKey) -> None:
        folder = self._folder(key)
        shutil.rmtree(folder, ignore_errors=True)
        # The namespace's folder may hold other sources.
        with contextlib.suppress(OSError):
            folder.parent.rmdir()
