"""A bucket's place: its store, name and prefix, as a URL names them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from controller.runtime.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import Mapping


class Scheme(StrEnum):
    """The store's protocol; on the command line, the scheme of the URL."""

    S3 = "s3"
    GOOGLE = "gs"
    AZURE = "az"


@dataclass(frozen=True, slots=True)
class Bucket:
    """The objects of one bucket whose keys have one beginning."""

    store: Scheme
    name: str
    prefix: str = ""
    """The prefix of the keys."""
    endpoint: str = ""
    """The store's URL; empty: the provider's own, or the environment's."""
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Credentials and region, as obstore's configuration; the environment has what is not there."""
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Proxy, authorities and time, as obstore's ClientConfig."""
    access: tuple[str, str] | None = field(default=None, repr=False)
    """Access and secret key of S3, preferred to those of the environment."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Secret texts, removed from messages in case that the store repeats them."""

    @property
    def display_name(self) -> str:
        """The bucket as people may see it: without any secret."""
        return f"{self.store}://{self.name}/{self.prefix}".rstrip("/")


_URL: Final = re.compile(rf"({'|'.join(Scheme)})://([^/?#@\s]+)(?:/([^?#]*))?")


def parse_url(text: str) -> Bucket:
    """The bucket of `s3://BUCKET/PREFIX`; the prefix is a folder or a file, without a slash at its end.
    Raises Stalled (URLInvalid).
    """
    match = _URL.fullmatch(text)
    if match is None:
        raise Stalled("URLInvalid", "not a bucket: write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://…")
    return Bucket(Scheme(match[1]), match[2], (match[3] or "").strip("/"))


def azure_account(endpoint: str) -> str:
    """Return the account in the URL of an Azure store; empty if it names none."""
    asked = urlsplit(endpoint)
    # Stand-ins for Azure are reached by an address, and have the account in the path.
    return asked.path.strip("/").partition("/")[0] or (asked.hostname or "").partition(".")[0]
