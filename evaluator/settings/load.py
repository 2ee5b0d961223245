"""Builds Settings from the given options."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from evaluator.flags.model import Bucketing
from evaluator.http.server.cors import Cors
from evaluator.settings import layers, parsing
from evaluator.settings.options import BY_NAME, FOREIGN, POD, Kind, Option
from evaluator.settings.settings import (
    CORS_OFF,
    TRACK_OFF,
    InvalidSettingError,
    OtelSettings,
    PodName,
    Settings,
    TlsPaths,
)
from evaluator.settings.sources import parse_servers, parse_sources, parse_uri
from evaluator.sync.config import FILES, Provider

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evaluator.settings.layers import Given
    from evaluator.sync.config import SourceConfig

_GO_HEADER_BYTES: Final = 1 << 20
_OTEL: Final = "otel."


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and warnings for the person who wrote them."""

    settings: Settings
    warnings: tuple[str, ...]


def from_env(environ: Mapping[str, str]) -> Settings:
    """Return Settings of `environ` alone, with defaults for unset variables; raises InvalidSettingError."""
    given, _ = layers.from_environment(environ)
    return _settings(given, environ, [])


def load(flags: Mapping[str, Sequence[str]], environ: Mapping[str, str]) -> Loaded:
    """Return Settings: command line over environment over configuration file over defaults. `flags` are the
    texts given for each option, by its name. Raises InvalidSettingError.
    """
    path = flags.get("config", ("",))[-1]
    in_file, odd_keys = layers.from_file(path, environ)
    in_environment, odd_variables = layers.from_environment(environ)
    on_line = layers.from_flags({name: texts for name, texts in flags.items() if name != "config"})
    warnings = [*odd_keys, *odd_variables]
    settings = _settings(in_file | in_environment | on_line, environ, warnings)
    return Loaded(settings, tuple(warnings))


def _settings(given: Mapping[str, Given], environ: Mapping[str, str], warnings: list[str]) -> Settings:
    defaults = Settings()
    values: dict[str, Any] = {}
    for name, what in given.items():
        option = BY_NAME[name]
        _refuse(option, what)
        if name in {"uri", "sources", "receipts-to"} or (
            option.kind is Kind.CHOICE and what.values[-1] == ""
        ):
            continue
        values[option.target if option.target != "-" else name] = _value(option, what)
    otel = _otel(values, environ)
    if otel.collector_uri and "OTEL_EXPORTER_OTLP_ENDPOINT" in environ:
        values.setdefault("metrics_exporter", "otel")
    if values.get("metrics_exporter") == "otel" and not otel.collector_uri:
        raise InvalidSettingError(
            f"{given['metrics-exporter'].where} is otel: --otel-collector-uri must say where to"
        )
    authority = Path(values["client-ca-path"]) if values.get("client-ca-path") else None
    named = {field.name for field in fields(Settings)}
    sources = _sources(given, warnings)
    settings = replace(
        defaults,
        **{name: value for name, value in values.items() if name in named},
        otel=otel,
        pod=_pod(environ),
        server_tls=_tls(values, "", authority),
        ofrep_tls=_tls(values, "ofrep-", authority),
        management_tls=_tls(values, "management-", None),
        sources=sources,
        receipts_to=_receipts_to(given, sources, warnings),
    )
    return _finish(settings, values)


def _refuse(option: Option, given: Given) -> None:
    if option.refusal and any(_text(value) not in option.choices for value in given.values):
        raise InvalidSettingError(f"{given.where} is refused: {option.refusal}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(option: Option, given: Given) -> Any:
    last, where = given.values[-1], given.where
    match option.kind:
        case Kind.WHOLE:
            return parsing.whole(last, where, option.bounds)
        case Kind.CHOICE:
            return parsing.choice(last, where, option.choices)
        case Kind.STRINGS | Kind.PAIRS:
            read = parsing.strings if option.kind is Kind.STRINGS else parsing.pairs
            return read(given.values, where)
        case Kind.DURATION | Kind.SWITCH:
            return (parsing.duration if option.kind is Kind.DURATION else parsing.switch)(last, where)
        case _:
            return parsing.line(_text(last), where)


def _otel(values: dict[str, Any], environ: Mapping[str, str]) -> OtelSettings:
    foreign = {
        field: parsing.line(environ[name], name) for name, field in FOREIGN.items() if environ.get(name)
    }
    merged = foreign | {name: value for name, value in values.items() if name.startswith(_OTEL)}
    by_option = bool(values.get("otel.collector_uri"))
    fields_ = {name.removeprefix(_OTEL): value for name, value in merged.items()}
    return OtelSettings(**fields_, by_option=by_option)


def _pod(environ: Mapping[str, str]) -> PodName:
    given = {field: parsing.line(environ.get(name, ""), name) for name, field in POD.items()}
    return PodName(**given)


def _tls(values: Mapping[str, Any], port: str, client_ca: Path | None) -> TlsPaths | None:
    names = (f"{port}server-cert-path", f"{port}server-key-path")
    certificate, key = (values.get(name, "") for name in names)
    if bool(certificate) != bool(key):
        missing, other = names if key else names[::-1]
        raise InvalidSettingError(f"--{other} needs --{missing} beside it")
    if not certificate:
        return None
    return TlsPaths(certificate=Path(certificate), key=Path(key), client_ca=client_ca)


def _sources(given: Mapping[str, Given], warnings: list[str]) -> tuple[SourceConfig, ...]:
    configs: list[SourceConfig] = []
    if uris := given.get("uri"):
        configs += (parse_uri(uri, uris.where) for uri in parsing.strings(uris.values, uris.where))
    if sources := given.get("sources"):
        configs += parse_sources(sources.values[-1], sources.where, warnings)
    return tuple(configs)


def _receipts_to(
    given: Mapping[str, Given], sources: Sequence[SourceConfig], warnings: list[str]
) -> tuple[SourceConfig, ...]:
    what = given.get("receipts-to")
    if what is None:
        return ()
    endpoints = [server for value in what.values for server in parse_servers(value, what.where, warnings)]
    if any(endpoint.provider is not Provider.GRPC for endpoint in endpoints):
        raise InvalidSettingError(f"{what.where} must be a gRPC server, such as grpc://flagstaff-proxy:8015")
    files = sum(source.provider in FILES for source in sources)
    if files != len(endpoints):
        raise InvalidSettingError(
            f"{what.where} must be given once for each source that is a file, in their order: there are "
            f"{files} of these, and it is given {len(endpoints)} times"
        )
    return tuple(endpoints)


def _finish(settings: Settings, values: Mapping[str, Any]) -> Settings:
    headers = {name.lower(): key for name, key in settings.context_from_header.items()}
    try:
        Cors(settings.cors_origins)
    except ValueError as error:
        raise InvalidSettingError(f"--cors-origin: {error}") from None
    if CORS_OFF in settings.cors_origins and len(settings.cors_origins) > 1:
        raise InvalidSettingError(f"--cors-origin: {CORS_OFF} stands alone, or origins without it")
    if TRACK_OFF in settings.track_events and len(settings.track_events) > 1:
        raise InvalidSettingError(f"--track-events: {TRACK_OFF} stands alone, or names without it")
    return replace(
        settings,
        context_from_header=headers,
        state_dir=Path(cast("str", settings.state_dir)) if settings.state_dir else None,
        bucketing=Bucketing(settings.bucketing),
        max_request_header=settings.max_request_header or _GO_HEADER_BYTES,
        log_level="debug" if values.get("debug") else settings.log_level,
    )
