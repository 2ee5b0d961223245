"""What a repository may hold that cannot be served: reported with its place, survived, and recovered from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
import pytest
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2 as v2
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2_grpc as v2_grpc

from tests.clients.asking import served_value
from tests.clients.up import banner, up
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GOOD = banner("plain")
BETTER = banner("party")
FLAG = '{"state":"ENABLED","variants":{"a":"1"},"defaultVariant":"a"'
DEEP = 10_000
BOMB = "\n".join(
    ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    + [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    + ["flags: {banner: {state: ENABLED, variants: {a: *l11}, defaultVariant: a}}"]
)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.commit("first", flags__json=GOOD)
    return made


def replace_definitions(repository: Repository, name: str, content: bytes) -> str:
    """Commit `content` as the tree's only definitions; the commit."""
    for old in repository.path.glob("flags*"):
        old.unlink()
    (repository.path / name).write_bytes(content)
    return repository.commit(f"now {name}")


@dataclass(frozen=True, slots=True)
class Document:
    name: str
    content: bytes
    place: tuple[int, int]
    """Line and column of the first problem."""
    words: str
    """Of its message."""


def document(name: str, text: str | bytes, place: tuple[int, int], words: str) -> Document:
    return Document(name, text if isinstance(text, bytes) else text.encode(), place, words)


