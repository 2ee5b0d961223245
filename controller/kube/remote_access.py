"""How another cluster is reached, as a user's kubeconfig says, or a ConfigMap with the keys of Flux. Pure.

A kubeconfig of a user is untrusted: only what names a server, its authority and credentials as data is read,
and whatever else changes whom it trusts or what it runs is refused. No message quotes a value.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, model_validator

from controller.api.fields import Model, SpecProblem, read, refuse
from controller.api.parsing import InvalidTextError
from controller.runtime.plain_text import one_line
from controller.runtime.secret_texts import Tls, pem_blocks
from evaluator.flags.document import read_document
from evaluator.flags.text import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_BOUNDS: Final = Bounds(document_bytes=65_536, depth=12, nodes=2_000)
"""Of a kubeconfig. Aliases count as what they expand to."""
_MOST_TEXT: Final = 65_536
_MOST_URL: Final = 512
"""Characters: the status repeats it."""
_NO_PROGRAM: Final = (
    "no program is run for credentials: write token, or client-certificate-data and client-key-data, or use "
    "spec.kubeConfig.configMapRef"
)
_NO_IMPERSONATION: Final = "set spec.serviceAccountName to act as a service account of that cluster"
_NO_PASSWORD: Final = "an API server takes no password: write token"  # noqa: S105 - advice
_INSTEAD: Final = {
    "exec": _NO_PROGRAM,
    "auth-provider": _NO_PROGRAM,
    "certificate-authority": "no file is read: write certificate-authority-data",
    "client-certificate": "no file is read: write client-certificate-data",
    "client-key": "no file is read: write client-key-data",
    "tokenFile": "no file is read: write token",
    "insecure-skip-tls-verify": "the certificate is always verified: write certificate-authority-data",
    "proxy-url": "no proxy is used: write a server that the controller reaches",
    "tls-server-name": "the certificate must be that of the host in server",
    "as": _NO_IMPERSONATION,
    "as-uid": _NO_IMPERSONATION,
    "as-groups": _NO_IMPERSONATION,
    "as-user-extra": _NO_IMPERSONATION,
    "username": _NO_PASSWORD,
    "password": _NO_PASSWORD,
}
"""What to do about fields that are refused."""


def _in_kebab_case(name: str) -> str:
    return name.replace("_", "-")


class _Part(Model):
    """A part of a kubeconfig, which has no other fields."""

    model_config = ConfigDict(extra="forbid", alias_generator=_in_kebab_case)

    @model_validator(mode="before")
    @classmethod
    def _refuse_with_advice(cls, given: Any) -> Any:
        fields = given if isinstance(given, dict) else {}
        refuse(SpecProblem(name, _INSTEAD[name]) for name in fields if name in _INSTEAD)
        return given


_Text = Annotated[str, Field(max_length=_MOST_TEXT)]


class _Cluster(_Part):
    server: _Text
    certificate_authority_data: _Text = ""
    disable_compression: bool = False
    extensions: Any = None


class _User(_Part):
    token: _Text = ""
    client_certificate_data: _Text = ""
    client_key_data: _Text = ""
    extensions: Any = None


class _Context(_Part):
    cluster: _Text
    user: _Text
    namespace: _Text = ""
    extensions: Any = None


class _NamedCluster(_Part):
    name: _Text
    cluster: _Cluster


class _NamedUser(_Part):
    name: _Text
    user: _User


class _NamedContext(_Part):
    name: _Text
    context: _Context


class _Document(_Part):
    """A whole kubeconfig: k8s.io/client-go/tools/clientcmd/api/v1, Config."""

    api_version: Annotated[_Text, Field(alias="apiVersion")] = "v1"
    kind: _Text = "Config"
    preferences: Any = None
    extensions: Any = None
    current_context: _Text
    clusters: tuple[_NamedCluster, ...]
    contexts: tuple[_NamedContext, ...]
    users: tuple[_NamedUser, ...]


class Access(NamedTuple):
    """How a cluster is reached. Its texts are secret but for `server`."""

    server: str
    """`https://HOST[:PORT][/PATH]`, without a slash at its end."""
    tls: Tls
    token: str = ""


def read_kubeconfig(text: bytes) -> Access:
    """What the current context of a kubeconfig says. Raises InvalidTextError for one that is not whole in
    itself, or asks for what is not done; the words quote none of its values.
    """
    document = read_document(text, file="kubeconfig.yaml", bounds=_BOUNDS)
    if document.findings or not isinstance(document.value, dict):
        faults = dict.fromkeys(finding.code for finding in document.findings)
        raise InvalidTextError(f"it is no kubeconfig ({', '.join(faults) or 'not-an-object'})")
    known = read(_Document, document.value, where="kubeconfig")
    context = _named(known.contexts, known.current_context, "contexts", "current-context").context
    cluster = _named(known.clusters, context.cluster, "clusters", "the context's cluster").cluster
    user = _named(known.users, context.user, "users", "the context's user").user
    authority = _pem(cluster.certificate_authority_data, "certificate-authority-data", "CERTIFICATE")
    certificate = _pem(user.client_certificate_data, "client-certificate-data", "CERTIFICATE")
    key = _pem(user.client_key_data, "client-key-data", "PRIVATE KEY")
    if bool(certificate) != bool(key):
        raise InvalidTextError("client-certificate-data and client-key-data must be there together")
    if not (user.token or certificate):
        raise InvalidTextError("the user has no credentials: write token, or a client's certificate and key")
    return Access(
        require_server(cluster.server, "server"), Tls(authority, certificate, key), _token(user.token)
    )


def _named(entries: Iterable[Any], name: str, field: str, by: str) -> Any:
    entry = next((entry for entry in entries if entry.name == name), None)
    if entry is None:
        raise InvalidTextError(f"{field} has no entry of the name that {by} says")
    return entry


def _pem(encoded: str, field: str, kind: str) -> str:
    """The text of base64 of PEM; empty where there is none."""
    if not encoded:
        return ""
    try:
        text = base64.b64decode(encoded, validate=False).decode("ascii")
    except (binascii.Error, ValueError):
        raise InvalidTextError(f"{field} is not PEM in base64") from None
    return _require_pem(text, field, kind)


def _require_pem(text: str, field: str, kind: str) -> str:
    blocks = [*pem_blocks(text)]
    if not any(kind in block.label for block in blocks):
        raise InvalidTextError(f"{field} has no {kind.lower()} in PEM")
    if any(block.encrypted for block in blocks):
        raise InvalidTextError(f"{field} is encrypted: store the key without a passphrase")
    return text


def _token(token: str) -> str:
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise InvalidTextError("token has a space, a line break or a character that is not ASCII")
    return token


def require_server(url: str, field: str) -> str:
    """Return an API server's URL without a slash at its end. Raises InvalidTextError."""
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0 and url.isascii() and url.isprintable()
    except ValueError:
        raise InvalidTextError(f"{field} is not a URL; write https://HOST:6443") from None
    if parts.scheme != "https" or not usable or " " in url or len(url) > _MOST_URL:
        raise InvalidTextError(f"{field} must be https://HOST:PORT: credentials are sent to it")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidTextError(f"{field} must have no user, query or fragment")
    return url.rstrip("/")


