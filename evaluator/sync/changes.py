"""What a source says, without repetition: content that it delivers again is Unchanged."""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import aclosing
from typing import TYPE_CHECKING

from evaluator.sync.source import UNCHANGED, Delivery

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from evaluator.sync.source import SourceEvent, SyncSource


class Changes:
    """The events of one source, compared from one call of `deliveries` to the next."""

    def __init__(self, source: SyncSource) -> None:
        self._source = source
        self._last: bytes | None = None

    async def events(self) -> AsyncGenerator[SourceEvent, None]:
        """As `SyncSource.deliveries`. The same content is Unchanged, whatever came in between."""
        async with aclosing(self._source.deliveries()) as deliveries:
            async for event in deliveries:
                if isinstance(event, Delivery):
                    content = await asyncio.to_thread(fingerprint, event)
                    if content == self._last:
                        yield UNCHANGED
                        continue
                    self._last = content
                yield event


def fingerprint(delivery: Delivery) -> bytes:
    """Equal for deliveries that say the same."""
    whole = hashlib.sha256(json.dumps(dict(delivery.context), sort_keys=True).encode())
    for name, content in delivery.documents:
        whole.update(f"\n{name}\n{len(content)}\n".encode(errors="surrogatepass"))
        whole.update(content)
    return whole.digest()
