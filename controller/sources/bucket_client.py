"""Lists and fetches a bucket by obstore; imported only where one is read, as that takes time and memory."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any, Final

import obstore
from obstore.exceptions import BaseError, InvalidPathError
from obstore.store import AzureStore, GCSStore, S3Store

from controller.runtime.plain_text import one_line, redact
from controller.runtime.setbacks import Failed, Stalled
from controller.sources.bucket_listing import Listed
from controller.sources.bucket_place import Bucket, Scheme
from controller.sources.source_files import create_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from obstore import ObjectMeta

    from controller.sources.backend import TreeLimits


_METADATA: Final = "169.254.169.254"
"""The server that gives a machine in a cloud its identity, asked where no credentials are set."""
_READ: Final = 20_000
"""Characters; a store may answer with any amount."""
_SHOWN: Final = 200
_STATUS: Final = re.compile(r"status code: (\d{3})|\bstatus: (\d{3})\b")
_CODE: Final = re.compile(r"<Code>([^<]{1,100})</Code>")
_CAUSE: Final = re.compile(r'(?:message|error): "([^"\n]{1,200})"|InvalidCertificate\(\s*(\w{1,50})')
_PATH: Final = re.compile(r'Path "(.{1,1024}?)"[ :]', re.DOTALL)
_KEY: Final = re.compile(
    r"Unable to (?:open|decode) service account|Invalid (?:Access Key|RSA key)|ReadPem|MissingSasComponent"
)
"""Words for credentials that obstore cannot use."""

_BY_CODE: Final = {
    "NoSuchBucket": "BucketNotFound",
    "ContainerNotFound": "BucketNotFound",
    "ExpiredToken": "AuthenticationFailed",
    "RequestTimeTooSkewed": "AuthenticationFailed",
}
_CODES: Final = frozenset(
    {
        *_BY_CODE, "AccessDenied", "AccountProblem", "AllAccessDisabled", "AuthenticationFailed",
        "AuthorizationFailure", "AuthorizationHeaderMalformed", "AuthorizationPermissionMismatch",
        "BlobNotFound", "ExpiredTokenException", "IDPRejectedClaim", "InternalError", "InvalidAccessKeyId",
        "InvalidArgument", "InvalidBucketName", "InvalidIdentityToken", "InvalidObjectState",
        "InvalidRequest", "InvalidSecurity", "InvalidToken", "MethodNotAllowed", "MissingSecurityHeader",
        "NoSuchKey", "NotImplemented", "OperationTimedOut", "PermanentRedirect", "PreconditionFailed",
        "PublicAccessNotPermitted", "RequestTimeout", "ServerBusy", "ServiceUnavailable",
        "SignatureDoesNotMatch", "SlowDown", "TemporaryRedirect", "TokenRefreshRequired",
        "UserProjectMissing", "XAmzContentSHA256Mismatch",
    }
)  # fmt: skip
"""What is shown of an answer: these words of S3, of the services that give keys, of Azure and of Google."""
_DENIED: Final = frozenset({"401", "403", "407"})


def explain(complaint: str, secrets: Iterable[str]) -> tuple[str, str]:
    """(reason, what happened) of the text of one of obstore's exceptions; no `secrets` are in it."""
    text = complaint[:_READ]
    if status := _STATUS.search(text):
        return _answer_failure(status[1] or status[2], text)
    if _KEY.search(text):
        return "AuthenticationFailed", "there is no key or token in a form that the store takes"
    if _METADATA in text:
        return "AuthenticationFailed", "there are no credentials"
    cause = _CAUSE.search(text)
    detail = _line((cause[1] or cause[2]) if cause else "", secrets)
    if "InvalidCertificate" in text or "certificate" in detail.lower():
        return (
            "CertificateRefused",
            f"the store's certificate is not trusted: {detail or 'it is not valid'}",
        )
    if "Timeout" in text or "TimedOut" in text:
        return "Timeout", "the store does not answer"
    return "BucketOperationFailed", f"the store cannot be reached: {detail or 'the connection failed'}"


def impossible_key(complaint: str) -> str:
    """The key that cannot be a file's name, of the text of obstore's InvalidPathError."""
    match = _PATH.search(complaint[:_READ])
    return _line(match[1], ()) if match else "a key"


def _answer_failure(status: str, text: str) -> tuple[str, str]:
    match = _CODE.search(text)
    code = match[1] if match and match[1] in _CODES else ""
    otherwise = "AuthenticationFailed" if status in _DENIED else "BucketOperationFailed"
    return _BY_CODE.get(code, otherwise), f"the store answered {status} {code}".rstrip()


def _line(text: str, secrets: Iterable[str]) -> str:
    return one_line(redact(text, secrets), _SHOWN).strip()


