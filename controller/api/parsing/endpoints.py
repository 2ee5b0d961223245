"""The places of stores that hold buckets. Pure."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from controller.api.parsing import InvalidTextError

KNOWN: Final = {"aws": "https://s3.amazonaws.com", "gcp": "https://storage.googleapis.com"}
"""Endpoints that mean the provider's own."""
_OWN_HOSTS: Final = {
    # Not every name with an s3 in it: customers choose the names of load balancers and databases.
    "aws": re.compile(
        r"(.+\.)?s3(express)?(-[a-z0-9-]+)?(\.dualstack)?(\.[a-z]{2}(-[a-z]+)+-[0-9]+)?(\.vpce)?"
        r"\.amazonaws\.com(\.cn)?"
    ),
    "gcp": re.compile(r"storage\.googleapis\.com"),
    "azure": re.compile(r"[a-z0-9]+\.blob\.core\.(windows\.net|usgovcloudapi\.net|chinacloudapi\.cn)"),
}
"""The hosts that may receive the controller's own identity."""


def is_endpoint(url: str) -> bool:
    """Return whether it is a store's URL: http or https, with a host and without secrets."""
    try:
        parts = urlsplit(url)
        named = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return named and not (parts.username or parts.query or parts.fragment) and url.isprintable()


def url_of(provider: str, endpoint: str, *, insecure: bool) -> str:
    """The URL of the store; empty: the provider's own. Raises InvalidTextError."""
    if not endpoint:
        if provider in {"generic", "azure"}:
            raise InvalidTextError(f"is required for provider {provider}")
        return ""
    url = endpoint if "://" in endpoint else f"http{'' if insecure else 's'}://{endpoint}"
    if not is_endpoint(url):
        raise InvalidTextError("write HOST, HOST:PORT or https://HOST", "URLInvalid")
    if url.startswith("http:") and not insecure:
        raise InvalidTextError("http:// needs insecure: true", "URLInvalid")
    return url.rstrip("/")


def require_own_host(provider: str, url: str) -> None:
    """Raise InvalidTextError for a store that is another's: it could use a token of ours."""
    hosts = _OWN_HOSTS.get(provider)
    if hosts is not None and url and not hosts.fullmatch(urlsplit(url).hostname or ""):
        raise InvalidTextError(
            f"without secretRef it must be a host of {provider}: the controller's own identity is shown to "
            "no other"
        )
