"""Builds Settings from the given options: command line over environment over configuration file."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from evaluator.flags.document import read_document
from evaluator.flags.known_operators import shorten
from evaluator.flags.model import Bucketing
from evaluator.flags.suggestions import did_you_mean
from evaluator.http.cors import Cors
from evaluator.settings import options
from evaluator.settings.options import BY_NAME, FOREIGN, OPTIONS, POD, Option, ValueKind
from evaluator.settings.settings import (
    CORS_OFF,
    TRACK_OFF,
    InvalidSettingError,
    OtelSettings,
    PodName,
    Settings,
    TlsPaths,
)
from evaluator.sync.config import (
    FILES,
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
    from collections.abc import Callable, Mapping, Sequence


DEFAULT_FILE: Final = ".agent.yaml"
_MOST_BYTES: Final = 4_000_000
_LINKS: Final = ("tcp://", "udp://", "sctp://")
"""Kubernetes sets FLAGD_PORT=tcp://… for a Service named flagd in each pod beside it, with
FLAGD_SERVICE_HOST, FLAGD_PORT_8013_TCP and the like. None of them is meant for us.
"""
_NEVER_READ: Final = frozenset({"config"})
"""Options of the command line only."""


@dataclass(frozen=True, slots=True)
class GivenOption:
    """An option's raw values, and where they were given."""

    where: str
    """The place, as messages name it."""
    values: tuple[object, ...]
    """A value for each time the option is given: a text, or a value of the file."""


def from_flags(flags: Mapping[str, Sequence[str]]) -> dict[str, GivenOption]:
    """Return the given options by name; `flags` are the texts of each option of the command line."""
    return {
        name: GivenOption(f"--{name}", tuple(texts if BY_NAME[name].many else texts[-1:]))
        for name, texts in flags.items()
    }


def from_environment(environ: Mapping[str, str]) -> tuple[dict[str, GivenOption], list[str]]:
    """Return the options of variables that are set and not empty, and warnings about unknown variables."""
    variables = {option.variable: option for option in OPTIONS if option.name not in _NEVER_READ}
    given: dict[str, GivenOption] = {}
    warnings: list[str] = []
    for variable, text in environ.items():
        option = variables.get(variable)
        if text.startswith(_LINKS):
            continue
        if option is not None and text:
            given[option.name] = GivenOption(variable, (_split_words(option, text),))
        elif option is None and _is_ours(variable):
            warnings.append(f"unknown variable {variable}{did_you_mean(variable, variables)}")
    return given, warnings


def _is_ours(variable: str) -> bool:
    ours = variable.startswith(("FLAGD_", "FLAGSTAFF_"))
    return ours and not ("_PORT_" in variable or "_SERVICE_" in variable)


def from_file(path: str, environ: Mapping[str, str]) -> tuple[dict[str, GivenOption], list[str]]:
    """Return the options of the file at `path`, else of $HOME/.agent.yaml if it exists; and warnings about
    unknown keys. As in viper, keys are converted to lower case at every depth.
    """
    file = Path(path) if path else Path(environ.get("HOME", "")) / DEFAULT_FILE
    if not path and ("HOME" not in environ or not file.is_file()):
        return {}, []
    given: dict[str, GivenOption] = {}
    warnings: list[str] = []
    for key, value in _read(file).items():
        option = BY_NAME.get(key)
        if option is None or key in _NEVER_READ:
            warnings.append(f"{file}: unknown key {shorten(key)}{did_you_mean(key, BY_NAME)}")
        elif value is not None:
            given[key] = GivenOption(f"{key} in {file}", (_split_words(option, value),))
    return given, warnings


def _split_words(option: Option, value: object) -> object:
    if option.kind is ValueKind.STRINGS and isinstance(value, str):
        return [*options.words(value)]
    return value


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidSettingError(f"--config {file} cannot be read: {error.strerror}") from None
    document = read_document(content, file=file.name)
    if document.problems:
        problem = document.problems[0]
        raise InvalidSettingError(f"{file}:{problem.line}:{problem.column}: {problem.message}")
    if not isinstance(document.value, dict):
        raise InvalidSettingError(f"{file} must be an object of options")
    lowered: dict[str, Any] = _lower_keys(document.value)
    return lowered


def _lower_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key).lower(): _lower_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_lower_keys(item) for item in value]
    return value


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


_whole_seconds: Final = partial(options.whole, bounds=(0, MAX_INTERVAL))


