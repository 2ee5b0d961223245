"""The last good flag set on disk: what `flagstaff up` serves when it starts and its source is gone.

The file is one line of JSON and a document. The line is
`{"length": bytes, "saved_at": RFC 3339, "sha256": hex, "version": 1}`, its sum over `saved_at`, a newline and the document;
the document is the flag set's canonical form with its provenance.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from controller.artifacts import durable
from evaluator.flags.canonical import canonical
from evaluator.flags.model import REVISION_KEY, FlagSet
from evaluator.flags.operators import DEPTH
from evaluator.flags.parse import parse
from evaluator.flags.text import Bounds

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

_VERSION: Final = 1
_MAX_BYTES: Final = 256 * 1024 * 1024
_MAX_HEADER: Final = 512

# A set of many documents, with held rules expanded, is larger than any document that a person writes.
_BOUNDS: Final = Bounds(
    document_bytes=_MAX_BYTES, flags=2_000_000, depth=2 * DEPTH + 16, nodes=100_000_000
)


@dataclass(frozen=True, slots=True)
class Saved:
    """What was found on disk."""

    flag_set: FlagSet
    revision: str | None
    """The revision that last changed the content; None where the set does not say."""
    saved_at: datetime
    """With its time zone."""


class LastGood:
    """One flag set in one file, the folder being made when first written to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def save(self, flag_set: FlagSet, now: datetime) -> None:
        """Replace what is on disk. Raises Failed (StorageFull, StorageFailed) with the old in place."""
        document = canonical(flag_set, provenance=True)
        saved_at = now.isoformat()
        header = {
            "length": len(document),
            "saved_at": saved_at,
            "sha256": _sum(saved_at, document),
            "version": _VERSION,
        }
        line = json.dumps(header, sort_keys=True).encode()
        try:
            durable.make_folder(self._path.parent)
            durable.write_file(self._path, line + b"\n" + document)
        except OSError as error:
            raise durable.as_failed(
                error, f"saving the last good flag set in {self._path}"
            ) from error

    def load(self) -> Saved | None:
        """What was saved last; None where nothing was, or it is damaged (it is then set aside and logged).

        Raises Failed where the disk cannot be read.
        """
        try:
            durable.sweep(self._path.parent, self._path.name)
            content = durable.read_file(self._path, _MAX_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise durable.as_failed(error, f"reading {self._path}") from error
        try:
            return _read(content)
        except ValueError as error:
            self._set_aside(error)
            return None

    def _set_aside(self, error: ValueError) -> None:
        try:
            aside = durable.set_aside(self._path)
        except OSError as refused:
            raise durable.as_failed(refused, f"setting {self._path} aside") from refused
        log.warning("%s: the last good flag set was damaged and is not served: %s", aside, error)


def _sum(saved_at: str, document: bytes) -> str:
    return hashlib.sha256(saved_at.encode() + b"\n" + document).hexdigest()


def _read(content: bytes) -> Saved:
    """Raises ValueError for anything but what `save` wrote."""
    line, _, document = content.partition(b"\n")
    header = json.loads(line) if len(line) <= _MAX_HEADER else None
    if not isinstance(header, dict) or header.get("version") != _VERSION:
        raise ValueError("it does not start as such a file does")
    saved_at = header.get("saved_at")
    if not isinstance(saved_at, str) or header.get("sha256") != _sum(saved_at, document):
        raise ValueError(f"its checksum is wrong ({len(document)} of {header.get('length')} bytes)")
    parsed = parse(document, file="last-good.json", bounds=_BOUNDS)
    if parsed.whole_bad or parsed.bad:
        raise ValueError(f"it cannot be read: {parsed.problems[0]}")
    revision = parsed.flag_set.metadata.get(REVISION_KEY)
    moment = datetime.fromisoformat(saved_at)
    return Saved(parsed.flag_set, revision if isinstance(revision, str) else None, moment)
