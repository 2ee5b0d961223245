"""Each option and variable that flagd documents: taken with this effect, or refused for this reason.

Written down from flagd's own page, https://flagd.dev/reference/flagd-cli/flagd_start/ (0.13 to 0.17), not
from our table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evaluator.cli import parse
from evaluator.settings import InvalidSettingError, Settings, TlsPaths, load
from evaluator.sync.config import Provider, SourceConfig

CERTIFICATE = ("--server-cert-path", "a.pem")
KEY = ("--server-key-path", "a.key")
COLLECTOR = ("--otel-collector-uri", "collector:4317")
PAIR = TlsPaths(certificate=Path("a.pem"), key=Path("a.key"))
FILE = SourceConfig("a.json", Provider.FILE)
ORIGINS = ("https://a", "https://b")


@dataclass(frozen=True)
class Taken:
    """An option of flagd's that is taken."""

    name: str
    short: str
    default: Any
    given: str
    field: str
    """Of Settings; a dot leads into what it holds."""
    value: Any
    variable: str | None = None
    """What the variable is set to, where it is written otherwise."""
    beside: tuple[str, ...] = ()


TAKEN = [
    Taken("context-from-header", "H", {}, "X-A=a", "context_from_header", {"x-a": "a"}, '{"X-A":"a"}'),
    Taken("context-value", "X", {}, "region=eu", "context_values", {"region": "eu"}, '{"region":"eu"}'),
    Taken("cors-origin", "C", (), ",".join(ORIGINS), "cors_origins", ORIGINS, " ".join(ORIGINS)),
    Taken("debug", "x", "info", "true", "log_level", "debug"),
    Taken("disable-sync-metadata", "", False, "true", "disable_sync_metadata", True),
    Taken("keep-alive-min-time", "", 0.0, "10s", "keep_alive_min_time", 10.0),
    Taken("keep-alive-permit-without-stream", "", True, "false", "keep_alive_permit_without_stream", False),
    Taken("log-format", "z", "console", "json", "log_format", "json"),
    Taken("management-port", "m", 8014, "1", "management_port", 1),
    Taken("max-request-body", "B", 1_000_000, "0", "max_request_body", 0),
    Taken("max-request-header", "R", 65_536, "0", "max_request_header", 1 << 20),
    Taken("metrics-exporter", "t", "prometheus", "otel", "metrics_exporter", "otel", beside=COLLECTOR),
    Taken("ofrep-port", "r", 8016, "1", "ofrep_port", 1),
    Taken("ofrep-sse-enabled", "", True, "false", "ofrep_sse_enabled", False),
    Taken("ofrep-sse-inactivity-delay", "", 120, "60", "ofrep_sse_inactivity_delay", 60),
    Taken("ofrep-sse-public-url", "", "", "https://flags", "ofrep_sse_public_url", "https://flags"),
    Taken("otel-ca-path", "A", "", "ca.pem", "otel.ca_path", "ca.pem"),
    Taken("otel-cert-path", "D", "", "a.pem", "otel.cert_path", "a.pem"),
    Taken("otel-collector-uri", "o", "", "collector:4317", "otel.collector_uri", "collector:4317"),
    Taken("otel-key-path", "K", "", "a.key", "otel.key_path", "a.key"),
    Taken("otel-reload-interval", "I", 3600.0, "1m", "otel.reload_interval", 60.0),
    Taken("port", "p", 8013, "1", "port", 1),
    Taken("selector-fallback-key", "", None, "source", "", None),
    Taken("server-cert-path", "c", None, "a.pem", "server_tls", PAIR, beside=KEY),
    Taken("server-key-path", "k", None, "a.key", "server_tls", PAIR, beside=CERTIFICATE),
    Taken("socket-path", "d", "", "/run/a.sock", "socket_path", "/run/a.sock"),
    Taken("sources", "s", (), '[{"uri":"a.json","provider":"file"}]', "sources", (FILE,)),
    Taken("stream-deadline", "", 0.0, "1m", "stream_deadline", 60.0),
    Taken("sync-http-enabled", "", None, "false", "", None),
    Taken("sync-http-port", "", None, "0", "", None),
    Taken("sync-port", "g", 8015, "1", "sync_port", 1),
    Taken("sync-socket-path", "e", "", "/run/a.sock", "sync_socket_path", "/run/a.sock"),
    Taken("uri", "f", (), "file:a.json", "sources", (SourceConfig("a.json", Provider.FILE),)),
]  # fmt: skip

