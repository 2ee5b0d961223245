"""A bucket on a real server of each protocol: what a look costs, and its end when things go wrong."""

from __future__ import annotations

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from controller.runtime.setbacks import Failed, Stalled, Waiting
from controller.sources.backend import TreeLimits
from controller.sources.bucket_backend import BucketBackend
from tests.buckets.fixtures import KINDS, azure_port, bucket, empty_bucket, google_port
from tests.s3 import refuse
from tests.worlds.sources import fetch_files, refusal_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from tests.buckets.relay import Relay

__all__ = ["azure_port", "google_port"]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Relay]:
    with empty_bucket(request.param, request, tmp_path) as server:
        yield server


def backend(store: Relay, prefix: str = "", **more: Any) -> BucketBackend:
    return BucketBackend(bucket(store, prefix=prefix), **more)


@pytest.mark.parametrize("store", ["google", "azure"], indirect=True)
async def test_more_than_a_page_is_listed_by_pages(store: Relay) -> None:
    store.page = 100
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(store.write, (f"flags/{number}.json" for number in range(250)), ["{}"] * 250))
    revision = await backend(store, "flags/").resolve()
    assert revision.digest == f"sha256:{hashlib.sha256(store.index.encode()).hexdigest()}"
    assert store.listings == 3


async def test_keys_stay_whole_and_their_signs_too(store: Relay, tmp_path: Path) -> None:
    content = {"flags/a b.json": "1", "flags/deep/ä%20#?.json": "2", "top.json": "", "x+y&z.json": "4"}
    for key, text in content.items():
        store.write(key, text)
    assert (await fetch_files(backend(store), tmp_path / "into"))[1] == content


async def test_a_prefix_is_the_beginning_of_keys_as_with_flux(store: Relay, tmp_path: Path) -> None:
    store.put(flags___a="1", flags___deep___b="2", flagship___c="3", other="4")
    for prefix, keys in (
        ("flags/", {"flags/a", "flags/deep/b"}),
        ("flag", {"flags/a", "flags/deep/b", "flagship/c"}),
        ("flags/de", {"flags/deep/b"}),
        ("other", {"other"}),
    ):
        assert (await fetch_files(backend(store, prefix), tmp_path / prefix.replace("/", "-")))[
            1
        ].keys() == keys


async def test_nothing_new_costs_one_listing_and_no_download(store: Relay, tmp_path: Path) -> None:
    store.put(a="1", b="2")
    source = backend(store)
    before = await source.resolve()
    await source.fetch(before, tmp_path)
    assert (store.listings, store.downloads) == (1, 2)
    assert await source.resolve() == before
    assert (store.listings, store.downloads) == (2, 2)
    store.put(a="3")
    assert await source.resolve() != before


async def test_an_object_that_changes_while_it_is_fetched_fails_and_the_next_look_has_it(
    store: Relay, tmp_path: Path
) -> None:
    store.put(a="1", b="2")
    source = backend(store)

    def change(request: BaseHTTPRequestHandler) -> bool:
        if urlsplit(request.path).path.endswith("/b"):
            store.put(b="3")
        return False

    store.instead = change
    setback = await refusal_of(source, tmp_path / "first")
    assert isinstance(setback, Failed)
    assert setback.reason == "RevisionGone"
    assert setback.message == f"{store.shown}: b changed while it was fetched"
    store.instead = lambda _: False
    assert (await fetch_files(source, tmp_path / "second"))[1] == {"a": "1", "b": "3"}


async def test_an_object_that_goes_while_it_is_fetched_fails(store: Relay, tmp_path: Path) -> None:
    store.put(a="1", b="22")

    def remove_second(request: BaseHTTPRequestHandler) -> bool:
        if urlsplit(request.path).path.endswith("/b"):
            store.remove("b")
        return False

    store.instead = remove_second
    assert (await refusal_of(backend(store), tmp_path / "gone")).reason == "RevisionGone"


async def test_an_object_that_is_cut_short_fails(store: Relay, tmp_path: Path) -> None:
    store.put(b="22")

    def cut(request: BaseHTTPRequestHandler) -> bool:
        if not urlsplit(request.path).path.endswith("/b"):
            return False
        request.send_response_only(200)
        request.send_header("Content-Length", "2")
        request.send_header("ETag", f'"{store.etags["b"]}"')
        request.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        request.end_headers()
        request.wfile.write(b"2")
        request.close_connection = True
        return True

    store.instead = cut
    assert (await refusal_of(backend(store), tmp_path / "cut")).reason == "BucketOperationFailed"


@pytest.mark.parametrize("store", ["google", "azure"], indirect=True)
async def test_keys_that_no_disk_has_are_folders_or_refuse_the_listing(store: Relay, tmp_path: Path) -> None:
    for key, text in (("flags/", ""), ("flags/a", "1"), ("lonely/", "")):
        store.write(key, text)
    assert (await fetch_files(backend(store), tmp_path / "into"))[1] == {"flags/a": "1", "lonely": ""}
    for key in ("../x", "a//b", "a/./b"):
        store.write(key, "1")
        with pytest.raises(Stalled, match=f": {re.escape(key)}: a file cannot have this name") as setback:
            await backend(store).resolve()
        assert setback.value.reason == "UnsafePath"
        store.remove(key)


async def test_a_revision_that_is_not_there_any_more_is_not_fetched(store: Relay, tmp_path: Path) -> None:
    store.put(a="1")
    before = await backend(store).resolve()
    store.put(a="2")
    with pytest.raises(Failed) as setback:
        await backend(store).fetch(before, tmp_path)
    assert setback.value.reason == "RevisionGone"
    assert not store.downloads


async def test_an_empty_prefix_is_waited_for(store: Relay) -> None:
    store.put(a="1")
    with pytest.raises(Waiting) as setback:
        await backend(store, "nothing/").resolve()
    assert setback.value.reason == "EmptyBucket"


async def test_a_bucket_that_is_not_there_is_named(store: Relay) -> None:
    store.present(False)
    with pytest.raises(
        Failed, match=rf"^{store.shown}: the store answered 404 (NoSuchBucket|ContainerNotFound)$"
    ) as setback:
        await backend(store).resolve()
    assert setback.value.reason == "BucketNotFound"


async def test_a_store_that_fails_is_reported_with_status_and_code_and_asked_once(store: Relay) -> None:
    store.instead = refuse(503, "SlowDown", "Please reduce\nyour \x1b[31mrate")
    with pytest.raises(Failed) as setback:
        await backend(store).resolve()
    assert setback.value.message == f"{store.shown}: the store answered 503 SlowDown"
    assert len(store.asked) == 1


async def test_a_failure_in_the_middle_of_fetching_stops_it(store: Relay, tmp_path: Path) -> None:
    for number in range(100):
        store.put(**{f"{number}": "1"})
    source = backend(store)
    revision = await source.resolve()
    store.instead = refuse(500, "InternalError")
    with pytest.raises(Failed, match="500 InternalError"):
        await source.fetch(revision, tmp_path)
    assert store.downloads <= 20


async def test_limits_hold_before_anything_is_fetched(store: Relay, tmp_path: Path) -> None:
    store.put(a="11", b="1")
    found, content = await fetch_files(backend(store, limits=TreeLimits(file_bytes=1)), tmp_path / "1")
    assert content == {"b": "1"}
    assert found.skipped == ("a: too large, 2 bytes of 1 that one file may have",)
    tight = backend(store, limits=TreeLimits(total_bytes=2))
    assert (await refusal_of(tight, tmp_path / "2")).reason == "LimitExceeded"
