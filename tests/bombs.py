"""Repositories that are small to fetch and large to read, for tests and benchmarks; made by the stock git."""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Final

from tests.hostile_definitions import large_document
from tests.worlds.objects import flag_set, flag_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from tests.repositories import Repository

_BLOB, _REF_DELTA = 3, 7
_ZEROS: Final = bytes(1_000_000)


def _head(kind: int, size: int) -> bytes:
    """The head of an object in a pack (gitformat-pack)."""
    first, size = (kind << 4) | (size & 15), size >> 4
    found = bytearray()
    while size:
        found.append(first | 0x80)
        first, size = size & 0x7F, size >> 7
    return bytes([*found, first])


def _number(size: int) -> bytes:
    found = bytearray()
    while size > 0x7F:
        found.append((size & 0x7F) | 0x80)
        size >>= 7
    return bytes([*found, size])


def delta_bomb(repository: Repository, megabytes: int = 450) -> str:
    """A commit with one file of 20 bytes, stored as what differs from a base of so many zeros."""
    size = megabytes * len(_ZEROS)
    base = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    packer = zlib.compressobj(1)
    packed = b""
    for _ in range(megabytes):
        base.update(_ZEROS)
        packed += packer.compress(_ZEROS)
    # Copy 20 bytes from the start of the base.
    delta = _number(size) + _number(20) + bytes([0x90, 20])
    pack = b"PACK" + (2).to_bytes(4, "big") + (2).to_bytes(4, "big")
    pack += _head(_BLOB, size) + packed + packer.flush()
    pack += _head(_REF_DELTA, len(delta)) + base.digest() + zlib.compress(delta)
    pack += hashlib.sha1(pack, usedforsecurity=False).digest()
    file = repository.path.parent / f"{repository.path.name}.pack"
    file.write_bytes(pack)
    folder = repository.path / ".git" / "objects" / "pack"
    folder.mkdir(exist_ok=True)
    repository.git("index-pack", "-o", str(folder / "pack-1.idx"), str(file))
    (folder / "pack-1.pack").write_bytes(pack)
    # Fewer than a hundred objects Git would unpack where they arrive, and the delta with them.
    for number in range(100):
        repository.write(f"small/{number}.txt", str(number))
    repository.git("add", "small")
    blob = hashlib.sha1(b"blob 20\0" + bytes(20), usedforsecurity=False).hexdigest()
    repository.git("update-index", "--add", "--cacheinfo", f"100644,{blob},flags.json")
    # A server sends the base only where the tree has it, and a link's size nobody looks at.
    repository.git("update-index", "--add", "--cacheinfo", f"120000,{base.hexdigest()},link")
    repository.git("commit", "-q", "-m", "small")
    return repository.git("rev-parse", "HEAD")


def large_file(repository: Repository) -> str:
    """A commit with a file of 300 MB, which takes 0.3 MB in the pack."""
    with (repository.path / "large.json").open("wb") as file:
        for _ in range(300):
            file.write(_ZEROS)
    return repository.commit("large")


def deep_tree(repository: Repository) -> str:
    """A commit with a folder 200 folders deep."""
    blob = repository.commit("first", flags__json="{}") and repository.git("rev-parse", "HEAD:flags.json")
    tree = _tree(repository, f"100644 blob {blob}\tflags.json\n")
    for _ in range(200):
        tree = _tree(repository, f"040000 tree {tree}\td\n")
    return _commit(repository, tree)


def wide_tree(repository: Repository) -> str:
    """A commit whose folders share their listings: 100 files and folders of them, and 10^8 by name."""
    blob = repository.commit("first", flags__json="{}") and repository.git("rev-parse", "HEAD:flags.json")
    tree = _tree(repository, "".join(f"100644 blob {blob}\tf{number}.json\n" for number in range(10)))
    for _ in range(8):
        tree = _tree(repository, "".join(f"040000 tree {tree}\td{number}\n" for number in range(10)))
    return _commit(repository, tree)


def many_references(repository: Repository, count: int = 100_001) -> str:
    """A commit that so many tags mark."""
    commit = repository.commit("first", flags__json="{}")
    lines = sorted(f"refs/tags/v1.0.{number}" for number in range(count))
    packed = "# pack-refs with: peeled fully-peeled sorted\n" + "".join(
        f"{commit} {each}\n" for each in lines
    )
    (repository.path / ".git" / "packed-refs").write_text(packed)
    return commit


def exploding_definitions(repository: Repository) -> str:
    """A commit with two documents of 4 MB that hold 2.6 million values."""
    return repository.commit(
        "many values", **{f"part-{each}__json": large_document(each) for each in range(2)}
    )


BOMBS: Final[dict[str, tuple[Callable[[Repository], str], str, str]]] = {
    "delta": (delta_bomb, "flagsource", "memory"),
    "large-file": (large_file, "flagsource", "bytes|file size"),
    "deep-tree": (deep_tree, "flagsource", "64 folders deep"),
    "wide-tree": (wide_tree, "flagsource", "10000 files and folders"),
    "references": (many_references, "flagsource", "100000 references"),
    "definitions": (exploding_definitions, "flagset", "2000000 values|memory|CPU time"),
}
"""The function that makes it, the kind whose status names its limit, and a pattern of that limit."""


def objects(url: str) -> Iterator[dict[str, Any]]:
    """A FlagSource and a FlagSet for each repository that the server at `url` has."""
    for name in BOMBS:
        source = flag_source(f"{url}/{name}/.git", name=name, timeout="60s")
        if name == "references":
            source["spec"]["git"]["ref"] = {"semver": "1.x"}
        yield source
        yield flag_set(name=name, source=name)


def _tree(repository: Repository, listing: str) -> str:
    return repository.git("mktree", given=listing)


def _commit(repository: Repository, tree: str) -> str:
    commit = repository.git("commit-tree", tree, "-m", "a tree")
    repository.git("update-ref", "refs/heads/main", commit)
    return commit
