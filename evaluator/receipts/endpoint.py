"""The server that receives reports on a source that is not followed from it, such as a file."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from evaluator.sync.source import SourceFault
from evaluator.sync.sources.connector import Connector

if TYPE_CHECKING:
    from evaluator.sync.config import SourceConfig
    from evaluator.sync.source import Companion

log = logging.getLogger(__name__)

_AGAIN: Final = 60.0
"""Seconds after which a server that takes no receipts, or cannot be called, is tried again."""


class Endpoint:
    """Reports on a connection of its own."""

    def __init__(self, config: SourceConfig, reporter: Companion) -> None:
        """Raises InvalidSourceError for a target that cannot be reached."""
        self._name = config.name
        self._connector = Connector(config.name, config)
        self._reporter = reporter

    async def run(self) -> None:
        """Report until cancelled, then say goodbye. Never fails for what the server does."""
        while True:
            try:
                await self._report()
                log.warning("receipts are not sent: %s does not accept them", self._name)
            except SourceFault as fault:
                log.warning("receipts are not sent: %s", fault.message)
            await asyncio.sleep(_AGAIN)

    async def _report(self) -> None:
        """Report until the server refuses receipts. Raises SourceFault."""
        channel = await self._connector.connect()
        ask = partial(self._connector.ask, channel)
        try:
            await self._reporter.run(ask)
        finally:
            await self._reporter.leave(ask)
            await channel.close(None)
