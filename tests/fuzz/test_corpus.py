"""Every input that is kept, seeds and what once broke something, is treated rightly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
INPUTS = [
    pytest.param(name, file, id=f"{name}-{file.name}")
    for name in TARGETS
    for file in sorted((CORPUS / name).iterdir())
]


@pytest.mark.parametrize(("name", "file"), INPUTS)
def test_an_input_that_is_kept_is_treated_rightly(name: str, file: Path) -> None:
    TARGETS[name].run(file.read_bytes())


def test_every_folder_of_the_corpus_is_a_target_with_seeds() -> None:
    folders = {folder.name: any(folder.iterdir()) for folder in CORPUS.iterdir()}
    assert folders == dict.fromkeys(TARGETS, True)
