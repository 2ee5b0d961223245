"""What operators write: the configuration file, `--sources`, URIs, cron expressions."""

from __future__ import annotations

import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluator.settings import InvalidSettingError
from evaluator.settings.load import load, parse_sources, parse_uri
from evaluator.sync.config import InvalidSourceError, Provider, SourceConfig
from evaluator.sync.grpc_source import target
from evaluator.sync.schedule import Schedule
from tests.fuzz.target import Target, Wrong

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WORDS = (
    '"uri":"http://a/b"', '"provider":"http"', '"provider":"grpc"', '"provider":"file"', '"provider":"s3"',
    '"bearerToken":"', '"authHeader":"Basic ', '"interval":5', '"cron":"*/5 * * * *"', '"headers":{"a":"b"}',
    '"oauth":{"clientId":"a","clientSecret":"b","tokenUrl":"http://c"}', '"tls":true', '"maxMsgSize":1',
    '"selector":"', '"certPath":"/a"', '"intervalSeed":"', '"timeoutS":3',
)  # fmt: skip
URI_WORDS = (
    "file:", "http://", "https://u:p@", "grpc://", "grpcs://", "envoy://a:1/b", "s3://a/b", "azblob://",
    "gs://", "uds://", "[::1]", "?a=b",
)  # fmt: skip
OPTIONS = (
    "port: 8013\n", "sources:\n", "  - uri: file:a\n", "    provider: file\n", "uri: [file:a.json]\n",
    "log-format: json\n", "cors-origin: ['*']\n", "context-value: {a: b}\n",
    "context-from-header: {X-A: a}\n", "server-cert-path: /a\n", "stream-deadline: 1m2s\n",
    "management-port: 1\n", "metrics-exporter: otel\n", "disable-sync-metadata: true\n",
)  # fmt: skip
SECRETS = ("bearertoken", "authheader", "clientsecret")


@cache
def scratch() -> Path:
    """A folder of this process's own."""
    return Path(tempfile.mkdtemp(prefix=f"flagstaff-fuzz-{os.getpid()}-"))


def file(content: bytes) -> None:
    """A configuration file is read, or refused with words for its author."""
    for name in ("config.yaml", "config.json"):
        path = scratch() / name
        path.write_bytes(content)
        try:
            loaded = load({"config": [str(path)]}, {})
        except InvalidSettingError as error:
            words_of(error)
        else:
            repr(loaded)
        path.unlink()


def sources(content: bytes) -> None:
    """Sources are read or refused, and nothing that is said of them holds a secret."""
    text = content.decode("utf-8", "surrogateescape")
    said: list[str] = []
    try:
        found = parse_sources(text, "--sources", said)
    except InvalidSettingError as error:
        said.append(words_of(error))
    else:
        said += [part for source in found for part in (repr(source), source.name)]
    hidden = [secret for secret in secrets_of(text) if text.count(secret) == 1]
    if any(secret in line for secret in hidden for line in said):
        raise Wrong(f"a secret is shown: {said}")


def secrets_of(text: str) -> Iterator[str]:
    """Texts under a name that says so, long enough to be known again."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    level: list[Any] = [value]
    for item in level:
        pairs: Iterable[tuple[Any, Any]] = item.items() if isinstance(item, dict) else ()
        for key, each in pairs:
            if key.lower() in SECRETS and isinstance(each, str) and len(each) >= 8:
                yield each
        level += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()


def uri(content: bytes) -> None:
    """A URI is read or refused, and so is what is dialled."""
    text = content.decode("utf-8", "surrogateescape")
    try:
        source = parse_uri(text, "--uri")
        repr(source)
        if source.provider is Provider.GRPC:
            target(source)
    except (InvalidSettingError, InvalidSourceError) as error:
        words_of(error)


def cron(content: bytes) -> None:
    """A cron expression is refused, or has a next time within a day or none sooner."""
    text = content.decode("utf-8", "replace")
    config = SourceConfig("http://a/", Provider.HTTP, cron=text)
    try:
        schedule = Schedule(config, lambda: 0.5)
    except InvalidSourceError as error:
        words_of(error)
        return
    for now in (0.0, 1_709_164_800.0, 1_767_225_599.5):
        if not 0 < schedule.pause(now) <= 86_400.0:
            raise Wrong(f"a pause of {schedule.pause(now)} s")


def words_of(error: Exception) -> str:
    """The words of an error, of which there are some."""
    text = str(error)
    if not text:
        raise Wrong("refused without a word")
    return text


TARGETS = {
    "config_file": Target(file, (*OPTIONS, *WORDS), 1_024),
    "sources": Target(sources, WORDS, 1_024),
    "uri": Target(uri, URI_WORDS, 256),
    "cron": Target(cron, ("*/5", "0 0 * * *", "MON-FRI", "L", "#", "29 2", "1-5/2", ","), 64),
}  # fmt: skip
