"""Files that are edited together, and what a check of them says."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cli.edited_files import EditedSet, check_set, layers_around

EXAMPLE: Final = Path(__file__).parents[4] / "examples" / "gitops-repo"
CHECKOUT: Final = EXAMPLE / "flags/base/checkout.yaml"
LAYERS: Final = ("flags/base", "flags/overlays/production")


@pytest.mark.parametrize(
    ("file", "layers"),
    [
        ("flags/base/checkout.yaml", LAYERS),
        ("flags/overlays/production/checkout.yaml", LAYERS),
        ("flags/overlays/staging/checkout.yaml", ("flags/base", "flags/overlays/staging")),
        ("clusters/demo/flags.yaml", ("clusters/demo",)),
        ("flags.yaml", (".",)),
        ("policies/owned.yaml", ()),
        ("flags/base/own.flagpolicy.yaml", ()),
    ],
)
def test_the_layers_of_a_file_are_told_by_its_folder(file: str, layers: tuple[str, ...]) -> None:
    assert layers_around(EXAMPLE, file) == layers


def test_what_an_editor_holds_replaces_what_is_on_disk() -> None:
    edited = EditedSet(EXAMPLE, LAYERS)
    assert check_set(edited, {}).problems == []
    text = CHECKOUT.read_bytes().replace(b"defaultVariant:", b"defaultVariant: nowhere #", 1)
    problems = check_set(edited, {"flags/base/checkout.yaml": text}).problems
    assert [problem.file for problem in problems] == ["flags/base/checkout.yaml"]
    assert "nowhere" in problems[0].message


def test_a_folder_that_cannot_be_read_is_a_problem_of_no_file(tmp_path: Path) -> None:
    checked = check_set(EditedSet(tmp_path, ("absent",)), {})
    (problem,) = checked.problems
    assert problem.file == ""
    assert f"{tmp_path} cannot be read: absent: no such file or folder" in problem.message
    assert not checked.complete


def test_yaml_without_flags_has_no_problems(tmp_path: Path) -> None:
    (tmp_path / "build.yaml").write_text("jobs: {build: [}\n")
    assert check_set(EditedSet(tmp_path, (".",)), {}).problems == []
    (tmp_path / "build.yaml").write_text("flags: {build: [}\n")
    assert len(check_set(EditedSet(tmp_path, (".",)), {}).problems) == 1


@given(st.integers(0, CHECKOUT.stat().st_size), st.binary(max_size=4))
def test_a_check_of_half_a_file_ends_with_problems_at_its_lines(end: int, more: bytes) -> None:
    text = CHECKOUT.read_bytes()[:end] + more
    checked = check_set(EditedSet(EXAMPLE, LAYERS), {"flags/base/checkout.yaml": text})
    lines = text.count(b"\n") + 1
    for problem in checked.problems:
        assert problem.file != "flags/base/checkout.yaml" or problem.line <= lines
