"""Checks addresses of providers: tenants must not reach what only the controller can. Pure."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import SplitResult, urlsplit

from controller.runtime.network.ip_addresses import effective

HTTP: Final = ("https", "http")
NATS: Final = ("tls", "nats")
"""URL schemes: the encrypted one first, then that in clear text."""


class AddressRefused(Exception):
    """An address cannot be used; the text says why, without path and query: they may be secret."""


def require_usable(address: str, *, allow_local: bool, schemes: tuple[str, str] = HTTP) -> None:
    """Raises AddressRefused for what is no address that may be asked; the host's name is not looked up."""
    parts = split(address)
    if parts.scheme not in schemes or not parts.hostname or parts.port == 0:
        raise AddressRefused(f"it must be a URL such as {schemes[0]}://host/path")
    if not address.isascii() or not address.isprintable() or " " in address:
        raise AddressRefused("it has characters that no URL may have")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused("it must not hold a user or a password")
    if parts.scheme == schemes[1] and not allow_local:
        raise AddressRefused(f"it must begin with {schemes[0]}://")
    if (literal := _literal(parts.hostname)) is not None:
        require_public(literal, allow_local=allow_local)


def split(address: str) -> SplitResult:
    """The parts of a URL. Raises AddressRefused for what is none."""
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018 - raises for what is no number
    except ValueError:
        raise AddressRefused("it is not a URL") from None
    return parts


def require_proxy(address: str, *, allow_local: bool) -> None:
    """Raises AddressRefused for a proxy's URL with an IP address that providers may not have."""
    if (literal := _literal(urlsplit(address).hostname or "")) is not None:
        require_public(literal, allow_local=allow_local)


def require_public(address: str, *, allow_local: bool) -> None:
    """Raises AddressRefused for an IP address that is not public; with `allow_local` only for multicast ones
    and those at which clouds serve a machine's credentials.
    """
    try:
        found = effective(ipaddress.ip_address(address))
    except ValueError:
        raise AddressRefused(f"{address[:64]} is not an IP address") from None
    # At this one, beside 169.254.169.254, Amazon's machines get their credentials.
    amazon = found == ipaddress.ip_address("fd00:ec2::254")
    never = found.is_link_local or found.is_multicast or found.is_unspecified or amazon
    if never or not (allow_local or found.is_global):
        raise AddressRefused(f"{found} is not a public address")


def _literal(host: str) -> str | None:
    """The host if it is an IP address, or would be taken for one by some resolvers."""
    return host if ":" in host or host.replace(".", "").isdigit() else None
