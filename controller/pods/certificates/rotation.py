"""Keeps the certificates of one server current: in the Secret that replicas share, on our port where it is
ours, and, by the leader, in what its clients trust.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from controller.pods.certificates.renewal import Certificates, certificates_of, renewed
from controller.runtime.reconciling.setbacks import Setback

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

log = logging.getLogger(__name__)

LOOK: Final = 5.0
"""Seconds from one look to the next: two small reads."""
STARTING: Final = "starting"
SERVING: Final = "serving"
KEPT: Final = "kept"
"""The certificates are current, and another process serves them."""
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
    """The part of one replica in renewing certificates. `look` is for `forever`."""

    what: str
    """The owner of the certificates, for the log."""
    store: CertificateStore
    names: Sequence[str]
    leading: Callable[[], bool]
    serve: Callable[[Certificates], None] | None = None
    """Makes our port serve these from now on; called in a thread. None: another process serves them."""
    state: str = STARTING
    """The state for /readyz: starting, serving or kept, not installed, or why nothing can be read."""
    _served: Certificates | None = field(default=None)
    _complaint: str = field(default="")

    async def look(self) -> None:
        """Compare the stored, served and trusted certificates once."""
        try:
            state, complaint = await self._settle(), ""
        except Setback as setback:
            complaint = setback.message
            # The certificates that were served before stay in use.
            state = self.state if self.state in {SERVING, KEPT} else complaint
        if complaint not in {"", self._complaint}:
            log.warning("certificates of %s cannot be kept: %s", self.what, complaint)
        self._complaint = complaint
        if state != self.state:
            log.info("%s: %s", self.what, state)
            self.state = state
        await asyncio.sleep(LOOK)

    async def _settle(self) -> str:
        data = await self.store.read()
        if data is None:
            return ABSENT
        found = certificates_of(data)
        wanted = renewed(found, self.names, self.store.now)
        if wanted != found and not await self.store.write(wanted.data()):
            # The next look reads what the faster replica wrote.
            return self.state
        if self.leading():
            await self.store.trust(wanted.authorities)
        if self.serve is None:
            return KEPT
        if wanted != self._served:
            await asyncio.to_thread(self.serve, wanted)
            self._served = wanted
        return SERVING
