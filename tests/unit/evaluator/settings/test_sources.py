from __future__ import annotations

import json
from typing import Any

import pytest

from evaluator.settings import InvalidSettingError
from evaluator.settings.load import parse_sources, parse_uri
from evaluator.sync.config import OAuth, Provider, SourceConfig

GRPC_ONLY = {"selector", "providerID", "PROVIDERID", "providerid", "tls", "maxMsgSize"}
OAUTH = {"clientID": "me", "clientSecret": "hidden", "tokenURL": "https://token"}


def config(uri: str, provider: str, **more: Any) -> SourceConfig:
    return SourceConfig(uri=uri, provider=Provider(provider), **more)


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        ("file:etc/flags.json", config("etc/flags.json", "file")),
        ("file:/etc/flags.json", config("/etc/flags.json", "file")),
        ("http://a/flags", config("http://a/flags", "http")),
        ("https://a/flags", config("https://a/flags", "http")),
        ("grpc://a:8015", config("a:8015", "grpc")),
        ("grpcs://a:8015", config("a:8015", "grpc", tls=True)),
        ("envoy://a:9211/b.service", config("envoy://a:9211/b.service", "grpc")),
        ("dns://1.1.1.1/a:8015", config("dns://1.1.1.1/a:8015", "grpc")),
        ("uds:///run/a.sock", config("uds:///run/a.sock", "grpc")),
        ("xds:///a", config("xds:///a", "grpc")),
        ("gs://bucket/flags.json", config("gs://bucket/flags.json", "gcs")),
        ("azblob://box/flags.json", config("azblob://box/flags.json", "azblob")),
        ("s3://bucket/flags.json", config("s3://bucket/flags.json", "s3")),
    ],
)
def test_a_uri_is_read_by_its_prefix(uri: str, source: SourceConfig) -> None:
    assert parse_uri(uri, "--uri") == source


@pytest.mark.parametrize("uri", ["flags.json", "", "ftp://me:hidden@a/b", "FILE:a"])
def test_a_uri_without_a_known_prefix_is_refused(uri: str) -> None:
    with pytest.raises(InvalidSettingError, match=r"--uri .* must start with file:") as caught:
        parse_uri(uri, "--uri")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("uri", ["file:", "s3://", "gs://bucket", "http://"])
def test_a_uri_that_leads_nowhere_is_refused(uri: str) -> None:
    with pytest.raises(InvalidSettingError, match="--uri: "):
        parse_uri(uri, "--uri")


def test_a_resource_of_kubernetes_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidSettingError, match=r"no access to Kubernetes.*provider.*grpc"):
        parse_uri("core.openfeature.dev/default/flags", "--uri")
    with pytest.raises(InvalidSettingError, match=r"\[0\].provider is refused: .*no access"):
        parse_sources([{"uri": "default/flags", "provider": "kubernetes"}], "--sources", [])


@pytest.mark.parametrize(
    ("field", "value", "kept"),
    [
        ("selector", "a=b", {"selector": "a=b"}),
        ("providerID", "me", {"provider_id": "me"}),
        ("PROVIDERID", "me", {"provider_id": "me"}),
        ("providerid", "me", {"provider_id": "me"}),
        ("authHeader", "Basic x", {"auth_header": "Basic x"}),
        ("bearerToken", "x", {"bearer_token": "x"}),
        ("headers", {"A": "b"}, {"headers": {"A": "b"}}),
        ("interval", 30, {"interval": 30.0}),
        ("interval", 0, {"interval": 5.0}),
        ("intervalSeed", "pod-1", {"interval_seed": "pod-1"}),
        ("cron", "*/5 * * * *", {"cron": "*/5 * * * *"}),
        ("timeoutS", 10, {"timeout": 10.0}),
        ("timeoutS", 0, {"timeout": 10.0}),
        ("bearerTokenFile", "/run/token", {"bearer_token_file": "/run/token"}),
        ("certPath", "/ca.pem", {"cert_path": "/ca.pem"}),
        ("tls", True, {"tls": True}),
        ("tls", False, {"tls": False}),
        ("maxMsgSize", 5242880, {"max_msg_size": 5242880}),
        ("incrementalUpdates", False, {}),
        (
            "oauth",
            OAUTH | {"ReloadDelayS": 60, "folder": "/run/secrets"},
            {
                "oauth": OAuth(
                    token_url=OAUTH["tokenURL"],
                    client_id="me",
                    client_secret=OAUTH["clientSecret"],
                    folder="/run/secrets",
                    reload_seconds=60,
                )
            },
        ),
        ("selector", None, {}),
    ],
    ids=lambda value: str(value)[:30],
)
def test_every_field_of_a_source_is_kept(field: str, value: object, kept: dict[str, Any]) -> None:
    warnings: list[str] = []
    provider, uri = ("grpc", "a:1") if field in GRPC_ONLY else ("http", "http://a")
    text = json.dumps([{"uri": uri, "provider": provider, field: value}])
    assert parse_sources(text, "--sources", warnings) == [config(uri, provider, **kept)]
    assert warnings == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{", "--sources is not valid JSON"),
        ("[" * 100_000, "--sources is not valid JSON"),
        ({}, "must be an array"),
        (["a"], r"\[0\] is .*must be an object"),
        ([{"provider": "file"}], r"\[0\] needs a uri"),
        ([{"uri": "a"}], r"\[0\] needs a provider"),
        ([{"uri": "a", "provider": "redis"}], r"provider is \"redis\": must be one of file"),
        ([{"uri": 1, "provider": "file"}], r"\[0\].uri must be a printable text"),
        ([{"uri": "http://a", "provider": "http", "interval": 86401}], r"interval is 86401"),
        ([{"uri": "http://a", "provider": "http", "interval": "5"}], None),
        ([{"uri": "http://a", "provider": "http", "tls": "maybe"}], r"tls is .*true or false"),
        (
            [{"uri": "http://a", "provider": "http", "authHeader": "b", "bearerToken": "c"}],
            "exclude each other",
        ),
        ([{"uri": "a", "provider": "file", "tls": True}], "a source of provider file has no tls"),
        ([{"uri": "a", "provider": "grpc", "incrementalUpdates": True}], "is refused: a source"),
        ([{"uri": "http://a", "provider": "http", "oauth": "x"}], "oauth is .*must be an object"),
        ([{"uri": "http://a", "provider": "http", "oauth": {"tokenURL": "b"}}], "needs clientID"),
        ([{"uri": "http://a", "provider": "http", "oauth": {"folder": "b"}}], "needs a tokenURL"),
        ([{"uri": "http://a", "provider": "http", "oauth": OAUTH | {"x": 1}}], "unknown field .*oauth.x"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_bad_source_is_refused_with_its_place(given: object, said: str | None) -> None:
    if said is None:
        assert parse_sources(given, "--sources", [])
        return
    with pytest.raises(InvalidSettingError, match=said):
        parse_sources(given, "--sources", [])


def test_a_field_that_nothing_reads_is_warned_of() -> None:
    warnings: list[str] = []
    parse_sources([{"uri": "http://a", "provider": "http", "authHeadr": "b"}], "--sources", warnings)
    assert warnings == ['unknown field --sources[0].authHeadr (did you mean "authHeader"?)']


def test_no_credential_is_in_a_sources_text() -> None:
    given = {"uri": "http://a", "provider": "http", "authHeader": "hidden", "headers": {"k": "hidden"}}
    (source,) = parse_sources([given | {"oauth": OAUTH}], "--sources", [])
    assert "hidden" not in repr(source)
