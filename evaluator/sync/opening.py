"""Creates sources from their configurations."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evaluator.sync.config import BLOBS, FILES, InvalidSourceError, Provider, SourceConfig
from evaluator.sync.file_source import FileSource, no_file
from evaluator.sync.schedule import DEFAULT_TIMING, SourceTiming
from evaluator.sync.source import PolledSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evaluator.sync.source import Companion, SyncSource

_random: Final = secrets.SystemRandom().random

_CREDENTIALS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
"""Headers that identify the client, and are replaced from time to time; any other may affect the answer."""
_ACCOUNTS: Final = ("AZURE_STORAGE_ACCOUNT", "AWS_ENDPOINT", "AWS_ENDPOINT_URL")
"""Variables that name the account of an object store's URI."""


def open_sources(
    configs: Sequence[SourceConfig],
    *,
    clock: Callable[[], float],
    companion: Callable[[str, str], Companion] | None = None,
    timing: SourceTiming = DEFAULT_TIMING,
) -> tuple[SyncSource, ...]:
    """Return a source for each configuration, in order, with unique names; no request is sent yet. clock:
    Unix seconds. companion: makes, of a source's name and selector, the
    Companion of a gRPC source. Raises InvalidSourceError.
    """

    def open_source(name: str, identity: str, config: SourceConfig) -> SyncSource:
        source = open_plain(name, identity, config)
        if config.verify_key and isinstance(source, FileSource | PolledSource):
            # Imported here: it loads cryptography, and most sources are not signed.
            from evaluator.sync.signed import Verifier  # noqa: PLC0415

            source.verifier = Verifier(config.verify_key)
        return source

    def open_plain(name: str, identity: str, config: SourceConfig) -> SyncSource:
        if config.provider in FILES:
            return _open_file(name, identity, config, clock, timing)
        if config.provider is Provider.GRPC:
            from evaluator.sync.grpc_source import GrpcSource  # noqa: PLC0415

            beside = None if companion is None else companion(name, config.selector)
            return GrpcSource(name, identity, config, companion=beside, timing=timing)
        from evaluator.sync.schedule import Schedule  # noqa: PLC0415

        schedule = Schedule(config, _random)
        if config.provider is Provider.HTTP:
            from evaluator.sync.http_source import HttpSource  # noqa: PLC0415

            return HttpSource(name, identity, config, schedule, clock)
        from evaluator.sync.blob_source import BlobSource  # noqa: PLC0415

        return BlobSource(name, identity, config, schedule, clock)

    return tuple(map(open_source, names(configs), identities(configs), configs))


def names(configs: Sequence[SourceConfig]) -> tuple[str, ...]:
    """Return each source's name: its URI without secrets, with its selector or a number if that is taken."""
    taken: dict[str, None] = {}
    for config in configs:
        name = config.name
        if name in taken and config.selector:
            name = f"{name}#{config.selector}"
        plain, number = name, 2
        while name in taken:
            name, number = f"{plain}#{number}", number + 1
        taken[name] = None
    return tuple(taken)


def identities(configs: Sequence[SourceConfig]) -> tuple[str, ...]:
    """Return an identity of each source's content, the same at each start: a hash of all that may affect its
    answers. Credentials are left out, so that a new token finds the flags of the old one, unless nothing else
    distinguishes two sources.
    """
    plain = [_sum(_request_fields(config)) for config in configs]
    taken: dict[str, None] = {}
    for config, asked in zip(configs, plain, strict=True):
        first = asked if plain.count(asked) == 1 else _sum([asked, _client_fields(config)])
        identity, number = first, 2
        while identity in taken:
            identity, number = f"{first}#{number}", number + 1
        taken[identity] = None
    return tuple(taken)


def _request_fields(config: SourceConfig) -> object:
    """Return all fields that may affect the answer; may hold secrets."""
    # What was served before it had to be signed is not served once it has to.
    signed = ("signed", config.verify_key) if config.verify_key else ()
    if config.provider in FILES:
        return "file", os.path.abspath(Path(config.uri).expanduser()), *signed
    headers = {key.lower(): value for key, value in config.headers.items()}
    selecting = {key: value for key, value in headers.items() if key not in _CREDENTIALS}
    uri = re.sub(r"(?<=://)[^/?#]*@", "", config.uri)
    accounts = [os.environ.get(name, "") for name in _ACCOUNTS] if config.provider in BLOBS else []
    return config.provider, uri, config.selector, selecting, accounts, *signed


def _client_fields(config: SourceConfig) -> object:
    """Return all fields that identify the client."""
    oauth = config.oauth
    return (
        config.uri, dict(config.headers), config.auth_header, config.bearer_token,
        config.bearer_token_file, config.client_cert_path, config.provider_id,
        None if oauth is None else (oauth.token_url, oauth.client_id, oauth.folder),
    )  # fmt: skip


def _sum(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _open_file(
    name: str, identity: str, config: SourceConfig, clock: Callable[[], float], timing: SourceTiming
) -> SyncSource:
    path, watch = Path(config.uri).expanduser(), config.provider is not Provider.FILEINFO
    with contextlib.suppress(OSError):
        if not (path.is_dir() or path.is_file()) and path.exists():
            raise InvalidSourceError(f"file:{name}: {no_file(path.stat())}")
    return FileSource(name, identity, path, clock, watch=watch, timing=timing)
