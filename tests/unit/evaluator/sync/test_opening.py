from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.sync.blob_source import BlobSource
from evaluator.sync.config import InvalidSourceError, OAuth, Provider, SourceConfig, check, display_uri
from evaluator.sync.file_source import FileSource
from evaluator.sync.grpc_source import GrpcSource, target
from evaluator.sync.http_source import HttpSource
from evaluator.sync.opening import names, open_sources
from evaluator.sync.schedule import Schedule, fnv32a


def config(provider: str, uri: str, **fields: Any) -> SourceConfig:
    return SourceConfig(uri, Provider(provider), **fields)


def open_all(*configs: SourceConfig) -> tuple[Any, ...]:
    return open_sources(configs, clock=lambda: 0.0)


@pytest.mark.parametrize(
    ("provider", "uri", "kind"),
    [
        ("file", "/f.json", FileSource),
        ("fsnotify", "/f.json", FileSource),
        ("fileinfo", "/f.json", FileSource),
        ("http", "http://h/f", HttpSource),
        ("grpc", "h:1", GrpcSource),
        ("gcs", "gs://b/o.json", BlobSource),
        ("azblob", "azblob://c/o.json", BlobSource),
        ("s3", "s3://b/o.json", BlobSource),
    ],
)
def test_each_provider_has_its_source(
    provider: str, uri: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "account")
    source = open_all(config(provider, uri))[0]
    assert (type(source), source.name) == (kind, uri)


def test_sources_of_one_address_have_names_of_their_own() -> None:
    configs = [
        config("grpc", "h:1"),
        config("grpc", "h:1", selector="a"),
        config("http", "http://h/f?key=1"),
        config("http", "http://h/f?key=2"),
    ]
    assert names(configs) == ("h:1", "h:1#a", "http://h/f?key=…", "http://h/f?key=…#2")
    assert len({source.identity for source in open_all(*configs)}) == 4


ASKED = {
    "query": (config("http", "http://h/f?env=prod"), config("http", "http://h/f?env=staging")),
    "endpoint": (config("s3", "s3://b/k?endpoint=a"), config("s3", "s3://b/k?endpoint=b")),
    "header": (
        config("grpc", "h:1", headers={"flagd-selector": "a"}),
        config("grpc", "h:1", headers={"flagd-selector": "b"}),
    ),
    "selector": (config("grpc", "h:1", selector="a"), config("grpc", "h:1", selector="b")),
    "folder": (config("file", "/a/f.yaml"), config("file", "/b/f.yaml")),
}


@pytest.mark.parametrize("pair", ASKED.values(), ids=ASKED)
def test_the_request_distinguishes_one_source_from_another(pair: tuple[SourceConfig, SourceConfig]) -> None:
    alone = [open_all(each)[0].identity for each in pair]
    assert alone[0] != alone[1]
    assert [source.identity for source in open_all(*pair)] == alone


def test_an_object_of_another_account_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for account in ("one", "two"):
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", account)
        found.add(open_all(config("azblob", "azblob://c/o.json"))[0].identity)
    assert len(found) == 2


def test_a_source_with_new_credentials_is_the_same() -> None:
    old = config("http", "https://me:old@h/f?a=b", headers={"Authorization": "old"})
    new = config("http", "https://me:new@h/f?a=b", auth_header="Bearer new")
    assert open_all(old)[0].identity == open_all(new)[0].identity
    assert "a=b" not in open_all(old)[0].identity


