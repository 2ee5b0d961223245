"""`flagstaff up s3://…` from an object to a client's answer, and what else takes a bucket."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.buckets.azure import KEY
from tests.buckets.fixtures import azure_port, empty_bucket, google_port
from tests.buckets.google import service_account
from tests.clients.server import until
from tests.clients.up import FLAGSTAFF, banner, up
from tests.s3 import VARIABLES, refuse, s3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.s3 import S3

__all__ = ["azure_port", "google_port"]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    for name, text in VARIABLES.items():
        monkeypatch.setenv(name, text)
    with s3(tmp_path) as server:
        server.write("checkout/flags.json", banner("plain"))
        yield server


def ofrep(port: int) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}/ofrep/v1/evaluate/flags/banner"
    with urllib.request.urlopen(urllib.request.Request(url, b"{}")) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FLAGSTAFF, *words], capture_output=True, text=True, check=False, timeout=60)


def test_a_changed_object_is_served_and_a_store_that_fails_takes_nothing_away(
    store: S3, tmp_path: Path
) -> None:
    options = ("--endpoint", store.url, "--interval", "0.2", "--state-dir", str(tmp_path / "state"))
    with up("s3://flags/checkout", *options) as running:
        port = running.ready()["ofrep"]
        first = running.wait(lambda event: event["event"] == "revision")
        assert (first["added"], first["author"], first["subject"]) == (["banner"], "", "")
        answer = ofrep(port)
        assert (answer["value"], answer["metadata"]["flagstaff.dev/revision"]) == (
            "Welcome",
            first["revision"],
        )
        store.write("checkout/flags.json", banner("party"))
        second = running.wait(lambda event: event["event"] == "revision")
        assert second["changed"] == ["banner"]
        assert ofrep(port)["value"] == "Hooray"
        fetched, looks = store.downloads, store.listings
        store.write("elsewhere.json", "{}")
        assert until(lambda: store.listings > looks + 3)
        assert store.downloads == fetched
        store.instead = refuse(503, "SlowDown")
        assert "503 SlowDown" in running.source("down")["message"]
        assert ofrep(port)["value"] == "Hooray"
    with up("s3://flags/checkout", *options) as running:
        port = running.ready()["ofrep"]
        running.source("down")
        assert ofrep(port)["value"] == "Hooray"
        store.instead = lambda _: False
        running.source("up")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["google", "azure"])
def test_a_bucket_of_another_cloud_is_served(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = tmp_path / "account.json"
    account.write_text(service_account())
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account))
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    with empty_bucket(kind, request, tmp_path) as store:
        store.write("checkout/flags.json", banner("plain"))
        options = ("--endpoint", store.endpoint, "--interval", "0.2")
        with up(f"{store.shown}/checkout", *options) as running:
            port = running.ready()["ofrep"]
            assert ofrep(port)["value"] == "Welcome"
            running.wait(lambda event: event["event"] == "revision")
            store.write("checkout/flags.json", banner("party"))
            running.wait(lambda event: event["event"] == "revision")
            assert ofrep(port)["value"] == "Hooray"


@pytest.mark.long
def test_once_eval_and_text_fit_a_source_without_commits(store: S3) -> None:
    endpoint = ("--endpoint", store.url)
    done = run("up", "s3://flags/checkout", "--once", *endpoint)
    revision = done.stdout.partition("\n")[0]
    assert done.returncode == 0
    assert revision.startswith("sha256:")
    assert len(revision) == len("sha256:") + 12
    answered = run("eval", "s3://flags", "banner", "--path", "checkout/flags.json", *endpoint)
    assert json.loads(answered.stdout)["value"] == "Welcome"
    assert answered.stderr == f"flagstaff eval: reading {revision}\n"
    nothing = run("up", "s3://flags", "--once", *endpoint)
    assert nothing.returncode == 1
    assert "such as: --path checkout" in nothing.stdout


def test_a_bucket_that_cannot_be_read_is_reported_on_one_line_without_the_key(
    store: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "an0ther-secret")
    done = run("up", "s3://flags/checkout", "--once", "--endpoint", store.url)
    assert done.returncode == 3
    assert done.stdout.count("\n") == 1
    assert "SignatureDoesNotMatch" in done.stdout
    assert "AWS_SECRET_ACCESS_KEY" in done.stdout
    assert "an0ther-secret" not in done.stdout + done.stderr
    tagged = run("up", "s3://flags", "--ref", "main", "--once")
    assert (tagged.returncode, "--ref: a bucket has no branches" in tagged.stdout) == (3, True)