REFUSED = [
    ("selector-fallback-key", "flagSetId", "write selectors as key=value"),
    ("sync-http-enabled", "true", "FetchAllFlags on --sync-port answers the same"),
    ("sync-http-port", "8017", "FetchAllFlags on --sync-port answers the same"),
    ("uri", "core.openfeature.dev/ns/name", "the evaluator has no access to Kubernetes"),
    ("sources", '[{"uri":"ns/name","provider":"kubernetes"}]', "the evaluator has no access to"),
    ("sync-provider", "file", "give each source its provider in --sources"),
    ("sync-provider-args", "a=b", "give each source its fields in --sources"),
    ("bearer-token", "hidden", "give the source an authHeader in --sources"),
    ("service-provider", "http", "every protocol is always served"),
    ("evaluator", "yaml", "there is one"),
    ("metrics-port", "8014", "use --management-port"),
]

taken = pytest.mark.parametrize("option", TAKEN, ids=lambda option: option.name)


def settings(words: list[str], environ: dict[str, str] | None = None) -> Settings:
    return load(parse(["start", *words]), environ or {}).settings


def field(found: Settings, name: str) -> Any:
    value: Any = found if name else None
    for part in filter(None, name.split(".")):
        value = getattr(value, part)
    return value


@taken
def test_it_is_taken_with_its_effect(option: Taken) -> None:
    for words in ([f"--{option.name}={option.given}"], [f"--{option.name}", option.given]):
        assert field(settings([*words, *option.beside]), option.field) == option.value


@pytest.mark.parametrize(
    "option", [option for option in TAKEN if option.short], ids=lambda option: option.name
)
def test_its_letter_says_the_same(option: Taken) -> None:
    for words in ([f"-{option.short}", option.given], [f"-{option.short}={option.given}"]):
        assert field(settings([*words, *option.beside]), option.field) == option.value


@taken
def test_its_variable_says_the_same(option: Taken) -> None:
    name = "FLAGD_" + option.name.upper().replace("-", "_")
    environ = {name: option.variable or option.given}
    assert field(settings([*option.beside], environ), option.field) == option.value


@taken
def test_its_default_is_flagds(option: Taken) -> None:
    assert field(settings([]), option.field) == option.default


@pytest.mark.parametrize("letters", [["-x"], ["--debug"], ["-x=true"], ["--debug=t"]])
def test_a_switch_may_stand_alone(letters: list[str]) -> None:
    assert settings([*letters, "-p", "1"]).log_level == "debug"


def test_a_list_is_repeated_or_parted_and_sources_follow_uris() -> None:
    words = ["-f", "file:a.json,file:b.json", "--uri", "file:c.json"]
    words += ["--sources", '[{"uri":"d.json","provider":"file"}]']
    assert [source.uri for source in settings(words).sources] == ["a.json", "b.json", "c.json", "d.json"]


@pytest.mark.parametrize(("name", "given", "reason"), REFUSED)
def test_it_is_refused_for_a_reason(name: str, given: str, reason: str) -> None:
    with pytest.raises(InvalidSettingError, match=f"--{name}.* is refused: .*{reason}") as caught:
        settings([f"--{name}", given])
    assert "hidden" not in str(caught.value)
    with pytest.raises(InvalidSettingError, match=f"FLAGD_{name.upper().replace('-', '_')}.*refus"):
        settings([], {"FLAGD_" + name.upper().replace("-", "_"): given})
