"""The configuration of one source: the fields of flagd's `--sources`
(https://flagd.dev/reference/sync-configuration/) and some of ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from evaluator.flags.model import EMPTY
from evaluator.flags.text import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_INTERVAL: Final = 86_400
"""Most seconds between two polls; flagd's."""


class InvalidSourceError(ValueError):
    """A source's configuration cannot be used; the text says why and what to write, and holds no secret."""


class Provider(StrEnum):
    """The kind of a source, with flagd's names."""

    FILE = "file"
    FSNOTIFY = "fsnotify"
    """A file, by inotify."""
    FILEINFO = "fileinfo"
    """A file, by polling alone."""
    HTTP = "http"
    GRPC = "grpc"
    GCS = "gcs"
    AZBLOB = "azblob"
    S3 = "s3"


FILES: Final = frozenset({Provider.FILE, Provider.FSNOTIFY, Provider.FILEINFO})
BLOBS: Final = frozenset({Provider.GCS, Provider.AZBLOB, Provider.S3})


@dataclass(frozen=True, slots=True)
class OAuth:
    """OAuth 2.0 client credentials, sent in the form's fields as flagd sends them."""

    token_url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    folder: str = ""
    """Folder with files `client-id` and `client-secret` to read instead, reread when they change."""
    reload_seconds: int = 0
    """Least seconds between two reads of the folder."""


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """One source. Fields that the provider does not use are refused when read from JSON."""

    uri: str = field(repr=False)
    """A path, a URL, or a gRPC target; the name by which `source=` selects."""
    provider: Provider
    selector: str = ""
    """gRPC: selects among the peer's flags."""
    provider_id: str = ""
    """gRPC: name of this client."""
    bearer_token: str = field(default="", repr=False)
    bearer_token_file: str = ""
    """Read again for every request; ours."""
    auth_header: str = field(default="", repr=False)
    """The whole value of `Authorization`."""
    headers: Mapping[str, str] = field(default_factory=lambda: EMPTY, repr=False)
    """HTTP headers or gRPC metadata."""
    interval: float = 5.0
    """Seconds between polls of an HTTP or object store source."""
    interval_seed: str = ""
    """Polls fall on multiples of the interval on the clock, shifted by a hash of this, as flagd's."""
    cron: str = ""
    """The times to poll, in place of an interval: five fields, in UTC; flagd has no such field."""
    timeout: float = 10.0
    """Seconds for one request, or for a stream's first message."""
    cert_path: str = ""
    """Certificates (PEM) to trust instead of the system's."""
    client_cert_path: str = ""
    """Our own certificate, for a peer that asks for it; ours."""
    client_key_path: str = ""
    tls: bool = False
    """gRPC: encrypt."""
    max_msg_size: int = 0
    """gRPC: bytes of a message; 0: the bound of all sources."""
    oauth: OAuth | None = None
    verify_key: str = ""
    """File with the public keys (PEM) one of which must have signed the content; ours."""

    @property
    def name(self) -> str:
        """The URI without a password or token: for logs, metrics and selectors."""
        return display_uri(self.uri)


def display_uri(uri: str) -> str:
    """Return the URI without secrets: without user information, and without the values of a URL's query."""
    if "://" not in uri:
        return uri
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri.partition("://")[0] + "://…"
    query = re.sub(r"=[^&]*", "=…", parts.query)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, ""))


def check(config: SourceConfig) -> SourceConfig:
    """Return the configuration if it is valid. Raises InvalidSourceError."""
    where = f"the source {quote(config.name)}"
    if config.auth_header and (config.bearer_token or config.bearer_token_file):
        raise InvalidSourceError(f"{where}: authHeader and bearerToken exclude each other")
    if not 0 < config.interval <= MAX_INTERVAL:
        raise InvalidSourceError(f"{where}: interval is 1 to {MAX_INTERVAL} seconds")
    if bool(config.client_cert_path) != bool(config.client_key_path):
        raise InvalidSourceError(f"{where}: clientCertPath and clientKeyPath go together")
    if not all(text.isascii() and text.isprintable() for text in _sent_values(config)):
        raise InvalidSourceError(f"{where}: a header has a line break, or is not ASCII")
    for name in _given_fields(config):
        if config.provider not in _USED_BY[name]:
            users = " or ".join(sorted({provider.value for provider in _USED_BY[name]}))
            raise InvalidSourceError(
                f"{where}: a source of provider {config.provider} has no {json_key(name)}; {users} has"
            )
    try:
        parts = urlsplit(config.uri if config.provider in _POLLED else "")
    except ValueError as error:
        raise InvalidSourceError(f"{where}: its URL cannot be read: {error}") from None
    if config.provider in BLOBS:
        scheme = {Provider.GCS: "gs"}.get(config.provider, config.provider.value)
        if parts.scheme != scheme or not parts.netloc or not parts.path.strip("/"):
            raise InvalidSourceError(f"{where}: write {scheme}://bucket/path/to/flags.json")
    if config.provider is Provider.HTTP and not re.match(r"https?://[^/]", config.uri):
        raise InvalidSourceError(f"{where}: write http://… or https://…")
    if config.provider in FILES and (not config.uri or "\0" in config.uri):
        raise InvalidSourceError("a file source needs its path: file:/etc/flags.json")
    return config


def _given_fields(config: SourceConfig) -> list[str]:
    """Return the fields that differ from their defaults."""
    plain = SourceConfig("", config.provider)
    return [name for name in _USED_BY if getattr(config, name) != getattr(plain, name)]


def _sent_values(config: SourceConfig) -> list[str]:
    return [
        config.auth_header, config.bearer_token,
        *config.headers, *config.headers.values(),
    ]  # fmt: skip


def json_key(name: str) -> str:
    """Return the JSON key of a field of SourceConfig or OAuth: `provider_id` is `providerID`."""
    if name in _SPELLED:
        return _SPELLED[name]
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


_SPELLED: Final = {
    "provider_id": "providerID", "timeout": "timeoutS", "client_id": "clientID", "token_url": "tokenURL",
    "reload_seconds": "reloadDelayS",
}  # fmt: skip
_HTTP: Final = frozenset({Provider.HTTP})
_GRPC: Final = frozenset({Provider.GRPC})
_POLLED: Final = _HTTP | BLOBS
_NETWORK: Final = _POLLED | _GRPC
_USED_BY: Final[Mapping[str, frozenset[Provider]]] = {
    "selector": _GRPC, "provider_id": _GRPC, "max_msg_size": _GRPC, "tls": _GRPC,
    "bearer_token": _HTTP | _GRPC, "bearer_token_file": _HTTP | _GRPC, "auth_header": _HTTP | _GRPC,
    "headers": _HTTP | _GRPC, "cert_path": _HTTP | _GRPC, "client_cert_path": _HTTP | _GRPC,
    "client_key_path": _HTTP | _GRPC, "oauth": _HTTP, "interval": _POLLED, "interval_seed": _POLLED,
    "cron": _POLLED, "timeout": _NETWORK, "verify_key": FILES | _POLLED,
}  # fmt: skip
