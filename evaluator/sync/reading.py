"""Sources as people write them: `--uri`, and the objects of `--sources` and of the configuration file."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from evaluator.flags.operators import did_you_mean
from evaluator.flags.text import quoted
from evaluator.sync.config import (
    FILES,
    InvalidSourceError,
    OAuth,
    Provider,
    SourceConfig,
    checked,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["InvalidSourceError", "SourceConfig", "from_json", "from_mapping", "from_uri"]


def from_uri(uri: str) -> SourceConfig:
    """A source from `--uri`. Raises InvalidSourceError."""
    if uri.startswith("core.openfeature.dev/"):
        raise InvalidSourceError(_NO_KUBERNETES)
    if uri.startswith("file:"):
        path = re.sub(r"^//(?=/)", "", uri.removeprefix("file:"))
        return checked(SourceConfig(path, Provider.FILE))
    scheme = uri.partition("://")[0] if "://" in uri else ""
    if scheme == "grpcs":
        return checked(SourceConfig(uri.removeprefix("grpcs://"), Provider.GRPC, tls=True))
    if scheme == "grpc":
        return checked(SourceConfig(uri.removeprefix("grpc://"), Provider.GRPC))
    provider = _SCHEMES.get(scheme)
    if provider is None:
        raise InvalidSourceError(
            f"the source {quoted(shown(uri))} starts with none of file:, "
            + ", ".join(f"{known}://" for known in ("grpc", "grpcs", *_SCHEMES))
        )
    return checked(SourceConfig(uri, provider))


def from_json(text: str) -> tuple[SourceConfig, ...]:
    """The sources of `--sources`: a JSON array of objects. Raises InvalidSourceError."""
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidSourceError(f"sources are not JSON{place}") from None
    if not isinstance(items, list):
        raise InvalidSourceError('sources are an array, such as [{"uri": "…", "provider": "file"}]')
    return tuple(from_mapping(item) for item in items)


def from_mapping(item: Any) -> SourceConfig:
    """One source of `--sources` or of a configuration file, its keys in any case. Raises InvalidSourceError."""
    if not isinstance(item, dict):
        raise InvalidSourceError("a source is an object with uri and provider")
    uri = next((value for key, value in item.items() if str(key).lower() == "uri"), None)
    if not isinstance(uri, str) or not uri:
        raise InvalidSourceError("a source needs its uri")
    where = f"the source {quoted(shown(uri))}"
    fields: dict[str, Any] = {}
    for key, value in item.items():
        name, kind = _field(where, str(key))
        fields[name] = _typed(f"{where}: {key}", value, kind)
    if fields.pop("incremental", False):
        raise InvalidSourceError(f"{where}: incrementalUpdates is refused: sets are replaced whole")
    return checked(SourceConfig(**_provided(where, fields)))


def _provided(where: str, fields: dict[str, Any]) -> dict[str, Any]:
    provider = fields.get("provider", "")
    if provider == "kubernetes":
        raise InvalidSourceError(_NO_KUBERNETES)
    if provider not in set(Provider):
        known = ", ".join(Provider)
        raise InvalidSourceError(f"{where}: provider is {quoted(provider)}; it is one of {known}")
    for zero in ("interval", "timeout"):
        # Go's zero value: as not given.
        if not fields.get(zero, 1):
            del fields[zero]
    uri = re.sub(r"^file:(//(?=/))?", "", fields["uri"]) if provider in FILES else fields["uri"]
    if provider == Provider.GRPC and uri.startswith(("grpc://", "grpcs://")):
        fields.setdefault("tls", uri.startswith("grpcs"))
        uri = uri.partition("://")[2]
    return {**fields, "provider": Provider(provider), "uri": uri}


def _field(where: str, key: str) -> tuple[str, type]:
    found = _FIELDS.get(key.lower())
    if found is None:
        hint = did_you_mean(key, tuple(_SPELLED))
        raise InvalidSourceError(f"{where}: unknown key {quoted(key)}{hint}")
    return found


def _typed(where: str, value: Any, kind: type) -> Any:
    if kind is OAuth:
        return _oauth(where, value)
    if kind is dict:
        if isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):
            return {str(key): each for key, each in value.items()}
        raise InvalidSourceError(f"{where} is an object of texts")
    fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if kind is int and not (fits and value >= 0):
        raise InvalidSourceError(f"{where} is a whole number, 0 or more")
    if not fits:
        raise InvalidSourceError(f"{where} is {'text' if kind is str else 'true or false'}")
    return value


def _oauth(where: str, value: Any) -> OAuth:
    if not isinstance(value, dict):
        raise InvalidSourceError(f"{where} is an object with tokenUrl")
    fields = {}
    for key, part in value.items():
        found = _OAUTH_FIELDS.get(str(key).lower())
        if found is None:
            raise InvalidSourceError(f"{where}: unknown key {quoted(str(key))}")
        fields[found[0]] = _typed(f"{where}.{key}", part, found[1])
    if not fields.get("token_url", "").startswith(("http://", "https://")):
        raise InvalidSourceError(f"{where}.tokenUrl is an http(s) URL")
    oauth = OAuth(**fields)
    if not (oauth.folder or (oauth.client_id and oauth.client_secret)):
        raise InvalidSourceError(f"{where} needs clientID and clientSecret, or their folder")
    return oauth


_NO_KUBERNETES: Final = (
    "an evaluator reads no FeatureFlag resources itself: the cluster's proxy watches them once for all; "
    'write {"uri": "<proxy>:8015", "provider": "grpc", "selector": "<namespace>/<name>"}'
)
_SCHEMES: Final = {
    "http": Provider.HTTP, "https": Provider.HTTP, "gs": Provider.GCS, "azblob": Provider.AZBLOB,
    "s3": Provider.S3, "envoy": Provider.GRPC, "dns": Provider.GRPC, "uds": Provider.GRPC,
    "xds": Provider.GRPC,
}  # fmt: skip
_SPELLED: Final[Mapping[str, tuple[str, type]]] = {
    "uri": ("uri", str), "provider": ("provider", str), "selector": ("selector", str),
    "providerID": ("provider_id", str), "bearerToken": ("bearer_token", str),
    "bearerTokenFile": ("bearer_token_file", str), "authHeader": ("auth_header", str),
    "headers": ("headers", dict), "interval": ("interval", int), "intervalSeed": ("interval_seed", str),
    "cron": ("cron", str), "timeoutS": ("timeout", int), "certPath": ("cert_path", str),
    "clientCertPath": ("client_cert_path", str), "clientKeyPath": ("client_key_path", str),
    "tls": ("tls", bool), "maxMsgSize": ("max_msg_size", int), "oauth": ("oauth", OAuth),
    "incrementalUpdates": ("incremental", bool),
}  # fmt: skip
_FIELDS: Final = {spelled.lower(): found for spelled, found in _SPELLED.items()}
_OAUTH_FIELDS: Final[Mapping[str, tuple[str, type]]] = {
    "clientid": ("client_id", str), "clientsecret": ("client_secret", str), "tokenurl": ("token_url", str),
    "folder": ("folder", str), "reloaddelays": ("reload_seconds", int),
}  # fmt: skip
