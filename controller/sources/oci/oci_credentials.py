"""Logins for registries: what the header WWW-Authenticate asks for (RFC 9110, section 11.6.1), and Docker's
configuration (`~/.docker/config.json`, and Secrets of type kubernetes.io/dockerconfigjson). Pure.

No message repeats a value.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from controller.runtime.network.http_client import DIRECT, Route
from controller.runtime.reconciling.setbacks import Stalled
from controller.runtime.tenancy.secret_hosts import UNBOUND, Binding
from controller.runtime.user_text.secret_texts import Tls

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from controller.api.parsing.oci_address import Address

_LONGEST: Final = 8192
_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_ITEM: Final = re.compile(rf'({_WORD})(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|({_WORD})))?')


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """A name and a password or token; neither is ever printed."""

    username: str = field(repr=False)
    password: str = field(repr=False)
    binding: Binding = UNBOUND
    """Hosts that may receive it."""

    @property
    def basic(self) -> str:
        """The value of the header Authorization."""
        pair = f"{self.username}:{self.password}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """Credentials for a registry, and the way to it."""

    login: RegistryLogin | None = None
    route: Route = DIRECT

    @property
    def elsewhere(self) -> Route:
        """Return the way to hosts other than the registry: without the client's certificate."""
        return replace(self.route, tls=Tls(self.route.tls.authority))


def login_from(name: str, content: bytes, address: Address) -> RegistryLogin | None:
    """The login for `address` in the Docker configuration `name`, or None. Raises Stalled (InvalidSecret)."""
    try:
        configuration = json.loads(content)
    except (ValueError, RecursionError):
        raise _invalid(name, "is not JSON") from None
    if not isinstance(configuration, dict):
        raise _invalid(name, "is not an object")
    logins = configuration.get("auths") or {}
    if not isinstance(logins, dict):
        raise _invalid(name, "'auths' is not an object")
    known = {_plain(str(key)): entry for key, entry in logins.items()}
    for wanted in address.logins:
        if isinstance(entry := known.get(wanted), dict) and entry:
            return _login(name, wanted, entry)
    return None


def _login(name: str, host: str, entry: Mapping[str, Any]) -> RegistryLogin:
    username, password = str(entry.get("username", "")), str(entry.get("password", ""))
    if not username:
        try:
            pair = base64.b64decode(str(entry.get("auth", "")), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise _invalid(name, f"'auth' of {host} is not Base64") from None
        username, _, password = pair.partition(":")
    if not username or not password:
        raise _invalid(name, f"{host} has no username and password, and no 'auth' with both")
    if not (username + password).isprintable():
        raise _invalid(name, f"the login of {host} contains a line break or a control character")
    return RegistryLogin(username, password)


def _plain(key: str) -> str:
    """`https://index.docker.io/v1/` and the like as a host, and what may follow it."""
    bare = key.partition("://")[2] or key
    return bare.strip("/").removesuffix("/v1").removesuffix("/v2")


def _invalid(name: str, why: str) -> Stalled:
    return Stalled("InvalidSecret", f"{name}: {why}")


def challenges_of(headers: Iterable[str]) -> dict[str, dict[str, str]]:
    """The parameters of each scheme, in lower case; of several alike the first."""
    challenges: dict[str, dict[str, str]] = {}
    for header in headers:
        parameters: dict[str, str] = {}
        for item in _ITEM.finditer(header[:_LONGEST]):
            name, quoted, plain = item.groups()
            if quoted is None and plain is None:
                parameters = {}
                challenges.setdefault(name.lower(), parameters)
            else:
                value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
                parameters.setdefault(name.lower(), value)
    return challenges
