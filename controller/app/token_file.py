"""The bearer tokens of the artifact server, re-read when their file changes."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from controller.app.settings.process_settings import InvalidSettingError
from evaluator.host import durable

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
"""Seconds between two reads of the file, as with certificates."""
MOST_BYTES: Final = 65_536


class TokenFile:
    """Tokens, one a line. A file that goes bad later leaves the last good ones in use, not none at all."""

    def __init__(self, path: str) -> None:
        """`path`: empty for no tokens. Blocks. Raises InvalidSettingError for a file that has none."""
        self._path = path
        self._fault: str | None = None
        self.tokens = _read(Path(path)) if path else ()
        """In the file's order."""

    def first(self) -> str | None:
        """The token that other processes of ours are shown."""
        return self.tokens[0] if self.tokens else None

    def refresh(self) -> None:
        """Take over what the file holds now. Blocks. A fault is logged once, until it is another one."""
        try:
            tokens = _read(Path(self._path))
        except InvalidSettingError as error:
            if self._fault != str(error):
                self._fault = str(error)
                log.warning("%s; the tokens read before stay in use", error)
            return
        self._fault = None
        if tokens != self.tokens:
            self.tokens = tokens
            log.info("tokens re-read from %s: %s", self._path, len(tokens))

    async def follow(self, pause: float = POLL_SECONDS) -> None:
        """Read the file again every `pause` seconds, until cancelled."""
        while self._path:
            await asyncio.sleep(pause)
            await asyncio.to_thread(self.refresh)


def _read(path: Path) -> tuple[str, ...]:
    try:
        content = durable.read_file(path, MOST_BYTES)
        lines = content.decode("ascii").splitlines()
    except OSError as error:
        raise InvalidSettingError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        # Without the text: some of it is secret.
        raise InvalidSettingError(f"{path}: byte {error.start} is not ASCII") from None
    if len(content) > MOST_BYTES:
        raise InvalidSettingError(f"{path}: larger than {MOST_BYTES} bytes")
    tokens = tuple(line.strip() for line in lines if line.strip())
    if not tokens:
        raise InvalidSettingError(f"{path} contains no token; write one token per line")
    return tokens
