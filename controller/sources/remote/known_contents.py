"""Which content a server sent last: what is unchanged is neither parsed nor judged again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

if TYPE_CHECKING:
    from controller.api.objects.meta import ObjectKey
    from controller.delivery.remote_answers import RemoteRequest

_MOST: Final = 10_000
"""Objects of which a digest is kept."""


@dataclass(frozen=True, slots=True)
class KnownContents:
    """A digest of the newest content of each object."""

    _digests: LRUCache[ObjectKey, bytes] = field(default_factory=lambda: LRUCache(_MOST))

    def is_in_force(self, request: RemoteRequest, content: bytes) -> bool:
        """Whether it is the content of the last request, whose flags are in force as a whole."""
        digest = hashlib.blake2b(content, digest_size=32).digest()
        # Without a version, what was fetched last was bad, or is of another provider.
        known = bool(request.version) and self._digests.get(request.key) == digest
        self._digests[request.key] = digest
        return known
