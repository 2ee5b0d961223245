"""The state folder of `flagstaff up`: it belongs to one process at a time, and to one source for good. What
was applied is kept there: the last good flag set is read back from it, as in a cluster.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from controller.runtime.setbacks import Stalled, as_failed
from evaluator.host import durable
from evaluator.host.times import read_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

log = logging.getLogger(__name__)

_FILE: Final = "source.json"
_MOST_BYTES: Final = 1_000_000
_APPLIED: Final = "objects.json"
_MOST_APPLIED_BYTES: Final = 256 * 1024 * 1024
_SUM_LINE: Final = 100
"""Bytes that the first line may have."""


@dataclass(frozen=True, slots=True)
class StateIdentity:
    """What a state folder holds the flags of. No secret is in it."""

    source: str
    """The repository: an absolute path or a URL, without name, password or query."""
    reference: str | None
    paths: tuple[str, ...]
    trusted: str = ""
    """`sha256:…` of the keys, one of which must have signed them; empty: no signature is required."""

    def __str__(self) -> str:
        options = [f"--ref {self.reference}"] if self.reference else []
        options += [f"--path {path}" for path in self.paths if path != "."]
        options += ["--verify-key …"] if self.trusted else []
        return f"{self.source} ({' '.join(options)})" if options else self.source


@dataclass(frozen=True, slots=True)
class DeliveredObjects:
    """The objects that delivered the last good flag set."""

    objects: tuple[dict[str, Any], ...]
    """Manifests."""
    saved_at: datetime
    """With its time zone."""


class AppliedFile:
    """One file of two lines: `{"sha256": …}` of the second, and that: `{"objects": […], "savedAt": …}`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _APPLIED

    def save(self, objects: Sequence[dict[str, Any]], now: datetime) -> None:
        """Replace what is on disk. Raises Failed (StorageFull, StorageFailed) with the old in place."""
        body = json.dumps({"objects": objects, "savedAt": now.isoformat()}, ensure_ascii=False).encode()
        head = json.dumps({"sha256": hashlib.sha256(body).hexdigest()}).encode()
        try:
            durable.save(self._path, head + b"\n" + body)
        except OSError as error:
            raise as_failed(error, f"saving the applied objects in {self._path}") from error

    def load(self) -> DeliveredObjects | None:
        """What was saved last; None where nothing was, or it is damaged (it is then set aside and logged).

        Raises Failed where the disk cannot be read.
        """
        try:
            return durable.load(self._path, _MOST_APPLIED_BYTES, _decode_applied)
        except OSError as error:
            raise as_failed(error, f"reading {self._path}") from error


def _decode_applied(content: bytes) -> DeliveredObjects:
    """Raises ValueError for what was not saved so."""
    head, _, body = content.partition(b"\n")
    if len(head) > _SUM_LINE or json.loads(head) != {"sha256": hashlib.sha256(body).hexdigest()}:
        raise ValueError("its checksum is missing or wrong")
    saved = json.loads(body)
    return DeliveredObjects(tuple(saved["objects"]), read_time(saved["savedAt"]))


@contextlib.contextmanager
def state_folder(folder: Path | None, identity: StateIdentity) -> Iterator[Path]:
    """The folder, locked and marked with `identity`; a temporary one, removed afterwards, for None.

    Raises Stalled (StateInUse, StateOfAnotherSource) where it cannot be used, Failed where the disk refuses.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="flagstaff-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)
        return
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(durable.lock_folder(folder))
            _claim(folder, identity)
        except durable.FolderInUseError as error:
            raise Stalled("StateInUse", str(error)) from error
        except OSError as error:
            raise as_failed(error, f"--state-dir {folder} cannot be used") from error
        yield folder


def _claim(folder: Path, identity: StateIdentity) -> None:
    held = durable.load(folder / _FILE, _MOST_BYTES, _decode)
    if held is None:
        content = json.dumps(asdict(identity), indent=2, ensure_ascii=False) + "\n"
        durable.save(folder / _FILE, content.encode())
    elif held != identity:
        raise Stalled(
            "StateOfAnotherSource",
            f"--state-dir {folder} holds the flags of {held}, not of {identity}; "
            f"give another folder, or delete this one to start without its last good flags",
        )


def _decode(content: bytes) -> StateIdentity:
    """Raises ValueError for what is not an identity."""
    document = json.loads(content)
    try:
        return StateIdentity(
            document["source"], document["reference"], tuple(document["paths"]), document.get("trusted", "")
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not the description of a source: {error!r}") from error
