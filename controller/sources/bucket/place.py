"""The location of a bucket's objects, and the access to them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from controller.runtime.reconciling.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import Mapping


class Store(StrEnum):
    """Whose protocol is spoken; the scheme of a URL on the command line."""

    S3 = "s3"
    GOOGLE = "gs"
    AZURE = "az"


@dataclass(frozen=True, slots=True)
class Bucket:
    """The objects of one bucket whose keys have one beginning."""

    store: Store
    name: str
    prefix: str = ""
    """What the keys begin with."""
    endpoint: str = ""
    """The store's URL; empty: the provider's own, or the environment's."""
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Credentials and region, as obstore's configuration; the environment has what is not there."""
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Proxy, authorities and time, as obstore's ClientConfig."""
    access: tuple[str, str] | None = field(default=None, repr=False)
    """Access and secret key of S3, whatever the environment says."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What must not be shown, should the store repeat it."""

    @property
    def shown(self) -> str:
        """The bucket as people may see it: without any secret."""
        return f"{self.store}://{self.name}/{self.prefix}".rstrip("/")


_URL: Final = re.compile(rf"({'|'.join(Store)})://([^/?#@\s]+)(?:/([^?#]*))?")


def is_bucket(text: str) -> bool:
    """Whether a bucket is meant."""
    return text.startswith(tuple(f"{store}://" for store in Store))


def parse_url(text: str) -> Bucket:
    """The bucket of `s3://BUCKET/PREFIX`; the prefix is a folder or a file, without a slash at its end.
    Raises Stalled (URLInvalid).
    """
    found = _URL.fullmatch(text)
    if found is None:
        raise Stalled("URLInvalid", "not a bucket: write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://…")
    return Bucket(Store(found[1]), found[2], (found[3] or "").strip("/"))


def is_endpoint(url: str) -> bool:
    """Whether it is the URL of a store: http or https, with a host and nothing that may be a secret."""
    try:
        parts = urlsplit(url)
        named = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return named and not (parts.username or parts.query or parts.fragment) and url.isprintable()


def azure_account(endpoint: str) -> str:
    """The account whose store it is; empty: it names none."""
    asked = urlsplit(endpoint)
    # Stand-ins for Azure are reached by an address, and have the account in the path.
    return asked.path.strip("/").partition("/")[0] or (asked.hostname or "").partition(".")[0]