DOCUMENTS = (
    document("flags.json", GOOD[: len(GOOD) // 2], (6, 9), "cut off"),
    document("flags.yaml", BOMB, (5, 10), "aliases"),
    document("flags.json", f'{{"flags":{{"banner":{FLAG}}},\n"banner":{FLAG}}}}}}}', (2, 1), "used twice"),
    document("flags.yaml", f"flags:\n  banner: {FLAG}}}\n  banner: {FLAG}}}\n", (3, 3), "used twice"),
    document(
        "flags.json",
        f'{{"flags":{{"banner":{FLAG},\n"targeting":{"[" * DEEP}{"]" * DEEP}}}}}}}',
        (2, 110), "deep",
    ),
    document(
        "flags.yaml", f"flags:\n  banner:\n    variants: {'[' * DEEP}{']' * DEEP}\n", (3, 112), "deep"
    ),
    document("flags.json", GOOD.encode().replace(b"Welcome", b"Wel\xffcome"), (6, 22), "UTF-8"),
)  # fmt: skip


def test_documents_that_cannot_be_read_are_refused_with_their_places(repository: Repository) -> None:
    with up(repository) as running:
        port = running.ready()["ofrep"]
        for bad in DOCUMENTS:
            said = running.revision(replace_definitions(repository, bad.name, bad.content))
            assert served_value(port) == "Welcome", bad.words
            better = running.revision(replace_definitions(repository, "flags.json", BETTER.encode()))
            assert served_value(port) == "Hooray", bad.words
            problem = said["problems"][0]
            assert (problem["file"], problem["line"], problem["column"]) == (bad.name, *bad.place), bad.words
            assert bad.words in problem["message"], bad.words
            assert said["held"] == ["banner"], bad.words
            assert (better["changed"], better["problems"]) == (["banner"], []), bad.words
            running.revision(replace_definitions(repository, "flags.json", GOOD.encode()))


def symlink(repository: Repository) -> None:
    outside = repository.path.parent / "outside.json"
    outside.write_text(BETTER, encoding="utf-8")
    (repository.path / "flags.json").unlink()
    (repository.path / "flags.json").symlink_to(outside)


def symlinked_folder(repository: Repository) -> None:
    (repository.path / "overlay").symlink_to(repository.path.parent)


def submodule(repository: Repository) -> None:
    other = Repository(repository.path.parent / "other")
    other.commit("theirs", flags__json=BETTER)
    repository.git(
        "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.path), "overlay"
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("spoil", "paths", "file", "words"),
    [
        pytest.param(symlink, ["."], "flags.json", "symlink", id="symlink"),
        pytest.param(symlinked_folder, [".", "overlay"], "overlay", "symlink", id="to-a-folder"),
        pytest.param(submodule, [".", "overlay"], "overlay", "submodule", id="submodule"),
        pytest.param(submodule, [".", "overlay/*.json"], "overlay", "submodule", id="through-it"),
    ],
)
def test_a_link_out_of_the_tree_is_not_followed_and_holds_the_whole_set(
    repository: Repository, spoil: Callable[[Repository], None], paths: list[str], file: str, words: str
) -> None:
    """Its flags would be missing from the set, and so be removed, if the rest were served."""
    repository.commit("an overlay", **{"overlay/flags__json": "{}"} if "overlay" in file else {})
    with up(repository, *(word for path in paths for word in ("--path", path))) as running:
        port = running.ready()["ofrep"]
        repository.git("rm", "-rq", "--ignore-unmatch", "overlay")
        spoil(repository)
        said = running.revision(repository.commit("out of the tree"))
        assert served_value(port) == "Welcome"
        repository.git("rm", "-rfq", file)
        running.revision(repository.commit(**{"flags__json": BETTER, "overlay/flags__json": "{}"}))
        assert served_value(port) == "Hooray"
    assert [problem["file"] for problem in said["problems"]] == [file]
    assert words in said["problems"][0]["message"]
    assert said["held"] == ["banner"]


def test_a_commit_without_a_definition_keeps_the_last_good_and_names_the_path(repository: Repository) -> None:
    with up(repository) as running:
        port = running.ready()["ofrep"]
        repository.git("mv", "flags.json", "renamed.txt")
        said = running.revision(repository.commit("no definitions left"))
        assert served_value(port) == "Welcome"
        running.revision(repository.commit("back", flags__json=BETTER))
        assert served_value(port) == "Hooray"
    assert said["problems"][0]["file"] == "."
    assert "no *.json" in said["problems"][0]["message"]
    assert said["held"] == ["banner"]


@pytest.mark.long
def test_a_file_of_100_megabytes_is_not_read_and_holds_the_whole_set(repository: Repository) -> None:
    with up(repository, "--interval", "0.2") as running:
        port = running.ready()["ofrep"]
        with (repository.path / "huge.json").open("wb") as file:
            file.truncate(100 * 1024**2)
        repository.git("-c", "core.compression=0", "add", "huge.json")
        said = running.revision(repository.commit("huge"))
        assert served_value(port) == "Welcome"
        repository.git("rm", "-q", "huge.json")
        running.revision(repository.commit("smaller", flags__json=BETTER))
        assert served_value(port) == "Hooray"
    assert said["held"] == ["banner"]
    assert [(problem["file"], problem["code"], problem["message"]) for problem in said["problems"]] == [
        ("huge.json", "too-large", "too large, 104857600 bytes of 16777216 that one file may have; split it")
    ]


@pytest.mark.long
def test_each_commit_that_is_too_large_is_reported(repository: Repository) -> None:
    with up(repository, "--interval", "0.2") as running:
        running.ready()
        for name in ("one.json", "two.json"):
            with (repository.path / name).open("wb") as file:
                file.truncate(129 * 1024**2)
            repository.commit(name)
            assert running.source("down")["message"].startswith(name)
            repository.git("rm", "-q", "--cached", name)
            (repository.path / name).unlink()


@pytest.mark.long
def test_50000_flags_are_served_over_both_protocols_and_change_together(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Traced for coverage, the process takes a minute instead of seconds; smaller sets reach the same lines.
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)

    def flags(value: str) -> str:
        flag = {"state": "ENABLED", "variants": {"a": value}, "defaultVariant": "a"}
        return json.dumps({"flags": {f"flag-{n}": flag for n in range(50_000)}})

    first = repository.commit("many", flags__json=flags("one"))
    with up(repository) as running:
        ports = running.ready()
        added = running.revision(first)["added"]
        assert served_value(ports["ofrep"], "flag-0") == "one"
        said = running.revision(repository.commit("all of them", flags__json=flags("two")))
        assert served_value(ports["ofrep"], "flag-49999") == "two"
        with grpc.insecure_channel(f"127.0.0.1:{ports['grpc']}") as channel:
            asked = v2.ResolveStringRequest(flag_key="flag-25000")
            assert v2_grpc.ServiceStub(channel).ResolveString(asked, timeout=20).value == "two"
    assert (len(added), len(said["changed"]), said["problems"]) == (50_000, 50_000, [])
