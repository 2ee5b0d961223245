from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from evaluator.settings import InvalidSettingError, Settings, from_env, load
from evaluator.settings.options import OPTIONS, ValueKind
from evaluator.settings.settings import PodName
from evaluator.sync.config import Provider, SourceConfig

FILE = ("file:flags.json",)
ONE = (SourceConfig(uri="flags.json", provider=Provider.FILE),)


def test_nothing_given_gives_flagds_defaults() -> None:
    settings = from_env({})
    assert settings == Settings()
    ports = (settings.port, settings.management_port, settings.sync_port, settings.ofrep_port)
    assert ports == (8013, 8014, 8015, 8016)


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "flagd.json"
    file.write_text(json.dumps({"port": 1, "sync-port": 1, "ofrep-port": 1, "uri": [*FILE]}))
    found = load({"config": [str(file)], "port": ["3"]}, {"FLAGD_PORT": "2", "FLAGD_SYNC_PORT": "2"}).settings
    assert (found.port, found.sync_port, found.ofrep_port) == (3, 2, 1)
    assert found.sources == ONE


def test_a_file_of_yaml_has_keys_in_any_case_and_gives_them_in_lower_case(tmp_path: Path) -> None:
    file = tmp_path / "flagd.yaml"
    file.write_text("Port: 7\ncontext-value:\n  InjectedMetadata: set\nDEBUG: true\n")
    found = load({"config": [str(file)]}, {}).settings
    assert (found.port, found.context_values) == (7, {"injectedmetadata": "set"})
    assert found.log_level == "debug"


def test_the_file_at_home_is_read_where_none_is_named(tmp_path: Path) -> None:
    (tmp_path / ".agent.yaml").write_text("uri: file:flags.json\n")
    assert load({}, {"HOME": str(tmp_path)}).settings.sources == ONE
    assert load({}, {"HOME": str(tmp_path / "elsewhere")}).settings.sources == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "flagd.json:1:1"),
        ("[]", "must be an object of options"),
        ('{"port": "many"}', "port in .*flagd.json is"),
        ('{"sources": [{"uri": "a"}]}', r"sources in .*flagd.json\[0\] needs a provider"),
    ],
    ids=["no JSON", "no object", "bad value", "bad source"],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "flagd.json"
    file.write_text(content)
    with pytest.raises(InvalidSettingError, match=said):
        load({"config": [str(file)]}, {})


def test_a_named_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match=r"cannot be read: No such file"):
        load({"config": [str(tmp_path / "none.json")]}, {})


def test_an_unknown_variable_is_warned_of_with_a_guess() -> None:
    (warning,) = load({}, {"FLAGD_PROT": "1"}).warnings
    assert warning == 'unknown variable FLAGD_PROT (did you mean "FLAGD_PORT"?)'


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("FLAGD_PORT", "tcp://10.0.0.1:8013"),
        ("FLAGSTAFF_PORT", "tcp://10.0.0.1:8013"),
        ("FLAGD_PORT_8013_TCP", "tcp://10.0.0.1:8013"),
        ("FLAGD_PORT_8013_TCP_PORT", "8013"),
        ("FLAGD_SERVICE_HOST", "10.0.0.1"),
        ("FLAGD_SERVICE_PORT_GRPC", "8013"),
        ("PATH", "/bin"),
    ],
)
def test_what_kubernetes_and_others_set_is_not_meant_for_us(variable: str, text: str) -> None:
    found = load({}, {variable: text})
    assert (found.settings, found.warnings) == (Settings(), ())


def test_an_unknown_key_of_the_file_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "flagd.yaml"
    file.write_text("ports: 1\n")
    (warning,) = load({"config": [str(file)]}, {}).warnings
    assert warning.endswith('unknown key "ports" (did you mean "port"?)')


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.name != "config"])
def test_an_empty_variable_is_as_good_as_none(option: object) -> None:
    assert from_env({option.variable: ""}) == Settings()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("FLAGD_PORT", "65536"), ("FLAGD_STREAM_DEADLINE", "10"), ("FLAGD_CONTEXT_VALUE", "region"),
        ("FLAGD_LOG_FORMAT", "xml"), ("FLAGD_URI", "flags.json"), ("FLAGD_METRICS_EXPORTER", "otel"),
        ("FLAGD_SOURCES", "{"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidSettingError, match=name):
        from_env({name: text})


@pytest.mark.parametrize("port", ["", "ofrep-", "management-"])
def test_a_certificate_without_its_key_is_refused(port: str) -> None:
    with pytest.raises(InvalidSettingError, match=f"--{port}server-key-path beside it"):
        load({f"{port}server-cert-path": ["a.pem"]}, {})


