"""Addresses in specs, judged and made safe for requests: of servers, Git repositories, registries and
stores. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

from controller.api.parsing import InvalidTextError

HostAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
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


def effective(address: HostAddress) -> HostAddress:
    """Return the IPv4 address that an IPv6 address embeds, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _EMBEDDING:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


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
"""The hosts of stores that may receive the controller's own identity."""
_OWN_REGISTRIES: Final = {
    "aws": re.compile(r"[0-9]{12}\.dkr\.ecr(-fips)?\.[a-z]{2}(-[a-z]+)+-[0-9]+\.amazonaws\.com(\.cn)?"),
    "azure": re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\.azurecr\.(io|cn|us)"),
    "gcp": re.compile(r"([a-z0-9]+(-[a-z0-9]+)*-docker\.pkg\.dev|([a-z]+\.)?gcr\.io)"),
}
"""The hosts of registries that may receive it."""
CLOUDS: Final = tuple(_OWN_REGISTRIES)


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
        raise _not_own(provider)


def require_own_registry(provider: str, address: ArtifactAddress) -> None:
    """Raise InvalidTextError for a registry that is another's, or at another port."""
    if not _OWN_REGISTRIES[provider].fullmatch(address.host):
        raise _not_own(provider)


def _not_own(provider: str) -> InvalidTextError:
    return InvalidTextError(
        f"without secretRef it must be a host of {provider}: the controller's own identity is shown to "
        "no other"
    )


class Transport(StrEnum):
    """How a repository is reached, by the name that Git's list of allowed protocols uses."""

    FILE = "file"
    HTTP = "http"
    HTTPS = "https"
    SSH = "ssh"


@dataclass(frozen=True, slots=True)
class Location:
    """A repository's place, without username and password in `url`, and without any secret in `shown`."""

    transport: Transport
    url: str = field(repr=False)
    """What Git is given, among its arguments, which every process of the machine may read."""
    shown: str
    path: Path | None = None
    """Set for a repository on this machine."""
    login: tuple[str, str] | None = field(default=None, repr=False)
    """(username, password) that the text carried in itself, as `https://name:token@host/…` does."""

    @property
    def origin(self) -> str:
        """Scheme and host, to which alone credentials are given."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def server(self) -> tuple[str, int]:
        """(host, port) of a remote; empty and 0 of a folder."""
        if "://" not in self.url:
            return self.url.partition(":")[0].rpartition("@")[2], _PORTS[Transport.SSH]
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or _PORTS.get(self.transport, 0)


_PORTS = {Transport.HTTP: 80, Transport.HTTPS: 443, Transport.SSH: 22}
# `host:path` and `user@host:path`: as in Git, a colon before any slash.
_SCP = re.compile(r"(?:(?P<user>[^@:/\s]+)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^@:/\[\]\s]+):(?P<path>.+)")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HOST = re.compile(r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:.]+")
BROKEN: Final = "a username, password or token with a line break cannot be used"
_ACCEPTED = "a local path, file://, https://, http://, ssh:// or user@host:path"


def parse_location(text: str) -> Location:
    """Read a path or URL. Raises InvalidTextError (URLInvalid), which repeats no credentials."""
    if not text or text != text.strip() or any(ord(c) < 0x20 or ord(c) == 0x7F for c in text):
        raise _invalid_repository("it is empty, or contains white space or control characters")
    if text.startswith("-"):
        raise _invalid_repository("it starts with a dash; for a folder with such a name write ./-name")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*::", text):
        raise _invalid_repository("Git's remote helpers (name::address) are not supported")
    if scheme := _SCHEME.match(text):
        return _from_url(scheme[1].lower(), text)
    if (scp := _SCP.fullmatch(text)) is not None:
        return _from_scp(scp)
    return _local(Path(text), text)


def _invalid_repository(why: str) -> InvalidTextError:
    message = f"not a valid repository location: {why} (expected {_ACCEPTED})"
    return InvalidTextError(message, "URLInvalid")


def _local(path: Path, shown: str) -> Location:
    return Location(Transport.FILE, f"file://{path}", shown, path=path)


def _from_url(scheme: str, text: str) -> Location:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise _invalid_repository("its host or port is malformed") from None
    if parts.fragment:
        raise _invalid_repository(
            "it has a fragment (#…); name a branch, tag or commit with the reference instead"
        )
    if scheme == "file":
        return _from_file_url(parts)
    if scheme not in set(Transport):
        raise _invalid_repository(f"{scheme}:// is not supported")
    host = parts.hostname or ""
    if not _HOST.fullmatch(host) or host.startswith("-"):
        raise _invalid_repository("its host name is missing or malformed")
    if not parts.path.strip("/"):
        raise _invalid_repository("it names a host but no repository")
    address = (f"[{host}]" if ":" in host else host) + (f":{port}" if port is not None else "")
    username, password = unquote(parts.username or ""), unquote(parts.password or "")
    if scheme == "ssh":
        return _from_ssh_url(parts, address, username, password)
    if parts.query:
        raise _invalid_repository("it has a query (?…); a token belongs into the Secret that secretRef names")
    url = f"{scheme}://{address}{parts.path}"
    return Location(Transport(scheme), url, url, login=_user_and_password(username, password))


def _user_and_password(username: str, password: str) -> tuple[str, str] | None:
    if not username and not password:
        return None
    if any(sign in username + password for sign in "\n\r\0"):
        raise InvalidTextError(BROKEN, "InvalidCredentials")
    # A lone name is how tokens are pasted (`https://TOKEN@host/…`), with any password.
    return username or "git", password


def _from_ssh_url(parts: SplitResult, address: str, username: str, password: str) -> Location:
    if password or parts.query:
        raise _invalid_repository("ssh takes neither a password nor a query in its URL; use a key")
    if username.startswith("-") or re.search(r"[\s@/:]", username):
        raise _invalid_repository("its user name is malformed")
    url = f"ssh://{username + '@' if username else ''}{address}{parts.path}"
    return Location(Transport.SSH, url, url)


def _from_file_url(parts: SplitResult) -> Location:
    if parts.netloc not in {"", "localhost"} or parts.query:
        raise _invalid_repository(
            "a file:// URL needs three slashes and a path, such as file:///srv/flags.git"
        )
    path = unquote(parts.path)
    if "\0" in path or not path.strip("/"):
        raise _invalid_repository("it names no folder")
    return _local(Path(path), f"file://{parts.path}")


def _from_scp(scp: re.Match[str]) -> Location:
    user, host, path = scp["user"] or "", scp["host"], scp["path"]
    if user.startswith("-") or host.startswith("-") or path.startswith("-"):
        raise _invalid_repository("its user, host and path cannot start with a dash")
    if not _HOST.fullmatch(host.strip("[]")):
        raise _invalid_repository("its host name is malformed")
    url = f"{user + '@' if user else ''}{host}:{path}"
    return Location(Transport.SSH, url, url)


SCHEME: Final = "oci://"
"""The prefix of an address."""
DEFAULT_TAG: Final = "latest"

_REGISTRY: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
# As the distribution's specification has them.
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY: Final = re.compile(rf"{_PART}(?:/{_PART})*")
TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST: Final = 255

DOCKER_HUB: Final = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})


@dataclass(frozen=True, slots=True)
class ArtifactAddress:
    """A repository of a registry."""

    host: str
    """The host, with a port if one was given."""
    repository: str
    insecure: bool = False
    """Plain HTTP."""

    @property
    def origin(self) -> str:
        """Scheme and host of the registry's API, to which alone credentials are given."""
        host = "registry-1.docker.io" if self.host in DOCKER_HUB else self.host
        return f"{'http' if self.insecure else 'https'}://{host}"

    @property
    def logins(self) -> tuple[str, ...]:
        """The names under which a Docker configuration may have the login, the most exact first."""
        hosts = [self.host]
        if self.host in DOCKER_HUB:
            hosts = ["docker.io", "index.docker.io", "registry-1.docker.io"]
        parts = self.repository.split("/")
        ends = ["/".join(["", *parts[:length]]) for length in range(len(parts), -1, -1)]
        return tuple(host + end for end in ends for host in hosts)

    def __str__(self) -> str:
        return f"{SCHEME}{self.host}/{self.repository}"


