"""The artifacts of every source: archives named by digest, and an index of their revisions."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import shutil
import stat
import threading
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from controller.api.meta import ObjectKey
from controller.runtime.setbacks import Failed, as_failed
from evaluator.host import durable
from evaluator.host.threads import FairThreads, work_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


MAX_JSON_BYTES: Final = 512 * 1024
"""Most bytes of one artifact's JSON; its texts come from commits, which strangers write."""
MAX_TEXT: Final = 1024
"""Most characters of one text field, or of one value of the metadata."""
MAX_KEYS: Final = 16
"""Most keys of the metadata."""
_PART: Final = "[0-9A-Za-z_-][0-9A-Za-z._-]*"

_Text = Annotated[str, Field(max_length=MAX_TEXT)]


class Artifact(BaseModel):
    """An archive of one revision. Raises ValueError for a field that could not be read again."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    revision: Annotated[_Text, Field(min_length=1)]
    """The revision as the source writes it: `main@sha1:…`."""
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    """`sha256:…` of the archive's bytes."""
    size: Annotated[int, Field(ge=0)]
    """Size of the archive in bytes."""
    path: Annotated[_Text, Field(pattern=rf"^{_PART}(/{_PART})*$")]
    """Relative to the store's root."""
    metadata: Annotated[dict[_Text, _Text], Field(max_length=MAX_KEYS)]
    """What the provider says of the revision, for `status.artifact.metadata`; the keys are the provider's."""


log = logging.getLogger(__name__)

_INDEX: Final = "index.json"
_SUFFIX: Final = ".tar.gz"
_RETAIN_BYTES: Final = 512 * 1024 * 1024