_CLOUDS: Final = ("aws", "azure", "gcp")
_KEYS: Final = frozenset({"provider", "address", "ca.crt", "audiences", "serviceAccountName"})
_MOST_AUDIENCES: Final = 8


class TokenAccess(NamedTuple):
    """A cluster that trusts tokens of our own one."""

    server: str
    tls: Tls
    account: str
    """The service account whose token is shown, in the FlagSet's namespace."""
    audiences: tuple[str, ...]


def read_token_access(data: Mapping[str, bytes]) -> TokenAccess:
    """What the ConfigMap of a cluster says, with the keys of Flux. Raises InvalidTextError."""
    texts = {key: _line(key, raw) for key, raw in data.items() if key not in {"ca.crt", "audiences"}}
    provider = texts.get("provider", "")
    if provider in _CLOUDS:
        raise InvalidTextError(
            f"provider {provider} is not supported: write generic where the cluster trusts tokens of this "
            "one, or a kubeconfig into a Secret (spec.kubeConfig.secretRef)"
        )
    if provider != "generic":
        raise InvalidTextError("provider must be generic")
    if unknown := sorted(data.keys() - _KEYS):
        raise InvalidTextError(
            f"{one_line(unknown[0], 64)!r} is not known; it may have {', '.join(sorted(_KEYS))}"
        )
    server = require_server(texts.get("address", ""), "address")
    if not (account := texts.get("serviceAccountName", "")):
        raise InvalidTextError(
            "serviceAccountName is missing: the service account of this namespace whose token is shown; the "
            "controller shows none of its own"
        )
    lines = _text("audiences", data.get("audiences", b"")).split()
    if len(lines) > _MOST_AUDIENCES:
        raise InvalidTextError(f"audiences has more than {_MOST_AUDIENCES} lines")
    authority = _text("ca.crt", data.get("ca.crt", b""))
    if authority:
        _require_pem(authority, "ca.crt", "CERTIFICATE")
    return TokenAccess(server, Tls(authority), account, tuple(lines) or (server,))


def _text(key: str, raw: bytes) -> str:
    if len(raw) > _MOST_TEXT:
        raise InvalidTextError(f"{key} is longer than {_MOST_TEXT} bytes")
    try:
        return raw.decode("ascii").strip()
    except UnicodeDecodeError:
        raise InvalidTextError(f"{key} has a character that is not ASCII") from None


def _line(key: str, raw: bytes) -> str:
    text = _text(key, raw)
    if not text.isprintable():
        raise InvalidTextError(f"{key} must be one line")
    return text