def test_sources_that_differ_in_credentials_alone_are_distinguished_in_any_order() -> None:
    ours, theirs = (config("http", "http://h/f", bearer_token=token) for token in ("a", "b"))
    forth, back = open_all(ours, theirs), open_all(theirs, ours)
    assert [each.identity for each in forth] == [each.identity for each in reversed(back)]
    assert len({each.identity for each in (*forth, *open_all(ours, ours))}) == 3


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (config("http", "http://h/f", cron="never"), "cron"),
        (config("grpc", "envoy://h:1"), "envoy://host:port/service"),
        (config("azblob", "azblob://c/o"), "AZURE_STORAGE_ACCOUNT"),
        (config("s3", "s3://b/o?colour=red"), "colour is not an option"),
    ],
    ids=lambda value: getattr(value, "uri", None),
)
def test_what_cannot_be_followed_is_refused_at_once(
    source: SourceConfig, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT", raising=False)
    with pytest.raises(InvalidSourceError, match=said):
        open_all(source)


@pytest.mark.parametrize(
    ("uri", "dialled", "options"),
    [
        ("h:1", "h:1", []),
        ("dns:///h:1", "dns:///h:1", []),
        ("uds:///run/s.sock", "unix:/run/s.sock", []),
        ("envoy://p:9211/a.service", "p:9211", [("grpc.default_authority", "a.service")]),
    ],
)
def test_targets_are_dialled_as_grpc_knows_them(uri: str, dialled: str, options: list[Any]) -> None:
    assert target(config("grpc", uri)) == (dialled, options)


@pytest.mark.parametrize(
    ("source", "unused"),
    [
        ('("/f", Provider.FILE)', "grpc urllib3 obstore cronsim"),
        ('("http://h/f", Provider.HTTP)', "grpc obstore cronsim inotify_simple"),
        ('("h:1", Provider.GRPC)', "urllib3 obstore cronsim"),
    ],
)
def test_only_what_a_source_needs_is_loaded(source: str, unused: str) -> None:
    code = f"""
import sys
from evaluator.sync.config import Provider, SourceConfig
from evaluator.sync.opening import open_sources
open_sources([SourceConfig{source}], clock=lambda: 0.0)
print([name for name in {unused.split()} if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_without_its_package_an_object_store_is_refused_by_its_name() -> None:
    code = """
import sys
sys.modules["obstore"] = None
from evaluator.sync.config import InvalidSourceError, Provider, SourceConfig
from evaluator.sync.opening import open_sources
try:
    open_sources([SourceConfig("s3://b/o", Provider.S3)], clock=lambda: 0.0)
except InvalidSourceError as refusal:
    print(refusal)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install obstore" in result.stdout


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


def schedule(*, random: float = 0.5, interval: float = 5.0, cron: str = "", seed: str = "") -> Schedule:
    config = SourceConfig("http://h/f", Provider.HTTP, interval=interval, cron=cron, interval_seed=seed)
    return Schedule(config, lambda: random)


@pytest.mark.parametrize(("random", "seconds"), [(0.0, 4.5), (0.5, 5.0), (1.0, 5.5)])
def test_an_interval_is_kept_give_or_take_a_tenth(random: float, seconds: float) -> None:
    assert schedule(random=random).pause(1_000.0) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("content", "value"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)]
)
def test_the_hash_is_the_published_one(content: bytes, value: int) -> None:
    assert fnv32a(content) == value


@given(st.floats(min_value=0, max_value=2e9), st.integers(min_value=1, max_value=3600), st.text(min_size=1))
def test_with_a_seed_looks_fall_on_the_clock_shifted_by_its_hash(
    now: float, interval: int, seed: str
) -> None:
    pause = schedule(interval=interval, seed=seed).pause(now)
    offset = (now + pause - fnv32a(seed.encode())) % interval
    assert 0 < pause <= interval
    assert min(offset, interval - offset) < 1e-3


@pytest.mark.parametrize(
    ("cron", "seconds"),
    [("* * * * *", 30), ("*/5 * * * *", 150), ("0 0 * * *", 43_050), ("0 0 1 1 *", 86_400)],
)
def test_a_cron_expression_says_the_next_look_in_utc(cron: str, seconds: float) -> None:
    moment = datetime(2026, 6, 1, 12, 2, 30, tzinfo=UTC)
    assert schedule(cron=cron).pause(moment.timestamp()) == seconds


@pytest.mark.parametrize("cron", ["", "* * *", "every day", "0 0 30 2 *"][1:])
def test_what_is_no_cron_expression_is_refused(cron: str) -> None:
    with pytest.raises(InvalidSourceError, match="cron"):
        schedule(cron=cron)
