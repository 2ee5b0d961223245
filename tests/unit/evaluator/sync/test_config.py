from __future__ import annotations

from typing import Any

import pytest

from evaluator.sync.config import InvalidSourceError, OAuth, Provider, SourceConfig, check, display_uri


@pytest.mark.parametrize(
    ("provider", "uri", "fields", "said"),
    [
        ("file", "f", {"interval": 3.0}, "provider file has no interval; azblob or gcs or http or s3"),
        ("http", "http://h/f", {"selector": "s"}, "grpc has"),
        ("grpc", "h:1", {"oauth": OAuth("https://t")}, "has no oauth"),
        ("grpc", "h:1", {"headers": {"a": "b\nc"}}, "line break"),
        ("http", "http://h/f", {"auth_header": "ключ"}, "not ASCII"),
        ("http", "http://h/f", {"client_cert_path": "c"}, "go together"),
        ("http", "http://h/f", {"auth_header": "a", "bearer_token": "b"}, "exclude each other"),
        ("http", "http://h/f", {"interval": 86_401.0}, "86400"),
        ("http", "/f", {}, "write http"),
        ("http", "https://[h/f", {}, "cannot be read"),
        ("s3", "s3://bucket", {}, "write s3://bucket/path"),
        ("gcs", "s3://bucket/o", {}, "write gs://bucket/path"),
        ("file", "", {}, "needs its path"),
    ],
)
def test_a_source_that_makes_no_sense_is_refused_with_what_to_write(
    provider: str, uri: str, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidSourceError, match=said):
        check(SourceConfig(uri, Provider(provider), **fields))


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("https://user:pass@h:1/f?sig=abc&x=1#t", "https://h:1/f?sig=…&x=…"),
        ("/etc/a=b?c=d", "/etc/a=b?c=d"),
        ("http://[bad", "http://…"),
    ],
)
def test_what_is_shown_of_a_uri_holds_no_secret(uri: str, expected: str) -> None:
    assert display_uri(uri) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"bearer_token": "hidden"},
        {"auth_header": "hidden"},
        {"headers": {"X-Key": "hidden"}},
        {"oauth": OAuth("https://t", "me", "hidden")},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_no_secret_is_in_what_a_configuration_prints_as(fields: dict[str, Any]) -> None:
    config = SourceConfig("https://u:hidden@h/f", Provider.HTTP, **fields)
    assert "hidden" not in repr(config) + config.name