class Storage:
    """The newest `retain` archives, the latest always, of at most `retain_bytes`. One process owns `root`."""

    def __init__(self, root: Path, *, retain: int = 5, retain_bytes: int = _RETAIN_BYTES) -> None:
        """Open the store, making its folder if need be. Raises Failed."""
        self._root = root
        self._retain = retain
        self._retain_bytes = retain_bytes
        self._lock = threading.RLock()
        """Held while the index changes: room is made in other threads than the one that stores."""
        self._proven: dict[str, tuple[int, int, int] | None] = {}
        try:
            durable.make_folder(root)
            durable.sweep(root)
            self._index = self._read_index()
            self._remove_strangers()
        except OSError as error:
            raise as_failed(error, f"the store {root}") from error

    def latest(self) -> Artifact | None:
        """What was put last and is still here."""
        return self._index[0] if self._index else None

    def find(self, digest: str) -> Artifact | None:
        """Return the artifact of `digest`, if it is stored here."""
        return next((known for known in self._index if known.digest == digest), None)

    def put(self, archive: bytes, *, revision: str, metadata: Mapping[str, str]) -> Artifact:
        """Store an archive and make it the latest; fields as Artifact's, long values of the metadata cut.

        Raises Failed (StorageFull, StorageFailed) with the store as it was, or ValueError for a revision
        or metadata that an Artifact cannot have.
        """
        digest = hashlib.sha256(archive).hexdigest()
        artifact = Artifact(
            revision=revision,
            digest=f"sha256:{digest}",
            size=len(archive),
            path=digest + _SUFFIX,
            # A lone surrogate could not be written as UTF-8.
            metadata={
                key: value[:MAX_TEXT].encode(errors="replace").decode() for key, value in metadata.items()
            },
        )
        with self._lock:
            self._put(artifact, archive)
        return artifact

    def drop_history(self) -> bool:
        """Remove all archives but the latest, which alone is needed, and files that were set aside: another
        one's content needs the room. Return whether there was anything. Blocks; never fails.
        """
        with self._lock:
            history = self._index[1:]
            # The index on the disk may keep naming them: what is not there is passed over.
            self._index = self._index[:1]
            for artifact in history:
                self._forget(artifact)
            aside = list(self._root.glob(f"*{durable.DAMAGED}"))
            for path in aside:
                with contextlib.suppress(OSError):
                    path.unlink()
        return bool(history or aside)

    def open(self, artifact: Artifact) -> bytes:
        """The archive's bytes, proven by their digest.

        Raises Failed: ArtifactGone when it is not (or no longer) stored, ArtifactDamaged when the file
        was not what was put there (it is then set aside), StorageFailed when it cannot be read.
        """
        path = self._root / artifact.path
        try:
            archive = durable.read_file(path, artifact.size)
        except FileNotFoundError as error:
            self._drop(artifact)
            raise Failed("ArtifactGone", f"{path}: the artifact is no longer in storage") from error
        except OSError as error:
            raise as_failed(error, str(path)) from error
        if f"sha256:{hashlib.sha256(archive).hexdigest()}" == artifact.digest:
            return archive
        with contextlib.suppress(OSError):
            path = durable.set_aside(path)
        self._drop(artifact)
        raise Failed("ArtifactDamaged", f"{path}: the stored artifact is damaged; it is set aside")

    def require(self, artifact: Artifact) -> None:
        """Raise as `open` does unless the archive is stored undamaged. A file that has not changed since it
        was last verified is not read: `open` verifies it, too.
        """
        stamp = self._stamp(artifact)
        if stamp is None or self._proven.get(artifact.digest) != stamp:
            self.open(artifact)
            self._proven[artifact.digest] = stamp

    def _put(self, artifact: Artifact, archive: bytes) -> None:
        others = [known for known in self._index if known.digest != artifact.digest]
        index = self._within_retention([artifact, *others])
        try:
            self._write(artifact, archive)
            lines = "".join(f"{known.model_dump_json()}\n" for known in index)
            durable.write_file(self._root / _INDEX, lines.encode())
        except OSError as error:
            if len(others) == len(self._index):
                self._forget(artifact)
            raise as_failed(error, f"storing {artifact.revision} in {self._root}") from error
        self._index = index
        for gone in others:
            if gone not in index:
                self._forget(gone)

    def _stamp(self, artifact: Artifact) -> tuple[int, int, int] | None:
        """Return the identity of a file's content: it differs once the file was changed."""
        try:
            attributes = (self._root / artifact.path).stat()
        except OSError:
            return None
        return attributes.st_ino, attributes.st_size, attributes.st_mtime_ns

    def _write(self, artifact: Artifact, archive: bytes) -> None:
        path = self._root / artifact.path
        with contextlib.suppress(FileNotFoundError):
            if durable.read_file(path, len(archive)) == archive:
                return
        durable.write_file(path, archive, last=False)

    def _read_index(self) -> list[Artifact]:
        path = self._root / _INDEX
        limit = MAX_JSON_BYTES * (self._retain + 1)
        try:
            # A longer index is cut at the limit; its last line is then incomplete and refused below.
            text = durable.read_file(path, limit)
            index = [Artifact.model_validate_json(line) for line in text.splitlines()]
        except FileNotFoundError:
            return []
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            log.warning("%s: the storage index was damaged: %s", durable.set_aside(path), why)
            return []
        return [artifact for artifact in index if (self._root / artifact.path).is_file()]

    def _within_retention(self, index: list[Artifact]) -> list[Artifact]:
        kept, total = index[:1], index[0].size
        for artifact in index[1 : self._retain]:
            total += artifact.size
            if total > self._retain_bytes:
                break
            kept.append(artifact)
        return kept

    def _remove_strangers(self) -> None:
        known = {artifact.path for artifact in self._index}
        for path in self._root.glob(f"*{_SUFFIX}"):
            if path.name not in known:
                path.unlink(missing_ok=True)

    def _drop(self, artifact: Artifact) -> None:
        self._index = [known for known in self._index if known.digest != artifact.digest]

    def _forget(self, artifact: Artifact) -> None:
        self._proven.pop(artifact.digest, None)
        with contextlib.suppress(OSError):
            (self._root / artifact.path).unlink(missing_ok=True)


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
