"""The one table of options: parser, environment, configuration file and documents all follow it.

pflag reads flagd's command line and viper's `cast` the rest, so lists, pairs, durations and switches have the
syntax of those two; where `cast` silently gives zero for an invalid value, this raises an error.

flagd's are those of https://flagd.dev/reference/flagd-cli/flagd_start/; each is accepted, or refused with the
reason. A variable is the option's name in capitals after `FLAGD_`, or `FLAGSTAFF_` for an option that flagd
does not have.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from evaluator.flags.known_operators import shorten
from evaluator.host.times import parse_duration
from evaluator.settings.settings import InvalidSettingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_LONGEST: Final = 2**63 / 1e9
"""Most seconds of a Go duration."""
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def duration(value: object, where: str) -> float:
    """Return the seconds of a duration in Go's syntax: `0`, or such as `1m30s`."""
    text = str(value).removeprefix("+") if isinstance(value, str | int) else ""
    seconds = parse_duration(text)
    if seconds is None or seconds > _LONGEST:
        raise InvalidSettingError(
            f"{where} is {shorten(value)}, which is not a valid duration; use 10s, 5m or 1h15m"
        )
    return seconds


def whole(value: object, where: str, bounds: tuple[int, int]) -> int:
    """Return a whole number within `bounds`, both included."""
    lowest, highest = bounds
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not (text.isascii() and text.isdigit() and len(text) <= 20) or not lowest <= int(text) <= highest:
        raise InvalidSettingError(
            f"{where} is {shorten(value)}: must be a whole number from {lowest} to {highest}"
        )
    return int(text)


def switch(value: object, where: str) -> bool:
    """Return the value of a switch, by Go's ParseBool."""
    text = value if isinstance(value, str) else json.dumps(value)
    if text not in _TRUE | _FALSE:
        raise InvalidSettingError(f"{where} is {shorten(value)}: must be true or false")
    return text in _TRUE


def line(value: object, where: str) -> str:
    """Return a text without control characters, which is safe to print and to open."""
    if not isinstance(value, str) or not value.isprintable():
        raise InvalidSettingError(f"{where} must be a printable text")
    return value


def choice(value: object, where: str, choices: Sequence[str]) -> str:
    """Return one of `choices`."""
    if value not in choices:
        raise InvalidSettingError(f"{where} is {shorten(value)}: must be {' or '.join(choices)}")
    return str(value)


def strings(values: Iterable[object], where: str) -> tuple[str, ...]:
    """Return all values of an option given several times, each a list, or texts quoted as in CSV."""
    items: list[str] = []
    for value in values:
        items += value if isinstance(value, list) else _split(value, where)
    return tuple(line(item, where) for item in items)


def words(text: str) -> tuple[str, ...]:
    """Return a variable's items: viper splits at white space, pflag at commas; both are accepted."""
    return tuple(filter(None, re.split(r"[\s,]+", text)))


def pairs(values: Iterable[object], where: str) -> dict[str, str]:
    """Return the pairs of `key=value` texts, a JSON object as text, or a mapping; later keys win."""
    pairs: dict[str, str] = {}
    for value in values:
        mapping = _mapping(value, where)
        if mapping is not None:
            pairs |= {str(key): _plain(item, where) for key, item in mapping.items()}
            continue
        text = str(value)
        # As in pflag, a single pair is not split, so that its value may hold commas.
        items = [text.strip('"')] if text.count("=") == 1 else _split(text, where)
        for item in items:
            key, equals, rest = item.partition("=")
            if not (key and equals):
                raise InvalidSettingError(
                    f"{where} has {shorten(item)}: must be key=value, separated by commas"
                )
            pairs[key] = rest
    return pairs


def _mapping(value: object, where: str) -> dict[object, object] | None:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except ValueError:
            raise InvalidSettingError(f"{where} begins like a JSON object and is not valid JSON") from None
    if isinstance(value, dict):
        return value
    if isinstance(value, str):
        return None
    raise InvalidSettingError(f"{where} is {shorten(value)}: must be a mapping of keys to values")


