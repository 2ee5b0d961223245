from __future__ import annotations

import json
from typing import Any

import pytest

from evaluator.sync.config import OAuth, Provider, SourceConfig, shown
from evaluator.sync.reading import InvalidSourceError, from_json, from_uri


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("file:/etc/flags.json", SourceConfig("/etc/flags.json", Provider.FILE)),
        ("file:///etc/flags.json", SourceConfig("/etc/flags.json", Provider.FILE)),
        ("file:flags.yaml", SourceConfig("flags.yaml", Provider.FILE)),
        ("http://h/f", SourceConfig("http://h/f", Provider.HTTP)),
        ("https://h/f", SourceConfig("https://h/f", Provider.HTTP)),
        ("grpc://h:1", SourceConfig("h:1", Provider.GRPC)),
        ("grpcs://h:1", SourceConfig("h:1", Provider.GRPC, tls=True)),
        ("envoy://h:1/s", SourceConfig("envoy://h:1/s", Provider.GRPC)),
        ("uds:///run/s", SourceConfig("uds:///run/s", Provider.GRPC)),
        ("gs://b/o.json", SourceConfig("gs://b/o.json", Provider.GCS)),
        ("azblob://c/o.json", SourceConfig("azblob://c/o.json", Provider.AZBLOB)),
        ("s3://b/o.json", SourceConfig("s3://b/o.json", Provider.S3)),
    ],
)
def test_a_uri_says_how_it_is_followed(uri: str, expected: SourceConfig) -> None:
    assert from_uri(uri) == expected


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("ftp://user:pass@h/f", "ftp://h/f"),
        ("flags.json", "starts with none of"),
        ("core.openfeature.dev/ns/name", "cluster's proxy"),
        ("file:", "needs its path"),
        ("s3://bucket", "s3://bucket/path"),
        ("http:///x", "write http"),
    ],
)
def test_a_uri_that_cannot_be_followed_is_refused_with_what_to_write(uri: str, said: str) -> None:
    with pytest.raises(InvalidSourceError) as refusal:
        from_uri(uri)
    assert said in str(refusal.value)
    assert "pass" not in str(refusal.value)


def one(**fields: Any) -> SourceConfig:
    return from_json(json.dumps([fields]))[0]


def test_every_key_of_flagd_is_understood() -> None:
    oauth = {"clientID": "i", "clientSecret": "s", "tokenUrl": "https://t", "reloadDelayS": 3}
    http = one(
        uri="https://h/f", provider="http", authHeader="Basic x", interval=30, intervalSeed="pod",
        timeoutS=3, headers={"X-A": "b"}, oauth=oauth,
    )  # fmt: skip
    grpc = one(
        uri="h:1", provider="grpc", certPath="/ca", tls=True, providerID="p", selector="s",
        maxMsgSize=5,
    )  # fmt: skip
    assert http == SourceConfig(
        "https://h/f", Provider.HTTP, auth_header="Basic x", interval=30, interval_seed="pod",
        timeout=3, headers={"X-A": "b"},
        oauth=OAuth("https://t", "i", "s", reload_seconds=3),
    )  # fmt: skip
    assert grpc == SourceConfig(
        "h:1",
        Provider.GRPC,
        cert_path="/ca",
        tls=True,
        provider_id="p",
        selector="s",
        max_msg_size=5,
    )


def test_keys_are_known_in_any_case_and_zero_is_as_not_given() -> None:
    found = one(URI="f", Provider="file", INTERVAL=0, tls=False, selector="", timeouts=0)
    assert found == SourceConfig("f", Provider.FILE)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"provider": "file"}, "needs its uri"),
        ({"uri": "f"}, "it is one of file, fsnotify"),
        ({"uri": "f", "provider": "redis"}, '"redis"'),
        ({"uri": "ns/name", "provider": "kubernetes"}, "cluster's proxy"),
        ({"uri": "f", "provider": "file", "intervall": 3}, 'did you mean "interval"'),
        ({"uri": "f", "provider": "file", "interval": 3}, "has no interval"),
        ({"uri": "h:1", "provider": "grpc", "oauth": {}}, "tokenUrl"),
        ({"uri": "http://h", "provider": "http", "selector": "s"}, "grpc has"),
        ({"uri": "http://h", "provider": "http", "interval": "5"}, "whole number"),
        ({"uri": "http://h", "provider": "http", "interval": True}, "whole number"),
        ({"uri": "http://h", "provider": "http", "interval": 86401}, "86400"),
        ({"uri": "http://h", "provider": "http", "headers": {"a": 1}}, "object of texts"),
        ({"uri": "http://h", "provider": "http", "headers": {"a": "b\nc"}}, "line break"),
        ({"uri": "http://h", "provider": "http", "clientCertPath": "c"}, "go together"),
        ({"uri": "http://h", "provider": "http", "incrementalUpdates": True}, "replaced whole"),
        ({"uri": "http://h", "provider": "http", "oauth": {"tokenUrl": "http://t"}}, "clientID"),
        ({"uri": "h:1", "provider": "grpc", "tls": "yes"}, "true or false"),
        (
            {"uri": "http://h", "provider": "http", "authHeader": "a", "bearerToken": "b"},
            "exclude each other",
        ),
    ],
)
def test_a_source_that_makes_no_sense_is_refused_with_why(
    fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidSourceError) as refusal:
        one(**fields)
    assert said in str(refusal.value)


@pytest.mark.parametrize("text", ["", "{", "{}", "[1]", "[" * 100_000, '"x"'])
def test_what_is_no_array_of_objects_is_refused(text: str) -> None:
    with pytest.raises(InvalidSourceError):
        from_json(text)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("https://user:pass@h:1/f?sig=abc&x=1#t", "https://h:1/f?sig=…&x=…"),
        ("/etc/a=b?c=d", "/etc/a=b?c=d"),
        ("http://[bad", "http://…"),
    ],
)
def test_what_is_shown_of_a_uri_holds_no_secret(uri: str, expected: str) -> None:
    assert shown(uri) == expected


@pytest.mark.parametrize(
    "secret",
    [
        {"bearerToken": "hidden"},
        {"authHeader": "hidden"},
        {"headers": {"X-Key": "hidden"}},
        {"oauth": {"tokenUrl": "https://t", "clientID": "i", "clientSecret": "hidden"}},
    ],
    ids=lambda secret: next(iter(secret)),
)
def test_no_secret_is_in_what_a_configuration_prints_as(secret: dict[str, Any]) -> None:
    assert "hidden" not in repr(one(uri="https://u:hidden@h/f", provider="http", **secret))
