"""Whoever reads flags of strangers does work that grows as they do, however wrong they are."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.artifact_status import ArtifactStatus
from controller.api.fields import read
from controller.api.flagset import KIND, FlagSetSpec
from controller.api.meta import ObjectKey, Resource
from controller.artifacts.archive import pack
from controller.cli.manifests import judge, read_manifests
from controller.configurations.remote_providers import judge_answer
from controller.delivery.delivered import RemoteAnswer
from controller.flagsets.applied import LastDelivered
from controller.flagsets.build import build
from controller.pods.carried_flags import read_flags
from controller.pods.installation import PodRefused
from controller.runtime.setbacks import Setback
from evaluator.flags.merge import parse
from tests.unit.evaluator.flags.wrong_documents import WRONG_FLAGS, WRONG_WHOLES, document, right_flag
from tests.work import work

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FEW, MORE = 60, 8
"""The flags of a small document, and how many times as many a large one has."""
MOST = 3.5
"""How many times the work of a right document of its size a wrong one takes."""
BYTES: Final = 150
"""Of a right flag."""
SPEC: Final = read(FlagSetSpec, {"sourceRef": {"kind": "FlagSource", "name": "flags"}})
ARTIFACT: Final = ArtifactStatus(url="http://a", revision="main@sha1:abc", digest="sha256:abc")
FLAG_SET: Final = Resource(ObjectKey(KIND, "shop", "flags"), "u", 1, "1")


def direct_set(content: bytes, _: Path) -> Callable[[], object]:
    return partial(read_flags, content.decode(), "annotation", len(content))


def remote_answer(content: bytes, _: Path) -> Callable[[], object]:
    provider = Resource.of(
        {"kind": "FeatureFlagConfiguration", "metadata": {"name": "x", "namespace": "shop"}}
    )
    return partial(judge_answer, provider, RemoteAnswer(partial(parse, content, file="answer")), None, {})


def first_build(content: bytes, folder: Path) -> Callable[[], object]:
    return build_after(None, content, folder)


def later_build(content: bytes, folder: Path) -> Callable[[], object]:
    served = parse(document(right_flag, len(content) // BYTES), file="served.json").flag_set
    return build_after(LastDelivered(served), content, folder)


def build_after(last: LastDelivered | None, content: bytes, folder: Path) -> Callable[[], object]:
    tree = folder / "tree"
    tree.mkdir(exist_ok=True)
    (tree / "flags.json").write_bytes(content)
    return partial(build, pack(tree), SPEC, ARTIFACT, FLAG_SET, last)


def manifest(content: bytes, folder: Path) -> Callable[[], object]:
    head = '{"apiVersion": "core.openfeature.dev/v1beta1", "kind": "FeatureFlag", "metadata": {"name": "x"}'
    file = folder / "manifest.json"
    file.write_text(f'{head}, "spec": {{"flagSpec": {content.decode()}}}}}')
    return lambda: judge(read_manifests([str(file)]))


READERS: Final = {
    reader.__name__: reader for reader in (direct_set, remote_answer, first_build, later_build, manifest)
}


def reading(reader: str, content: bytes, folder: Path) -> int:
    read_it = READERS[reader](content, folder)

    def read_or_refuse() -> None:
        with contextlib.suppress(PodRefused, Setback):
            read_it()

    return work(read_or_refuse)


readers = pytest.mark.parametrize("reader", READERS)
kinds = st.lists(st.sampled_from(sorted(WRONG_FLAGS)), min_size=1, max_size=6)


@readers
def test_work_grows_as_the_wrong_flags_do(reader: str, tmp_path: Path) -> None:
    @settings(deadline=None, max_examples=5, database=None)
    @given(kinds)
    def grows_as_they_do(wrong: list[str]) -> None:
        def flag(at: int) -> Any:
            return WRONG_FLAGS[wrong[at % len(wrong)]](at)

        few, many = (reading(reader, document(flag, count), tmp_path) for count in (FEW, FEW * MORE))
        assert many <= MORE * few

    grows_as_they_do()


@readers
@pytest.mark.parametrize("kind", sorted(WRONG_WHOLES))
def test_work_on_what_is_wrong_as_a_whole_grows_as_its_size_does(
    reader: str, kind: str, tmp_path: Path
) -> None:
    few, many = (reading(reader, WRONG_WHOLES[kind](count), tmp_path) for count in (FEW, FEW * MORE))
    assert many <= MORE * few


@readers
def test_what_is_wrong_takes_the_work_of_a_few_right_documents_of_its_size(
    reader: str, tmp_path: Path
) -> None:
    right = document(right_flag, 200)
    allowed = MOST * reading(reader, right, tmp_path) / len(right)
    wrong = {kind: document(flag, 600) for kind, flag in WRONG_FLAGS.items()}
    wrong |= {kind: make(600) for kind, make in WRONG_WHOLES.items()}
    dear = {
        kind: len(content)
        for kind, content in wrong.items()
        if reading(reader, content, tmp_path) > allowed * len(content)
    }
    assert dear == {}