def _plain(value: object, where: str) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, dict | list):
        raise InvalidSettingError(f"{where} has {shorten(value)} as a value: must be a text")
    return json.dumps(value)


def _split(value: object, where: str) -> list[str]:
    if not isinstance(value, str):
        raise InvalidSettingError(f"{where} is {shorten(value)}: must be a list of texts")
    try:
        return next(csv.reader([value], strict=True), [])
    except csv.Error as error:
        raise InvalidSettingError(f"{where} is not a comma-separated list: {error}") from None


class ValueKind(Enum):
    """The type of an option's value."""

    LINE = "text"
    PATH = "path"
    WHOLE = "number"
    DURATION = "duration"
    SWITCH = "true or false"
    CHOICE = "one of"
    STRINGS = "list"
    PAIRS = "key=value"
    SOURCES = "JSON"
    SERVERS = "server"


_PORT: Final = (0, 65_535)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option under all its names."""

    name: str
    help: str
    short: str = ""
    kind: ValueKind = ValueKind.LINE
    field: str = ""
    """Field of Settings, if it differs from the name; `otel.x` is a field of OtelSettings, `-` is none."""
    bounds: tuple[int, int] = (0, 2**31 - 1)
    choices: tuple[str, ...] = ()
    """Accepted values; of a refused option, values that match the present behaviour anyway."""
    refusal: str = ""
    """Why a value outside of `choices` is refused, and what to do."""
    flagd: bool = True
    """Whether flagd has, or had, this option."""

    @property
    def variable(self) -> str:
        """The option's environment variable."""
        prefix = "FLAGD_" if self.flagd else "FLAGSTAFF_"
        return prefix + self.name.upper().replace("-", "_")

    @property
    def target(self) -> str:
        """The field that the option sets."""
        return self.field or self.name.replace("-", "_")

    @property
    def many(self) -> bool:
        """Whether the option may be given several times."""
        return self.kind in {ValueKind.STRINGS, ValueKind.PAIRS, ValueKind.SERVERS}


def _removed_option(name: str, instead: str, short: str = "") -> Option:
    refusal = f"flagd dropped it; {instead}"
    return Option(name=name, short=short, help="dropped by flagd", field="-", refusal=refusal)


_LISTENING: Final = (
    Option(name="port", short="p", kind=ValueKind.WHOLE, bounds=_PORT,
           help="evaluation: gRPC, gRPC-Web, Connect"),
    Option(name="management-port", short="m", kind=ValueKind.WHOLE, bounds=_PORT,
           help="health, readiness, metrics"),
    Option(name="sync-port", short="g", kind=ValueKind.WHOLE, bounds=_PORT,
           help="flagd.sync.v1, for in-process providers"),
    Option(name="ofrep-port", short="r", kind=ValueKind.WHOLE, bounds=_PORT, help="OFREP"),
    Option(name="socket-path", short="d", kind=ValueKind.PATH,
           help="Unix socket in place of the evaluation port"),
    Option(name="sync-socket-path", short="e", kind=ValueKind.PATH,
           help="Unix socket in place of the sync port"),
    Option(name="server-cert-path", short="c", kind=ValueKind.PATH, field="-",
           help="TLS certificate of evaluation and sync"),
    Option(name="server-key-path", short="k", kind=ValueKind.PATH, field="-", help="its key"),
    Option(name="cors-origin", short="C", kind=ValueKind.STRINGS, field="cors_origins",
           help="origins that browsers may ask from; unset or *: all; off: none"),
)  # fmt: skip

_FLAGS: Final = (
    Option(name="uri", short="f", kind=ValueKind.STRINGS, field="-",
           help="where flags come from; repeat, a later one wins"),
    Option(name="sources", short="s", kind=ValueKind.SOURCES, field="-",
           help="the same as a JSON array of objects, with all their fields"),
    Option(name="context-value", short="X", kind=ValueKind.PAIRS, field="context_values",
           help="JSON object merged into every evaluation context"),
    Option(name="context-from-header", short="H", kind=ValueKind.PAIRS, help="context key by request header"),
    Option(
        name="selector-fallback-key", field="-", choices=("source",),
        help="key that a selector without a key refers to",
        refusal="a selector without a key is a source's name, as in flagd since it dropped this; "
        "write selectors as key=value",
    ),
)  # fmt: skip

