"""The store of artifacts: a folder of archives named by digest, and an index of their revisions."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from controller.artifacts.artifact import MAX_JSON_BYTES, MAX_TEXT, Artifact
from controller.runtime.reconciling.setbacks import Failed, as_failed
from evaluator.host import durable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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
