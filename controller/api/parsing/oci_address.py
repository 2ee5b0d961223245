"""The address of an artifact: text from people, made safe for requests and messages. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from controller.api.parsing import InvalidTextError

SCHEME: Final = "oci://"
"""The prefix of an address."""
DEFAULT_TAG: Final = "latest"

_HOST: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
# As the distribution's specification has them.
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY: Final = re.compile(rf"{_PART}(?:/{_PART})*")
TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST: Final = 255

_DOCKER_HUB: Final = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})


@dataclass(frozen=True, slots=True)
class Address:
    """A repository of a registry."""

    host: str
    """The host, with a port if one was given."""
    repository: str
    insecure: bool = False
    """Plain HTTP."""

    @property
    def origin(self) -> str:
        """Scheme and host of the registry's API, to which alone credentials are given."""
        host = "registry-1.docker.io" if self.host in _DOCKER_HUB else self.host
        return f"{'http' if self.insecure else 'https'}://{host}"

    @property
    def logins(self) -> tuple[str, ...]:
        """The names under which a Docker configuration may have the login, the most exact first."""
        hosts = [self.host]
        if self.host in _DOCKER_HUB:
            hosts = ["docker.io", "index.docker.io", "registry-1.docker.io"]
        parts = self.repository.split("/")
        ends = ["/".join(["", *parts[:length]]) for length in range(len(parts), -1, -1)]
        return tuple(host + end for end in ends for host in hosts)

    def __str__(self) -> str:
        return f"{SCHEME}{self.host}/{self.repository}"


def parse_address(text: str, *, insecure: bool = False) -> Address:
    """`oci://HOST/REPOSITORY`. Raises InvalidTextError (URLInvalid)."""
    if not text.startswith(SCHEME):
        raise _invalid("it does not begin with oci://")
    host, _, repository = text.removeprefix(SCHEME).partition("/")
    if "@" in host:
        raise _invalid("it holds a username; a login belongs into a Docker configuration")
    if not _HOST.fullmatch(host):
        raise _invalid("its host name is missing or malformed")
    if "@" in repository or ":" in repository:
        raise _invalid("it holds a tag or a digest, which belongs into ref")
    if not _REPOSITORY.fullmatch(repository) or len(repository) > _LONGEST:
        raise _invalid(
            "its repository is missing or malformed: it has lower-case letters, digits and . _ - /"
        )
    from yarl import URL  # noqa: PLC0415 - it takes long to load, and most sources are no registries

    address = Address(host.lower(), repository, insecure)
    try:
        known = bool(URL(address.origin).host)
    except ValueError:
        known = False
    if not known:
        raise _invalid("its host name or port is malformed")
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


def _invalid(why: str) -> InvalidTextError:
    message = f"not a valid address of a repository: {why} (expected oci://HOST/REPOSITORY)"
    return InvalidTextError(message, "URLInvalid")