_STREAMS: Final = (
    Option(name="stream-deadline", kind=ValueKind.DURATION,
           help="event and sync streams end after this; 0: never"),
    Option(name="disable-sync-metadata", kind=ValueKind.SWITCH, help="GetMetadata of sync is unimplemented"),
    Option(
        name="keep-alive-min-time", kind=ValueKind.DURATION,
        help="least time between a sync client's pings; 0: any",
    ),
    Option(
        name="keep-alive-permit-without-stream", kind=ValueKind.SWITCH,
        help="sync clients may ping without a stream",
    ),
    Option(
        name="sync-http-port", kind=ValueKind.WHOLE, field="-", choices=("0",),
        help="flagd's port of GET /v1/flags",
        refusal="GET /v1/flags is not offered; FetchAllFlags on --sync-port answers the same",
    ),
    Option(
        name="sync-http-enabled", kind=ValueKind.SWITCH, field="-", choices=("false",),
        help="GET /v1/flags on the sync port",
        refusal="GET /v1/flags is not offered; FetchAllFlags on --sync-port answers the same",
    ),
    Option(name="ofrep-sse-enabled", kind=ValueKind.SWITCH, help="OFREP's event stream"),
    Option(name="ofrep-sse-inactivity-delay", kind=ValueKind.WHOLE, bounds=(1, 86_400),
           help="seconds after which clients close an idle event stream"),
    Option(name="ofrep-sse-public-url", help="origin that clients find the event stream at"),
    Option(name="max-request-body", short="B", kind=ValueKind.WHOLE, help="bytes; 0: no limit"),
    Option(name="max-request-header", short="R", kind=ValueKind.WHOLE, help="bytes; 0: 1 MiB, Go's default"),
)  # fmt: skip

_TELLING: Final = (
    Option(name="log-format", short="z", kind=ValueKind.CHOICE, choices=("console", "json"),
           help="form of the log on standard error"),
    Option(name="debug", short="x", kind=ValueKind.SWITCH, field="-", help="the same as --log-level debug"),
    Option(name="metrics-exporter", short="t", kind=ValueKind.CHOICE, choices=("prometheus", "otel"),
           help="otel: metrics are also sent to the collector"),
    Option(name="otel-collector-uri", short="o", field="otel.collector_uri",
           help="where metrics and traces go by OTLP"),
    Option(name="otel-cert-path", short="D", kind=ValueKind.PATH, field="otel.cert_path",
           help="client certificate for the collector"),
    Option(name="otel-key-path", short="K", kind=ValueKind.PATH, field="otel.key_path", help="its key"),
    Option(name="otel-ca-path", short="A", kind=ValueKind.PATH, field="otel.ca_path",
           help="authority of the collector's certificate"),
    Option(name="otel-reload-interval", short="I", kind=ValueKind.DURATION, field="otel.reload_interval",
           help="how often these are read again"),
    Option(name="config", kind=ValueKind.PATH, field="-",
           help="JSON or YAML file of options; default $HOME/.agent.yaml if it is there"),
)  # fmt: skip

_GONE: Final = (
    _removed_option("sync-provider", "give each source its provider in --sources", "y"),
    _removed_option("sync-provider-args", "give each source its fields in --sources", "a"),
    _removed_option("bearer-token", "give the source an authHeader in --sources", "b"),
    _removed_option("service-provider", "every protocol is always served"),
    Option(
        name="evaluator",
        field="-",
        choices=("json",),
        help="dropped by flagd",
        refusal="flagd dropped it; there is one, for JSON and YAML",
    ),
    _removed_option("metrics-port", "use --management-port"),
)

