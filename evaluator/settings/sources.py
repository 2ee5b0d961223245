"""Reads the options of sources, as flagd does: `--uri` by prefix, `--sources` by field."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from evaluator.flags.checking.known_operators import shorten
from evaluator.flags.checking.suggestions import did_you_mean
from evaluator.settings import parsing
from evaluator.settings.settings import InvalidSettingError
from evaluator.sync.config import (
    MAX_INTERVAL,
    InvalidSourceError,
    OAuth,
    Provider,
    SourceConfig,
    check,
    json_key,
)
from evaluator.sync.config import display_uri as shown_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KUBERNETES: Final = (
    "the evaluator has no access to Kubernetes; take the flag set from the proxy instead, such as "
    '{"uri":"HOST:8015","provider":"grpc","selector":"NAMESPACE/NAME"}'
)
_FORMS: Final = "file:, http(s)://, grpc(s)://, envoy://, dns://, uds://, xds://, gs://, azblob:// or s3://"
_CUT: Final = {"file:": Provider.FILE, "grpc://": Provider.GRPC, "grpcs://": Provider.GRPC}
"""Prefixes that are removed from the source's name."""
_KEPT: Final = {
    "http://": Provider.HTTP, "https://": Provider.HTTP, "gs://": Provider.GCS, "azblob://": Provider.AZBLOB,
    "s3://": Provider.S3,
} | dict.fromkeys(("envoy://", "dns://", "uds://", "xds://"), Provider.GRPC)  # fmt: skip
_MOST_MESSAGE_BYTES: Final = 2**31 - 1
_Read: TypeAlias = "Callable[[object, str], Any]"
"""(value, place for messages) → setting; raises InvalidSettingError."""


_whole_seconds: Final = partial(parsing.whole, bounds=(0, MAX_INTERVAL))


def _never(value: object, where: str) -> bool:
    if parsing.switch(value, where):
        raise InvalidSettingError(
            f"{where} is refused: a source always delivers all that it has, and nothing is kept of before"
        )
    return False


def _oauth(value: object, where: str) -> OAuth:
    if not isinstance(value, dict):
        raise InvalidSettingError(f"{where} is {shorten(value)}: must be an object")
    fields = _fields(value, where, _OAUTH, None)
    if not fields.get("folder") and not (fields.get("client_id") and fields.get("client_secret")):
        raise InvalidSettingError(f"{where} needs clientID and clientSecret, or a folder with both")
    if not fields.get("token_url"):
        raise InvalidSettingError(f"{where} needs a tokenURL")
    return OAuth(**fields)


_OAUTH: Final[Mapping[str, _Read]] = {
    **dict.fromkeys(("client_id", "client_secret", "token_url", "folder"), parsing.line),
    "reload_seconds": _whole_seconds,
}
_LINES: Final = (
    "uri", "provider", "selector", "provider_id", "auth_header", "bearer_token", "bearer_token_file",
    "interval_seed", "cron", "cert_path", "client_cert_path", "client_key_path",
)  # fmt: skip
_SOURCE: Final[Mapping[str, _Read]] = {
    **dict.fromkeys(_LINES, parsing.line),
    **dict.fromkeys(("interval", "timeout"), lambda value, where: float(_whole_seconds(value, where))),
    "headers": lambda value, where: parsing.pairs((value,), where),
    "tls": parsing.switch,
    "max_msg_size": partial(parsing.whole, bounds=(0, _MOST_MESSAGE_BYTES)),
    "incremental_updates": _never,
    "oauth": _oauth,
}
"""Readers of SourceConfig's fields; `json_key` gives the JSON name, which Go accepts in any case."""


def parse_uri(uri: str, where: str) -> SourceConfig:
    """Return the source of a `--uri`, by its prefix."""
    if uri.startswith("core.openfeature.dev"):
        raise InvalidSettingError(f"{where} {uri} is refused: {KUBERNETES}")
    for prefix, provider in (_CUT | _KEPT).items():
        if uri.startswith(prefix):
            kept = uri.removeprefix(prefix) if prefix in _CUT else uri
            return _check_source(SourceConfig(kept, provider, tls=prefix == "grpcs://"), where)
    raise InvalidSettingError(f"{where} {shorten(shown_uri(uri))} must start with {_FORMS}")


def parse_sources(given: object, where: str, warnings: list[str]) -> list[SourceConfig]:
    """Return the sources of a JSON array, as text or parsed; and a warning for each unknown field."""
    if isinstance(given, str):
        given = _json(given, where)
    if not isinstance(given, list):
        raise InvalidSettingError(f"{where} is {shorten(given)}: must be an array of sources")
    return [_source(item, f"{where}[{index}]", warnings) for index, item in enumerate(given)]


def parse_servers(given: object, where: str, warnings: list[str]) -> list[SourceConfig]:
    """Return one source, or those of an array: configuration file and environment give an option once."""
    if isinstance(given, str) and given.lstrip().startswith("["):
        given = _json(given, where)
    if isinstance(given, list):
        return [_server(item, f"{where}[{index}]", warnings) for index, item in enumerate(given)]
    return [_server(given, where, warnings)]


def _server(given: object, where: str, warnings: list[str]) -> SourceConfig:
    """Return the source of a URI, of a JSON object as text, or of a parsed object."""
    if not isinstance(given, str):
        return _source(given, where, warnings)
    if given.lstrip().startswith("{"):
        return _source(_json(given, where), where, warnings)
    return parse_uri(given, where)


def _json(text: str, where: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSettingError(f"{where} is not valid JSON: {error}") from None


def _source(given: object, where: str, warnings: list[str]) -> SourceConfig:
    if not isinstance(given, dict):
        raise InvalidSettingError(f"{where} is {shorten(given)}: must be an object")
    fields = _fields(given, where, _SOURCE, warnings)
    for name in ("uri", "provider"):
        if not fields.get(name):
            raise InvalidSettingError(f"{where} needs a {name}")
    if fields["provider"] == "kubernetes":
        raise InvalidSettingError(f"{where}.provider is refused: {KUBERNETES}")
    if fields["provider"] not in tuple(Provider):
        raise InvalidSettingError(
            f"{where}.provider is {shorten(fields['provider'])}: must be one of {', '.join(Provider)}"
        )
    fields["provider"] = Provider(fields["provider"])
    for name in ("interval", "timeout"):
        if fields.get(name) == 0:
            # Go's zero value counts as not given.
            del fields[name]
    return _check_source(SourceConfig(**fields), where)


def _check_source(source: SourceConfig, where: str) -> SourceConfig:
    try:
        return check(source)
    except InvalidSourceError as error:
        raise InvalidSettingError(f"{where}: {error}") from None


def _fields(
    given: Mapping[str, object], where: str, known: Mapping[str, _Read], warnings: list[str] | None
) -> dict[str, Any]:
    by_case = {json_key(field).lower(): field for field in known}
    fields: dict[str, Any] = {}
    for key, value in given.items():
        field = by_case.get(key.lower())
        if field is None:
            unknown = f"unknown field {where}.{key}{did_you_mean(key, map(json_key, known))}"
            if warnings is None:
                raise InvalidSettingError(unknown)
            warnings.append(unknown)
            continue
        if value is not None:
            fields[field] = known[field](value, f"{where}.{json_key(field)}")
    fields.pop("incremental_updates", None)
    return fields
