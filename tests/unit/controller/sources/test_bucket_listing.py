from __future__ import annotations

import hashlib
import tracemalloc

import pytest

from controller.runtime.setbacks import Stalled
from controller.sources.backend import TreeLimits
from controller.sources.bucket_listing import Listed, revision_of, select

LIMITS = TreeLimits(entries=6, file_bytes=100, total_bytes=150, depth=2)


def objects(**sizes: int) -> list[Listed]:
    return [Listed(key, "e", size) for key, size in sizes.items()]


def test_the_revision_is_that_of_fluxs_bucket() -> None:
    listing = [Listed("b", "2", 9), Listed("a/c", "1", 9)]
    digest = hashlib.sha256(b"a/c 1\nb 2\n").hexdigest()
    assert str(revision_of(listing)) == f"sha256:{digest}"
    assert revision_of(reversed(listing)) == revision_of(listing)


def test_another_etag_or_key_is_another_revision_and_another_size_alone_is_not() -> None:
    one = revision_of([Listed("a", "1", 1)])
    assert revision_of([Listed("a", "2", 1)]) != one
    assert revision_of([Listed("b", "1", 1)]) != one
    assert revision_of([Listed("a", "1", 2)]) == one


@pytest.mark.parametrize(
    ("sizes", "kept", "skipped"),
    [
        ({"flags": 0, "flags/a": 1}, ["flags/a"], []),
        ({"flags": 1, "flags/a": 1}, ["flags/a"], ["flags: the name of a folder, too"]),
        ({"a": 101}, [], ["a: too large, 101 bytes of 100 that one file may have"]),
        ({"../a": 1, "b": 1}, ["b"], ["../a: a file cannot have this name"]),
        ({"a//b": 1}, [], ["a//b: a file cannot have this name"]),
        ({"a\x1b[2J": 1}, [], ["a?[2J: a file cannot have this name"]),
        ({"a/b/c/d": 1}, [], ["a/b/c/d: more than 2 folders deep"]),
        ({"x" * 256: 1}, [], [f"{'x' * 256}: its name is longer than 255 bytes"]),
    ],
)
def test_what_cannot_be_a_file_is_left_out_with_the_reason(
    sizes: dict[str, int], kept: list[str], skipped: list[str]
) -> None:
    chosen, left_out = select(objects(**sizes), LIMITS)
    assert ([each.key for each in chosen], left_out) == (kept, skipped)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({f"a{number}": 1 for number in range(7)}, "more than 6 files and folders"),
        ({"a/b/c": 1, "d/e/f": 1, "g": 1}, "more than 6 files and folders"),
        ({"a": 100, "b": 51}, "b: with it the bucket has more than 150 bytes"),
    ],
)
def test_a_bucket_beyond_the_limits_is_refused_before_anything_is_fetched(
    sizes: dict[str, int], says: str
) -> None:
    with pytest.raises(Stalled, match=says) as setback:
        select(objects(**sizes), LIMITS)
    assert setback.value.reason == "LimitExceeded"


def test_what_is_skipped_for_its_size_does_not_count_in_all() -> None:
    chosen, skipped = select(objects(video=10**12, a=100, b=50), LIMITS)
    assert (len(chosen), len(skipped)) == (2, 1)


def test_keys_of_hundreds_of_folders_are_skipped_without_listing_the_folders() -> None:
    deep = "/".join("a" * 512)
    listing = [Listed(f"{number}/{deep}", "e", 1) for number in range(2_000)]
    tracemalloc.start()
    try:
        chosen, skipped = select(listing, TreeLimits())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (chosen, len(skipped)) == ([], 2_000)
    # Each key has 512 folders, of half a KB.
    assert most < 20_000_000
