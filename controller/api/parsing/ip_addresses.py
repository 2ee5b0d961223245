"""Classifies IP addresses, for checks of where users may have us connect. Pure."""

from __future__ import annotations

import ipaddress
from typing import Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_EMBEDDING: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""Addresses that a gateway turns into the IPv4 address of their last 32 bits (RFC 6052)."""


def effective(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address embeds, or the address itself if it embeds none."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _EMBEDDING:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
