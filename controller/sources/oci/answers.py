"""Answers of registries and token services: read within bounds, or raised as setbacks."""

from __future__ import annotations

import contextlib
import json
import ssl
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import aiohttp

from controller.runtime.reconciling.setbacks import Failed, Setback, Stalled
from controller.runtime.user_text.plain_text import json_object, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.parsing.oci_address import Address
    from controller.sources.oci.credentials import RegistryAccess

_ERROR_BYTES: Final = 16 * 1024
_CODES: Final = frozenset(
    {
        "BLOB_UNKNOWN", "BLOB_UPLOAD_INVALID", "BLOB_UPLOAD_UNKNOWN", "DENIED", "DIGEST_INVALID",
        "MANIFEST_BLOB_UNKNOWN", "MANIFEST_INVALID", "MANIFEST_UNKNOWN", "NAME_INVALID", "NAME_UNKNOWN",
        "SIZE_INVALID", "TAG_INVALID", "TOOMANYREQUESTS", "UNAUTHORIZED", "UNAVAILABLE", "UNKNOWN",
        "UNSUPPORTED",
    }
)  # fmt: skip
"""What is shown of an error: these words of the OCI's specification, since any service may have answered."""
_LONGEST_DELAY: Final = 900.0


class NotFound(Failed):
    """The requested object does not exist."""


async def body_of(address: Address, answer: aiohttp.ClientResponse, most: int, what: str) -> bytes:
    """Read the body. Raises Stalled (LimitExceeded) for more than `most` bytes of `what`."""
    content = bytearray()
    async for chunk in answer.content.iter_any():
        content += chunk
        if len(content) > most:
            raise Stalled("LimitExceeded", f"{address}: {what} is over {most} bytes")
    return bytes(content)


async def refusal(address: Address, answer: aiohttp.ClientResponse) -> Setback:
    """The setback for an answer that is no success."""
    status = answer.status
    said = ""
    with contextlib.suppress(Setback, ValueError, LookupError, TypeError):
        content = json.loads(await body_of(address, answer, _ERROR_BYTES, "the error"))
        code = content["errors"][0]["code"]
        said = code if code in _CODES else ""
    message = f"{address}: {answer.url.host} answers {status}{f' ({said})' if said else ''}"
    if status in {401, 403, 407}:
        return Failed("AuthenticationFailed", message)
    if status == 404:
        return NotFound("RepositoryNotFound" if "NAME_UNKNOWN" in said else "RevisionGone", message)
    return Failed("OCIArtifactPullFailed", message, delay=_delay(answer))


def json_of(address: Address, content: bytes) -> dict[str, Any]:
    """The object in a body. Raises Failed for anything else."""
    found = json_object(content)
    if found is None:
        raise Failed("OCIArtifactPullFailed", f"{address}: the answer is not that of a registry")
    return found


@contextlib.contextmanager
def failing(address: Address, access: RegistryAccess) -> Iterator[None]:
    """Raise a Setback for what goes wrong within the block, on the way to a registry and back."""
    try:
        yield
    except (aiohttp.ClientSSLError, ssl.SSLError) as error:
        raise Failed("CertificateRefused", f"{address}: {_clean(access, str(error))}") from error
    except aiohttp.ClientHttpProxyError as error:
        reason = "AuthenticationFailed" if error.status == 407 else "OCIArtifactPullFailed"
        raise Failed(reason, f"{address}: the proxy answers {error.status}") from error
    except (aiohttp.ClientResponseError, aiohttp.ClientPayloadError) as error:
        # Their texts repeat what was answered.
        raise Failed("OCIArtifactPullFailed", f"{address}: the answer is not HTTP") from error
    except (aiohttp.ClientError, ConnectionError) as error:
        what = _clean(access, str(error)) or type(error).__name__
        raise Failed("OCIArtifactPullFailed", f"{address}: {what}") from error


def _clean(access: RegistryAccess, text: str) -> str:
    """Return a text of another party as one line, without our password."""
    login, proxy = access.login, urlsplit(access.proxy).password or ""
    for word in (login.password if login is not None else "", proxy, unquote(proxy)):
        text = text.replace(word, "***") if word else text
    return one_line(text, 300).strip()


def _delay(answer: aiohttp.ClientResponse) -> float | None:
    """Return the seconds of Retry-After."""
    asked = answer.headers.get("Retry-After", "")
    return min(float(asked), _LONGEST_DELAY) if asked.isdecimal() else None
