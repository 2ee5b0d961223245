"""Credentials that a source sends to its peer; secrets in files are reread, as they rotate."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from evaluator.host import durable
from evaluator.sync.source import SourceFault

if TYPE_CHECKING:
    from evaluator.sync.config import SourceConfig

_MAX_SECRET: Final = 64 * 1024


def authorization(config: SourceConfig) -> str | None:
    """Return the value of `Authorization` of configuration, token file or URL. Blocks; raises SourceFault."""
    if config.auth_header:
        return config.auth_header
    if config.bearer_token_file:
        return f"Bearer {read_secret(Path(config.bearer_token_file))}"
    if config.bearer_token:
        return f"Bearer {config.bearer_token}"
    information, at, _ = urlsplit(config.uri).netloc.rpartition("@") if "://" in config.uri else ("", "", "")
    if not at:
        return None
    return f"Basic {base64.b64encode(unquote(information).encode()).decode()}"


def without_credentials(url: str) -> str:
    """Return the URL of the request: user information before the `@` is sent in a header."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def read_secret(path: Path) -> str:
    """Return the text of a file without surrounding white space. Blocks; raises SourceFault."""
    try:
        text = durable.read_file(path, _MAX_SECRET).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or "it is not text"
        raise SourceFault("Credentials", f"{path} cannot be read: {cause}") from None
    if not text or len(text) > _MAX_SECRET or any(sign in text for sign in "\r\n\0"):
        raise SourceFault("Credentials", f"{path} is not one line of text")
    return text
