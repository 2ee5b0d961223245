"""The server that receives receipts about a source that is not delivered by that server, such as a file."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from evaluator.sync.grpc_source import Connector
from evaluator.sync.schedule import DEFAULT_TIMING
from evaluator.sync.source import Companion, SourceFault

if TYPE_CHECKING:
    from evaluator.sync.config import SourceConfig

log = logging.getLogger(__name__)

_AGAIN: Final = 60.0
"""Seconds until a server that refused receipts or was unreachable is tried again."""


class ReceiptEndpoint:
    """Sends receipts on its own connection."""

    def __init__(self, config: SourceConfig, reporter: Companion) -> None:
        """Raises InvalidSourceError for a target that cannot be reached."""
        self._name = config.name
        self._connector = Connector(config.name, config, DEFAULT_TIMING)
        self._reporter = reporter

    async def run(self) -> None:
        """Send receipts until cancelled, then a goodbye. Errors of the server never end it."""
        while True:
            try:
                await self._report()
                log.warning("receipts are not sent: %s does not accept them", self._name)
            except SourceFault as fault:
                log.warning("receipts are not sent: %s", fault.message)
            await asyncio.sleep(_AGAIN)

    async def _report(self) -> None:
        """Send receipts until the server refuses them. Raises SourceFault."""
        channel = await self._connector.connect()
        ask = partial(self._connector.ask, channel)
        try:
            await self._reporter.run(ask)
        finally:
            await self._reporter.leave(ask)
            await channel.close(None)