def _never(value: object, where: str) -> bool:
    if options.switch(value, where):
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
    **dict.fromkeys(("client_id", "client_secret", "token_url", "folder"), options.line),
    "reload_seconds": _whole_seconds,
}
_LINES: Final = (
    "uri", "provider", "selector", "provider_id", "auth_header", "bearer_token", "bearer_token_file",
    "interval_seed", "cron", "cert_path", "client_cert_path", "client_key_path", "verify_key",
)  # fmt: skip
_SOURCE: Final[Mapping[str, _Read]] = {
    **dict.fromkeys(_LINES, options.line),
    **dict.fromkeys(("interval", "timeout"), lambda value, where: float(_whole_seconds(value, where))),
    "headers": lambda value, where: options.pairs((value,), where),
    "tls": options.switch,
    "max_msg_size": partial(options.whole, bounds=(0, _MOST_MESSAGE_BYTES)),
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


_GO_HEADER_BYTES: Final = 1 << 20
_OTEL: Final = "otel."


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and warnings for the person who wrote them."""

    settings: Settings
    warnings: tuple[str, ...]


def from_env(environ: Mapping[str, str]) -> Settings:
    """Return Settings of `environ` alone, with defaults for unset variables; raises InvalidSettingError."""
    given, _ = from_environment(environ)
    return _settings(given, environ, [])


def load(flags: Mapping[str, Sequence[str]], environ: Mapping[str, str]) -> Loaded:
    """Return Settings: command line over environment over configuration file over defaults. `flags` are the
    texts given for each option, by its name. Raises InvalidSettingError.
    """
    path = flags.get("config", ("",))[-1]
    in_file, odd_keys = from_file(path, environ)
    in_environment, odd_variables = from_environment(environ)
    on_line = from_flags({name: texts for name, texts in flags.items() if name != "config"})
    warnings = [*odd_keys, *odd_variables]
    settings = _settings(in_file | in_environment | on_line, environ, warnings)
    return Loaded(settings, tuple(warnings))


def _settings(given: Mapping[str, GivenOption], environ: Mapping[str, str], warnings: list[str]) -> Settings:
    defaults = Settings()
    values: dict[str, Any] = {}
    for name, what in given.items():
        option = BY_NAME[name]
        _refuse(option, what)
        if name in {"uri", "sources", "receipts-to", "pods-from"} or (
            option.kind is ValueKind.CHOICE and what.values[-1] == ""
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
        pods_from=_pods_from(given, sources, warnings),
    )
    return _finish(settings, values)


def _refuse(option: Option, given: GivenOption) -> None:
    if option.refusal and any(_text(value) not in option.choices for value in given.values):
        raise InvalidSettingError(f"{given.where} is refused: {option.refusal}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(option: Option, given: GivenOption) -> Any:
    last, where = given.values[-1], given.where
    match option.kind:
        case ValueKind.WHOLE:
            return options.whole(last, where, option.bounds)
        case ValueKind.CHOICE:
            return options.choice(last, where, option.choices)
        case ValueKind.STRINGS | ValueKind.PAIRS:
            read = options.strings if option.kind is ValueKind.STRINGS else options.pairs
            return read(given.values, where)
        case ValueKind.DURATION | ValueKind.SWITCH:
            return (options.duration if option.kind is ValueKind.DURATION else options.switch)(last, where)
        case _:
            return options.line(_text(last), where)


def _otel(values: dict[str, Any], environ: Mapping[str, str]) -> OtelSettings:
    foreign = {
        field: options.line(environ[name], name) for name, field in FOREIGN.items() if environ.get(name)
    }
    merged = foreign | {name: value for name, value in values.items() if name.startswith(_OTEL)}
    by_option = bool(values.get("otel.collector_uri"))
    fields_ = {name.removeprefix(_OTEL): value for name, value in merged.items()}
    return OtelSettings(**fields_, by_option=by_option)


def _pod(environ: Mapping[str, str]) -> PodName:
    given = {field: options.line(environ.get(name, ""), name) for name, field in POD.items()}
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


def _sources(given: Mapping[str, GivenOption], warnings: list[str]) -> tuple[SourceConfig, ...]:
    configs: list[SourceConfig] = []
    if uris := given.get("uri"):
        configs += (parse_uri(uri, uris.where) for uri in options.strings(uris.values, uris.where))
    if sources := given.get("sources"):
        configs += parse_sources(sources.values[-1], sources.where, warnings)
    return tuple(configs)


def _pods_from(
    given: Mapping[str, GivenOption], sources: Sequence[SourceConfig], warnings: list[str]
) -> SourceConfig | None:
    what = given.get("pods-from")
    if what is None:
        return None
    servers = _servers(what, warnings)
    if len(servers) != 1 or sources:
        raise InvalidSettingError(
            f"{what.where} must be given once, and without sources: they would be every pod's"
        )
    if servers[0].selector:
        raise InvalidSettingError(f"{what.where} has no selector: each pod's flag sets are asked for")
    return servers[0]


def _servers(what: GivenOption, warnings: list[str]) -> list[SourceConfig]:
    servers = [server for value in what.values for server in parse_servers(value, what.where, warnings)]
    if any(server.provider is not Provider.GRPC for server in servers):
        raise InvalidSettingError(f"{what.where} must be a gRPC server, such as grpc://flagstaff-proxy:8015")
    return servers


def _receipts_to(
    given: Mapping[str, GivenOption], sources: Sequence[SourceConfig], warnings: list[str]
) -> tuple[SourceConfig, ...]:
    what = given.get("receipts-to")
    if what is None:
        return ()
    endpoints = _servers(what, warnings)
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