_STORES: Final[dict[Scheme, tuple[Any, tuple[str, ...]]]] = {
    # The second one is what the environment may name, which would win over the first.
    Scheme.S3: (S3Store, ("endpoint", "aws_endpoint_url_s3")),
    Scheme.GOOGLE: (GCSStore, ("base_url",)),
    Scheme.AZURE: (AzureStore, ("endpoint",)),
}
"""obstore's class, and its names for the endpoint."""
AT_ONCE: Final = 16
_CHUNK: Final = 256 * 1024
_PAGE: Final = 1000
_MOST_LISTED: Final = 100_000
"""Most keys of a folder that are searched for the prefix."""


async def list_objects(bucket: Bucket, limits: TreeLimits) -> list[Listed]:
    """List all objects with the prefix. Raises Setback."""
    # obstore knows prefixes that are whole folders; any other one is searched for in its folder.
    folder = bucket.prefix.rpartition("/")[0]
    entries: list[Listed] = []
    seen = 0
    with _raise_setbacks(bucket):
        async for page in obstore.list(_open(bucket), folder or None, chunk_size=_PAGE):
            entries += [_entry(bucket, entry) for entry in page if entry["path"].startswith(bucket.prefix)]
            seen += len(page)
            if len(entries) > limits.entries or seen > _MOST_LISTED:
                most = limits.entries if len(entries) > limits.entries else _MOST_LISTED
                raise Stalled(
                    "LimitExceeded", f"{bucket.display_name}: more than {most} objects; set a prefix"
                )
    return entries


async def fetch_objects(bucket: Bucket, objects: Sequence[Listed], into: Path) -> None:
    """Write `objects` below `into` by their whole keys. Raises Setback (Failed RevisionGone), OSError."""
    waiting = iter(objects)

    async def work(store: Any) -> None:
        for wanted in waiting:
            await _fetch(bucket, store, wanted, into)

    with _raise_setbacks(bucket):
        store = _open(bucket)
        tasks = [asyncio.create_task(work(store)) for _ in range(AT_ONCE)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _fetch(bucket: Bucket, store: Any, wanted: Listed, into: Path) -> None:
    path = into.joinpath(*wanted.key.split("/"))
    await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
    with create_file(path) as file:
        # The object that a console creates for an empty folder cannot be fetched by obstore's name of it.
        if not wanted.size:
            return
        try:
            answer = await obstore.get_async(store, wanted.key)
        except FileNotFoundError:
            raise _change(bucket, wanted) from None
        if _entry(bucket, answer.meta) != wanted:
            raise _change(bucket, wanted)
        left = wanted.size
        async for chunk in answer.stream(_CHUNK):
            left -= len(chunk)
            if left < 0:
                break
            await asyncio.to_thread(file.write, chunk)
        if left:
            raise _change(bucket, wanted)


def _entry(bucket: Bucket, meta: ObjectMeta) -> Listed:
    # Some servers quote it in one answer and not in another.
    etag = (meta["e_tag"] or "").strip('"')
    if not etag:
        message = (
            f"{bucket.display_name}: the store sends no ETag of {meta['path']}, so no change would be noticed"
        )
        raise Failed("BucketOperationFailed", message)
    return Listed(meta["path"], etag, meta["size"])


def _change(bucket: Bucket, wanted: Listed) -> Failed:
    return Failed("RevisionGone", f"{bucket.display_name}: {wanted.key} changed while it was fetched")


def _open(bucket: Bucket) -> Any:
    kind, fields = _STORES[bucket.store]
    given: dict[str, Any] = {
        "config": {**bucket.config, **{name: bucket.endpoint for name in fields if bucket.endpoint}},
        "client_options": {**bucket.client, "allow_http": bucket.endpoint.startswith("http://")},
        # The caller decides when to try again.
        "retry_config": {"max_retries": 0},
    }
    if bucket.access is not None:
        key, secret = bucket.access
        pair = {"access_key_id": key, "secret_access_key": secret, "token": None, "expires_at": None}
        given["credential_provider"] = lambda: pair
    return kind(bucket.name, **given)


@contextlib.contextmanager
def _raise_setbacks(bucket: Bucket) -> Iterator[None]:
    """Raise obstore's exceptions as setbacks."""
    try:
        yield
    except InvalidPathError as error:
        message = f"{bucket.display_name}: {impossible_key(str(error))}: a file cannot have this name"
        raise Stalled("UnsafePath", message) from None
    except (BaseError, ValueError) as error:
        reason, explanation = explain(str(error), bucket.secrets)
        raise Failed(reason, f"{bucket.display_name}: {explanation}") from None
