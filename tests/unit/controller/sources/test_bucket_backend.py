"""A bucket on a real S3 server: what a look costs, and what it comes to when things go wrong."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from controller.runtime.setbacks import Failed, Stalled
from controller.sources.bucket_backend import BucketBackend, call_here, open_bucket
from controller.sources.bucket_place import Bucket, Scheme
from tests.s3 import BUCKET, S3, answer_listing
from tests.sync_sources import S3_KEY, S3_SECRET
from tests.worlds.sources import fetch_files, refusal_of

if TYPE_CHECKING:
    from pathlib import Path


def backend(store: S3, prefix: str = "", **more: Any) -> BucketBackend:
    bucket = Bucket(Scheme.S3, BUCKET, prefix, store.url, {"region": "us-east-1"}, access=(S3_KEY, S3_SECRET))
    return BucketBackend(bucket, **more)


async def test_ten_thousand_objects_are_listed_by_pages_and_more_are_refused(
    store: S3, tmp_path: Path
) -> None:
    for folder in range(99):
        (store.folder / str(folder)).mkdir()
        for number in range(100):
            (store.folder / str(folder) / f"{number}.json").write_text("{}")
    source = backend(store)
    await source.resolve()
    assert store.listings == 10
    some = backend(store, "7/")
    assert len((await fetch_files(some, tmp_path / "into"))[1]) == 100
    (store.folder / "more/and/more").mkdir(parents=True)
    (store.folder / "more/and/more/a.json").write_text("{}")
    assert (await refusal_of(source, tmp_path / "again")).reason == "LimitExceeded"


@pytest.mark.parametrize(
    ("access", "code"),
    [((S3_KEY, "wrong"), "SignatureDoesNotMatch"), (("nobody", "wrong"), "InvalidAccessKeyId")],
)
async def test_refused_keys_are_distinguished_and_not_shown(
    store: S3, access: tuple[str, str], code: str
) -> None:
    bucket = Bucket(Scheme.S3, BUCKET, "", store.url, access=access, secrets=access)
    source = BucketBackend(bucket, advice={"AuthenticationFailed": "look there"})
    with pytest.raises(Failed, match=code) as setback:
        await source.resolve()
    assert setback.value.reason == "AuthenticationFailed"
    assert setback.value.message.endswith("; look there")
    assert "wrong-secret" not in setback.value.message + repr(source)


async def test_a_store_that_does_not_answer_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        bucket = Bucket(
            Scheme.S3, BUCKET, "", f"http://127.0.0.1:{silent.getsockname()[1]}", access=("k", "s")
        )
        with pytest.raises(Failed, match=r"no answer within 0\.5 seconds") as setback:
            await BucketBackend(bucket, partial(call_here, seconds=0.5)).resolve()
    assert setback.value.reason == "Timeout"


@pytest.mark.parametrize("key", ["../x", "a//b", "a/./b"])
async def test_a_key_that_leads_elsewhere_refuses_the_listing(store: S3, key: str) -> None:
    store.instead = answer_listing(("good", 1), (key, 1))
    with pytest.raises(Stalled) as setback:
        await backend(store).resolve()
    assert (setback.value.reason, key in setback.value.message) == ("UnsafePath", True)


async def test_folders_that_a_console_made_are_no_files(store: S3, tmp_path: Path) -> None:
    store.put(flags___a="1")
    etag = "c4ca4238a0b923820dcc509a6f75849b"
    store.instead = answer_listing(("flags/", 0), ("flags/a", 1), ("lonely/", 0), etag=etag)
    found, content = await fetch_files(backend(store), tmp_path / "into")
    assert content == {"flags/a": "1", "lonely": ""}
    assert not found.skipped


async def test_memory_is_bounded_by_a_few_objects(store: S3, tmp_path: Path) -> None:
    for number in range(30):
        with (store.folder / str(number)).open("wb") as file:
            file.truncate(4 * 1024**2)
    code = """
import asyncio, pathlib, resource, sys
from controller.sources.bucket_backend import open_bucket
async def main():
    source = open_bucket("s3://flags", {}, endpoint=sys.argv[1])
    revision = await source.resolve()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await source.fetch(revision, pathlib.Path(sys.argv[2]))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
asyncio.run(main())
"""
    environment = {"AWS_ACCESS_KEY_ID": S3_KEY, "AWS_SECRET_ACCESS_KEY": S3_SECRET}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, store.url, str(tmp_path / "into"), env=environment, stdout=subprocess.PIPE
    )
    grown = int((await process.communicate())[0])
    assert sum(path.stat().st_size for path in (tmp_path / "into").iterdir()) == 30 * 4 * 1024**2
    assert grown < 40_000


def test_no_other_source_costs_the_time_and_memory_of_the_library() -> None:
    modules = "controller.local.local_mode, controller.app.controller_process"
    code = f"import sys, {modules}; print('obstore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("text", "prefix", "spec"),
    [
        ("s3://b", "", {"provider": "generic"}),
        ("s3://b/flags/", "flags/", {"provider": "generic"}),
        ("gs://b/flags/a.json", "flags/a.json", {"provider": "gcp"}),
        ("az://b/x", "x/", {"provider": "azure"}),
    ],
)
def test_a_url_of_the_command_line(text: str, prefix: str, spec: dict[str, str]) -> None:
    found = open_bucket(text, {}, endpoint="http://h:1/")
    assert (found.bucket.prefix, found.bucket.endpoint) == (prefix, "http://h:1")
    assert found.spec["bucket"].items() >= {**spec, "bucketName": "b", "insecure": True}.items()


def test_a_container_is_of_the_account_of_its_endpoint_or_of_the_environment() -> None:
    named = open_bucket("az://b", {}, endpoint="https://me.blob.core.windows.net")
    assert named.bucket.config == {"account_name": "me"}
    assert not open_bucket("az://b", {"AZURE_STORAGE_ACCOUNT_NAME": "me"}).bucket.config
    with pytest.raises(Stalled, match="set AZURE_STORAGE_ACCOUNT_NAME, or --endpoint"):
        open_bucket("az://b", {})


@pytest.mark.parametrize("text", ["s3://", "s3:///x", "s3://a b/x", "s3://k:s@b/x", "s3://b/x?y"])
def test_a_url_that_names_no_bucket_is_refused(text: str) -> None:
    with pytest.raises(Stalled, match="s3://BUCKET/PREFIX"):
        open_bucket(text, {})


async def test_a_store_without_etags_is_refused(store: S3) -> None:
    store.instead = answer_listing(("a", 1), etag="")
    with pytest.raises(Failed, match="sends no ETag of a,"):
        await backend(store).resolve()
