"""What the FlagReceipts of living proxies say of one object, and how often that is written to its status.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from controller.api import receipt
from controller.api.conditions import PROPAGATED, Condition, find, read
from controller.api.meta import ObjectKey
from controller.api.receipt import FlagReceiptStatus, receipt_name
from controller.configurations.propagation import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from controller.api.meta import Resource
    from controller.configurations.propagation import Propagation
    from controller.runtime.objects.cache import Cache

PACE: Final = 1.0
"""Seconds between two writes of who serves an object."""
BYTES_PER_SECOND: Final = 100_000
"""A status is written together with its spec: that of a megabyte every ten seconds."""


@dataclass(frozen=True, slots=True)
class Serving:
    """Who serves an object, as its status is to say."""

    status: Mapping[str, Any]
    """FIELDS, as far as there is something to report."""
    details: tuple[Condition, ...]
    next_look: float | None = None
    """Seconds."""

    def says_the_same(self, other: Serving) -> bool:
        """Whether both make the same status."""
        return (self.status, self.details) == (other.status, other.details)


def written(status: Mapping[str, Any]) -> Serving:
    """What the status says now."""
    known = find(status, PROPAGATED)
    fields = {name: status[name] for name in FIELDS if name in status}
    return Serving(fields, () if known is None else (read(known),))


def reported(found: Propagation | None) -> Serving:
    """What the status is to say. None: no proxy reports on the object."""
    return Serving({}, ()) if found is None else Serving(found.status, (found.condition,), found.again)


def pace(spec_bytes: int) -> float:
    """Seconds between two writes, of an object with a spec of that size."""
    return max(PACE, spec_bytes / BYTES_PER_SECOND)


def receipts(resource: Resource, objects: Cache, proxies: Iterable[str]) -> list[FlagReceiptStatus]:
    """What `proxies`, by identity, report on this very object."""
    found = []
    for proxy in proxies:
        name = receipt_name(resource.name, proxy)
        each = objects.get(ObjectKey(receipt.KIND, resource.namespace, name))
        if each is None or not any(one.get("uid") == resource.uid for one in each.owners):
            continue
        try:
            found.append(FlagReceiptStatus.model_validate(each.status))
        except ValidationError:
            # Only proxies write these; what cannot be read counts for nothing.
            continue
    return found