def parse_address(text: str, *, insecure: bool = False) -> ArtifactAddress:
    """`oci://HOST/REPOSITORY`. Raises InvalidTextError (URLInvalid)."""
    if not text.startswith(SCHEME):
        raise _invalid_artifact("it does not begin with oci://")
    host, _, repository = text.removeprefix(SCHEME).partition("/")
    if "@" in host:
        raise _invalid_artifact("it holds a username; a login belongs into a Docker configuration")
    if not _REGISTRY.fullmatch(host):
        raise _invalid_artifact("its host name is missing or malformed")
    if "@" in repository or ":" in repository:
        raise _invalid_artifact("it holds a tag or a digest, which belongs into ref")
    if not _REPOSITORY.fullmatch(repository) or len(repository) > _LONGEST:
        raise _invalid_artifact(
            "its repository is missing or malformed: it has lower-case letters, digits and . _ - /"
        )
    from yarl import URL  # noqa: PLC0415 - it takes long to load, and most sources are no registries

    address = ArtifactAddress(host.lower(), repository, insecure)
    try:
        known = bool(URL(address.origin).host)
    except ValueError:
        known = False
    if not known:
        raise _invalid_artifact("its host name or port is malformed")
    return address


def check_tag(tag: str) -> None:
    """Raise InvalidTextError (InvalidReference) for what can be no tag."""
    if not TAG.fullmatch(tag):
        message = f"{tag!r} is not a tag: it has at most 128 letters, digits and . _ -"
        raise InvalidTextError(message, "InvalidReference")


def check_digest(digest: str) -> None:
    """Raise InvalidTextError (InvalidReference) for what is no digest."""
    if not DIGEST.fullmatch(digest):
        message = f"{digest!r} is not a digest; write sha256: and 64 hexadecimal digits"
        raise InvalidTextError(message, "InvalidReference")


def _invalid_artifact(why: str) -> InvalidTextError:
    message = f"not a valid address of a repository: {why} (expected oci://HOST/REPOSITORY)"
    return InvalidTextError(message, "URLInvalid")