_OURS: Final = (
    Option(name="host", flagd=False, help="address that all ports listen on"),
    Option(name="management-host", flagd=False,
           help="address of the management port, where it is another than --host"),
    Option(name="ofrep-host", flagd=False, help="address of the OFREP port, likewise"),
    Option(name="sync-host", flagd=False, help="address of the sync port, likewise"),
    Option(name="ofrep-socket-path", flagd=False, kind=ValueKind.PATH,
           help="Unix socket in place of the OFREP port"),
    Option(name="socket-mode", flagd=False, kind=ValueKind.CHOICE, choices=("0660", "0666"),
           help="who may connect to Unix sockets: owner and group, or all who can reach their folder"),
    Option(name="ofrep-server-cert-path", flagd=False, kind=ValueKind.PATH, field="-",
           help="TLS certificate of OFREP"),
    Option(name="ofrep-server-key-path", flagd=False, kind=ValueKind.PATH, field="-", help="its key"),
    Option(name="management-server-cert-path", flagd=False, kind=ValueKind.PATH, field="-",
           help="TLS certificate of management"),
    Option(name="management-server-key-path", flagd=False, kind=ValueKind.PATH, field="-", help="its key"),
    Option(name="client-ca-path", flagd=False, kind=ValueKind.PATH, field="-",
           help="authority of client certificates, which every TLS port but management then asks for"),
    Option(name="state-dir", flagd=False, kind=ValueKind.PATH,
           help="keep the last good flags here, and start from them"),
    Option(name="start-deadline", flagd=False, kind=ValueKind.DURATION,
           help="/startz is 200 after this, though there are no flags yet; 0: not before there are"),
    Option(name="receipts", flagd=False, kind=ValueKind.CHOICE, choices=("on", "off"),
           help="send receipts to gRPC sources that accept them: which flag set is served"),
    Option(name="receipts-to", flagd=False, kind=ValueKind.SERVERS,
           help="gRPC server that receives what is served of a file, as a URI or a JSON object of --sources; "
           "once for each file, in their order"),
    Option(name="pods-from", flagd=False, kind=ValueKind.SERVERS,
           help="proxy that says which pod of this node has an address, and has its flag sets, as a JSON "
           "object of --sources; every pod gets its own sets, and no others"),
    Option(name="max-flag-sets", flagd=False, kind=ValueKind.WHOLE, bounds=(1, 10_000),
           help="flag sets that are kept for the pods of --pods-from"),
    Option(name="max-connections", flagd=False, kind=ValueKind.WHOLE, bounds=(1, 1_000_000),
           help="open connections of a port"),
    Option(name="max-connections-per-host", flagd=False, kind=ValueKind.WHOLE, bounds=(1, 1_000_000),
           help="open connections of a port from one address"),
    Option(name="max-buffered-bytes", flagd=False, kind=ValueKind.WHOLE, bounds=(65_536, 2**40),
           help="bytes of requests and unread answers that a port keeps; "
           "beyond it the largest connection is refused"),
    Option(name="bucketing", flagd=False, kind=ValueKind.CHOICE, choices=("v2", "v3"),
           help="generation of fractional for sets that do not pin their own"),
    Option(name="show-bucketing", flagd=False, kind=ValueKind.SWITCH,
           help="name that generation in every answer's metadata"),
    Option(name="track-events", flagd=False, kind=ValueKind.STRINGS,
           help="events that POST /track counts for flags in rollouts; unset or *: all; off: none"),
    Option(name="log-level", flagd=False, kind=ValueKind.CHOICE,
           choices=("debug", "info", "warning", "error"), help="least level that is logged"),
)  # fmt: skip

OPTIONS: Final = (*_LISTENING, *_FLAGS, *_STREAMS, *_TELLING, *_GONE, *_OURS)
BY_NAME: Final = {option.name: option for option in OPTIONS}

FOREIGN: Final = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "otel.collector_uri",
    "OTEL_EXPORTER_OTLP_HEADERS": "otel.headers",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "otel.protocol",
}
"""OpenTelemetry's own variables, which flagd reads, too; an endpoint also selects the exporter `otel`."""
POD: Final = {"POD_NAME": "name", "POD_NAMESPACE": "namespace", "POD_UID": "uid", "NODE_NAME": "node"}
"""Variables in which a pod's manifest sets its name and namespace."""
