"""Keeps the certificates of one server current: in the Secret that its pods mount, and, by the leader, in
what its clients trust.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from controller.pods.certificates.renewal import certificates_of, renew
from controller.runtime.reconciling.setbacks import Setback

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from controller.runtime.process.leadership import Role

log = logging.getLogger(__name__)

STARTING: Final = "starting"
KEPT: Final = "kept"
ABSENT: Final = "not installed"


class CertificateStore(Protocol):
    """Stores certificates for all replicas."""

    now: datetime
    """The cluster's time at the last read: clients verify by it even if our clock is wrong."""

    async def read(self) -> Mapping[str, bytes] | None:
        """Return the Secret's content, or None if there is no such Secret. Raises Setback."""

    async def write(self, data: Mapping[str, bytes]) -> bool:
        """Replace what `read` returned last; return False if another replica was faster. Raises Setback."""

    async def trust(self, authorities: bytes) -> None:
        """Make clients trust these authorities and no others. Raises Setback."""


@dataclass(slots=True)
class CertificateRotation:
    """Renews the certificates on one replica. Run `check` with `forever`."""

    owner: str
    """The owner of the certificates, for the log."""
    store: CertificateStore
    names: Sequence[str]
    role: Role
    pause: float = 5.0
    """Seconds from one check to the next; each makes two small reads."""
    state: str = STARTING
    """The state for /readyz: starting, kept, not installed, or why nothing can be read."""
    _complaint: str = field(default="")

    async def check(self) -> None:
        """Compare the stored and trusted certificates once."""
        try:
            state, complaint = await self._settle(), ""
        except Setback as setback:
            complaint = setback.message
            state = self.state if self.state == KEPT else complaint
        if complaint not in {"", self._complaint}:
            log.warning("certificates of %s cannot be kept: %s", self.owner, complaint)
        self._complaint = complaint
        if state != self.state:
            log.info("certificates of %s: %s", self.owner, state)
            self.state = state
        await asyncio.sleep(self.pause)

    async def _settle(self) -> str:
        data = await self.store.read()
        if data is None:
            return ABSENT
        stored = certificates_of(data)
        wanted = renew(stored, self.names, self.store.now)
        if wanted != stored and not await self.store.write(wanted.data()):
            # The next check reads what the faster replica wrote.
            return self.state
        if self.role.leading:
            await self.store.trust(wanted.authorities)
        return KEPT
