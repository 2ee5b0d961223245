"""An object in S3, Google Cloud Storage or Azure, polled with its ETag."""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from evaluator.sync.config import InvalidSourceError, Provider, SourceConfig
from evaluator.sync.source import (
    MAX_BYTES,
    SIGNATURE_BYTES,
    SUFFIX,
    UNCHANGED,
    Delivery,
    PolledSource,
    SourceEvent,
    SourceFault,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from obstore import GetOptions, GetResult
    from obstore.store import ClientConfig

    from evaluator.sync.schedule import Schedule

try:
    import obstore
    from obstore.exceptions import (
        BaseError,
        NotFoundError,
        NotModifiedError,
        PermissionDeniedError,
        UnauthenticatedError,
    )
    from obstore.store import AzureStore, GCSStore, S3Store
except ImportError as missing:
    raise InvalidSourceError(
        "sources in S3, GCS and Azure need the package obstore, which the evaluator's image leaves out: "
        "pip install obstore"
    ) from missing


_CHUNK: Final = 1024 * 1024
_STATUS: Final = re.compile(r"status code: (\d{3})")
_S3_OPTIONS: Final = {
    "region", "endpoint", "use_path_style", "s3ForcePathStyle", "disable_https", "disableSSL"
}  # fmt: skip
"""Accepted keys of the URI's query, as in gocloud.dev's s3blob."""


class BlobSource(PolledSource):
    """Follows one object."""

    def __init__(
        self, name: str, identity: str, config: SourceConfig, schedule: Schedule, clock: Callable[[], float]
    ) -> None:
        """clock: Unix seconds. Raises InvalidSourceError."""
        super().__init__(name, identity, schedule, clock)
        self._timeout = config.timeout
        self._key = urlsplit(config.uri).path.strip("/")
        self._store = open_store(config)

    async def ask(self) -> SourceEvent:
        """See PolledSource."""
        try:
            async with asyncio.timeout(self._timeout):
                options: GetOptions = {"if_none_match": self.etag} if self.etag else {}
                answer = await obstore.get_async(self._store, self._key, options=options)
                content = await self._read(answer, MAX_BYTES)
        except NotModifiedError:
            return UNCHANGED
        except TimeoutError:
            text = f"{self.name}: no answer within {self._timeout:g} s"
            raise SourceFault("Timeout", text) from None
        except (BaseError, OSError) as error:
            raise _fault(self.name, error) from None
        self.etag = answer.meta["e_tag"]
        return Delivery(((self.name.partition("?")[0], content),))

    async def ask_signature(self) -> bytes:
        """See PolledSource: the object with `.sig` behind its key."""
        try:
            async with asyncio.timeout(self._timeout):
                answer = await obstore.get_async(self._store, f"{self._key}{SUFFIX}")
                return await self._read(answer, SIGNATURE_BYTES)
        except (NotFoundError, FileNotFoundError):
            return b""
        except TimeoutError:
            text = f"{self.name}: its signature: no answer within {self._timeout:g} s"
            raise SourceFault("Timeout", text) from None
        except (BaseError, OSError) as error:
            raise _fault(f"{self.name}: its signature", error) from None

    async def _read(self, answer: GetResult, most: int) -> bytes:
        size = answer.meta["size"]
        if size > most:
            raise SourceFault("TooLarge", f"{self.name}: {size} bytes are more than {most}")
        content = bytearray()
        async for chunk in answer.stream(_CHUNK):
            content += chunk
            if len(content) > most:
                raise SourceFault("TooLarge", f"{self.name}: it is more than {most} bytes")
        return bytes(content)


def open_store(config: SourceConfig) -> Any:
    """Open the bucket of a source, with the environment's credentials. Raises InvalidSourceError."""
    parts = urlsplit(config.uri)
    given = dict(parse_qsl(parts.query))
    unknown = sorted(given.keys() - (_S3_OPTIONS if config.provider is Provider.S3 else set()))
    if unknown:
        raise InvalidSourceError(f"the source {config.name}: {unknown[0]} is not an option of this source")
    client: ClientConfig = {"timeout": f"{config.timeout:g}s", "connect_timeout": "5s"}
    # No retries here: the follower decides when to try again.
    retry: Any = {"max_retries": 0}
    try:
        if config.provider is Provider.GCS:
            return GCSStore(parts.netloc, client_options=client, retry_config=retry)
        if config.provider is Provider.AZBLOB:
            account = os.environ.get("AZURE_STORAGE_ACCOUNT", "").strip()
            if not account:
                raise InvalidSourceError(
                    f"the source {config.name}: set AZURE_STORAGE_ACCOUNT to the account's name"
                )
            return AzureStore(parts.netloc, account_name=account, client_options=client, retry_config=retry)
        return _s3(parts.netloc, given, client, retry)
    except (BaseError, ValueError) as error:
        if isinstance(error, InvalidSourceError):
            raise
        raise InvalidSourceError(f"the source {config.name}: {str(error).partition(chr(10))[0]}") from None


def _s3(bucket: str, given: dict[str, str], client: ClientConfig, retry: Any) -> S3Store:
    settings: dict[str, Any] = {}
    if region := given.get("region"):
        settings["region"] = region
    if endpoint := given.get("endpoint"):
        plain = _is_true(given, "disable_https", "disableSSL")
        if "://" not in endpoint:
            endpoint = f"{'http' if plain else 'https'}://{endpoint}"
        settings["endpoint"] = endpoint
        client = {**client, "allow_http": endpoint.startswith("http://")}
    elif not _is_true(given, "use_path_style", "s3ForcePathStyle"):
        settings["virtual_hosted_style_request"] = True
    return S3Store(bucket, config=settings, client_options=client, retry_config=retry)  # type: ignore[arg-type]  # keys are of S3Config


def _is_true(given: dict[str, str], *names: str) -> bool:
    return any(given.get(name, "").lower() in {"true", "1"} for name in names)


def _fault(name: str, error: Exception) -> SourceFault:
    """Return a fault without obstore's own text, which may have a signed URL and always has a time."""
    if isinstance(error, NotFoundError | FileNotFoundError):
        return SourceFault("NotFound", f"{name}: no such object")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return SourceFault("Unauthorized", f"{name}: the credentials are refused")
    status = _STATUS.search(str(error))
    if status is not None:
        return SourceFault("Refused", f"{name}: the store answered {status[1]}")
    return SourceFault("Unreachable", f"{name}: the store cannot be reached")
