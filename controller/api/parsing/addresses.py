"""Checks addresses of providers: tenants must not reach hosts that only the controller can reach. Pure."""

from __future__ import annotations

import ipaddress
from typing import Final, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

from controller.api.parsing import InvalidTextError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_EMBEDDING: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""Addresses that a gateway turns into the IPv4 address of their last 32 bits (RFC 6052)."""
MAIL: Final = {"smtp": 587, "smtps": 465}
"""Default port by the scheme of a mail server: STARTTLS, and TLS from the start."""
_PARTS: Final = {"azuredevops": 4, "bitbucket": 2, "gitea": 2, "github": 2, "gitlab": 20}
"""Most parts of a repository's path, by the server in a type's name. GitLab's groups may be nested."""


class AddressRefused(InvalidTextError):
    """An address cannot be used; the text says why, without path and query: they may be secret."""

    REASON: Final = "InvalidAddress"

    def __init__(self, message: str) -> None:
        super().__init__(message, self.REASON)


def require_address(type_: str, address: str, *, allow_local: bool) -> None:
    """Raise AddressRefused for what is no address of a provider of this type, or may not be asked."""
    if type_ == "email":
        parts = split(address)
        if parts.scheme not in MAIL or parts.path.strip("/") or parts.query or parts.fragment:
            raise AddressRefused("it must be smtps://HOST, or smtp://HOST for a server with STARTTLS")
        require_usable(f"https://{parts.netloc}", allow_local=allow_local)
        return
    require_usable(address, allow_local=allow_local)
    if server := server_of(type_):
        _require_repository(server, address)


def server_of(type_: str) -> str:
    """Return the server of a provider type: a key of `_PARTS`; empty for types of no Git server."""
    return next((part for part in _PARTS if type_.startswith(part)), "")


def _require_repository(server: str, address: str) -> None:
    parts = parts_of(address)
    if server == "azuredevops" and (len(parts) != 4 or parts[2] != "_git"):
        example = "https://dev.azure.com/ORGANISATION/PROJECT/_git/REPOSITORY"
        raise AddressRefused(f"it must be a repository's, such as {example}")
    if not 2 <= len(parts) <= _PARTS[server]:
        raise AddressRefused("it must be a repository's, such as https://HOST/OWNER/REPOSITORY")


def parts_of(address: str) -> list[str]:
    """Return the parts of a repository's path."""
    path = urlsplit(address).path.strip("/").removesuffix(".git")
    return [unquote(segment) for segment in path.split("/") if unquote(segment) not in {"", ".", ".."}]


def require_usable(address: str, *, allow_local: bool) -> None:
    """Raise AddressRefused for an invalid or forbidden address; the host's name is not looked up."""
    parts = split(address)
    if parts.scheme not in {"https", "http"} or not parts.hostname or parts.port == 0:
        raise AddressRefused("it must be a URL such as https://host/path")
    if not address.isascii() or not address.isprintable() or " " in address:
        raise AddressRefused("it has characters that no URL may have")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused("it must not contain a user or a password")
    if parts.scheme == "http" and not allow_local:
        raise AddressRefused("it must begin with https://")
    if (literal := _literal(parts.hostname)) is not None:
        require_public(literal, allow_local=allow_local)


def split(address: str) -> SplitResult:
    """Return the parts of a URL. Raises AddressRefused for an invalid one."""
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError:
        raise AddressRefused("it is not a URL") from None
    return parts


def require_proxy(address: str, *, allow_local: bool) -> None:
    """Raise AddressRefused for a proxy's URL with an IP address that is forbidden to providers."""
    if (literal := _literal(urlsplit(address).hostname or "")) is not None:
        require_public(literal, allow_local=allow_local)


def require_public(address: str, *, allow_local: bool) -> None:
    """Raise AddressRefused for an IP address that is not public; with `allow_local` only for multicast ones
    and those at which clouds serve a machine's credentials.
    """
    try:
        ip_address = effective(ipaddress.ip_address(address))
    except ValueError:
        raise AddressRefused(f"{address[:64]} is not an IP address") from None
    # Amazon's machines get their credentials at this address and at 169.254.169.254.
    amazon = ip_address == ipaddress.ip_address("fd00:ec2::254")
    never = ip_address.is_link_local or ip_address.is_multicast or ip_address.is_unspecified or amazon
    if never or not (allow_local or ip_address.is_global):
        raise AddressRefused(f"{ip_address} is not a public address")


def _literal(host: str) -> str | None:
    """Return the host if it is an IP address, or if some resolvers would read it as one."""
    return host if ":" in host or host.replace(".", "").isdigit() else None


def effective(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address embeds, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _EMBEDDING:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