def test_client_certificates_are_asked_for_on_every_tls_port_but_management() -> None:
    flags = {
        f"{port}server-{what}-path": ["x.pem"]
        for port in ("", "ofrep-", "management-")
        for what in ("cert", "key")
    }
    found = load(flags | {"client-ca-path": ["ca.pem"]}, {}).settings
    asked = [tls and tls.client_ca for tls in (found.server_tls, found.ofrep_tls, found.management_tls)]
    assert asked == [Path("ca.pem"), Path("ca.pem"), None]


def test_opentelemetrys_own_variables_choose_the_exporter_and_the_collector() -> None:
    found = from_env(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317",
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer hidden",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }
    )
    assert found.metrics_exporter == "otel"
    assert found.otel.collector_uri == "http://collector:4317"
    assert found.otel.protocol == "http/protobuf"
    assert found.otel.headers == "authorization=Bearer hidden"
    assert "hidden" not in repr(found)


def test_no_two_options_share_a_name_a_letter_or_a_variable() -> None:
    for names in (
        [option.name for option in OPTIONS],
        [option.short for option in OPTIONS if option.short],
        [option.variable for option in OPTIONS],
    ):
        assert len(names) == len(set(names))


def test_every_option_that_is_taken_has_a_place() -> None:
    kept = {option.target for option in OPTIONS if option.target != "-" and "." not in option.target}
    assert kept <= set(Settings.__dataclass_fields__)
    assert all(option.choices for option in OPTIONS if option.kind is ValueKind.CHOICE)


def test_the_pod_is_known_by_variables_of_its_manifest() -> None:
    variables = {"POD_NAME": "a-1", "POD_NAMESPACE": "shop", "POD_UID": "u", "NODE_NAME": "n"}
    assert load({}, variables).settings.pod == PodName(name="a-1", namespace="shop", uid="u", node="n")


@pytest.mark.parametrize(("flags", "receipts"), [({}, "on"), ({"receipts": ["off"]}, "off")])
def test_receipts_are_sent_unless_they_are_off(flags: dict[str, list[str]], receipts: str) -> None:
    assert load(flags, {}).settings.receipts == receipts


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ("grpc://proxy:8015", "proxy:8015"),
        ('{"uri":"proxy:8015","provider":"grpc","selector":"shop/flags"}', "proxy:8015"),
    ],
)
def test_receipts_of_a_file_are_sent_to_a_server(given: str, target: str) -> None:
    settings = load({"uri": ["file:flags.json"], "receipts-to": [given]}, {}).settings
    assert [each.uri for each in settings.receipts_to] == [target]
    several = load({"uri": ["file:a.json", "file:b.json"], "receipts-to": [given, given]}, {}).settings
    assert [each.uri for each in several.receipts_to] == [target, target]


def test_the_file_and_the_environment_name_several_servers_of_receipts_at_once(tmp_path: Path) -> None:
    files = {"uri": ["file:a.json", "file:b.json"]}
    servers = [{"uri": "p:8015", "provider": "grpc", "selector": f"shop/{each}"} for each in "ab"]
    config = tmp_path / "flagd.yaml"
    config.write_text(yaml.safe_dump({"receipts-to": servers}))
    for found in (
        load({**files, "config": [str(config)]}, {}),
        load(files, {"FLAGSTAFF_RECEIPTS_TO": json.dumps(servers)}),
    ):
        assert [each.selector for each in found.settings.receipts_to] == ["shop/a", "shop/b"]
        assert found.warnings == ()
    with pytest.raises(InvalidSettingError, match=r"FLAGSTAFF_RECEIPTS_TO\[1\] needs a provider"):
        load(files, {"FLAGSTAFF_RECEIPTS_TO": json.dumps([servers[0], {"uri": "p:8015"}])})


@pytest.mark.parametrize(
    ("uris", "given", "said"),
    [
        (["file:a.json"], "http://proxy:8015", "--receipts-to must be a gRPC server"),
        (
            ["file:a.json", "file:b.json"],
            "grpc://proxy:8015",
            "once for each source that is a file, in their order: there are 2 of these, and it is given "
            "1 times",
        ),
        (["grpc://proxy:8015"], "grpc://proxy:8015", "there are 0"),
        (["file:a.json"], "{", "--receipts-to is not valid JSON"),
    ],
)
def test_receipts_that_cannot_be_sent_are_refused(uris: list[str], given: str, said: str) -> None:
    with pytest.raises(InvalidSettingError, match=said):
        load({"uri": uris, "receipts-to": [given]}, {})
